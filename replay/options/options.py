"""Options, resolved once: everything that decides a replay's result, what follows from it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from bft.models import InputError, Objective
from bft.models.checks import cluster_kinds, refuse_unknown
from bft.models.option_fields import Condition, OptionField, option_fields
from bft.models.searches.workload_api import Workload, make_workload, takes
from bft.replay.engine.rules import Interference, Rules
from bft.replay.options.presets import (
    CONSTANTS,
    DECISION_LIMIT_S,
    DEFAULTS,
    POLLUX_READING,
)
from bft.replay.options.table import OptionTable
from bft.replay.policies.solver import SolverOptions

if TYPE_CHECKING:
    from bft.replay.engine.policy_api import Policy, Traits
    from bft.replay.policies.registry import PolicyType

_PUBLISHED = Condition(lambda run, _: False, "with --compat reference")


@dataclass(frozen=True, init=False)
class Options(OptionTable):
    """Everything that decides a replay's result, resolved; recorded in summary.json.

    Options are stated by their flat names, as in summary.json and on the command line; None counts as not stated. The
    values check themselves, so that the command line, config files and Python share one set of errors. Names are taken
    in capitals or not, paths as text or `Path`, whole numbers where seconds are expected. Defaults that depend on other
    options are filled in.

    Attributes
    ----------
    rules
        How the world works.
    solver
        What solves a decision.

    Raises
    ------
    InputError
        For an unknown name, when a value is not allowed, or does not go with another; names the option as the command
        line does.

    Examples
    --------
    >>> options = Options(tfwd_s=120, backend="exact")
    >>> options.tfwd_s, options.rules.max_jobs, options.solver.time_limit_s
    (120.0, 10, 10.0)
    >>> Options(tfwd_s=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: -Tfwd: expected a number of seconds > 0 and at most 1e+09, not -1
    >>> options = Options(policy="fifo", tfwd_s=30)
    >>> options.policy_type.traits.rigid, list(options.ineffective())
    (True, ['-Tfwd has no effect with --policy fifo'])
    """

    def __init__(self, **stated: Any) -> None:
        known = self.known()
        refuse_unknown(stated, known)
        given = {
            name: known[name].checked(value)
            for name, value in stated.items()
            if value is not None
        }
        values = {**defaults(known, given), **given}
        parts: dict[str, Any] = {"rules": Rules, "solver": SolverOptions}
        for part, kind in parts.items():
            values[part] = kind(
                **{name: values.pop(name) for name in option_fields(kind)}
            )
        for name, value in values.items():
            object.__setattr__(self, name, value)  # frozen, and not yet handed out
        self._check_together()

    def _check_together(self) -> None:
        """Refuse what does not go together, and constants that do not fit."""
        conflict = next(conflicts(self), None)
        if conflict is not None:
            raise InputError(conflict)
        self.policy_type.parse(self.constants, list(self.settings()))
        self.make_workload()

    @classmethod
    def known(cls) -> Mapping[str, OptionField]:
        """Return what is known of every option, by flat name; those of rules and solver come last."""
        table: Any = cls  # mypy takes no class for hashable
        return _known(table)

    def flat(self) -> dict[str, Any]:
        """Every option by its flat name, as summary.json records it."""
        values = {**vars(self), **_values(self.rules), **_values(self.solver)}
        return {name: values[name] for name in self.known()}

    def changed(self) -> dict[str, str]:
        """Options that differ from their defaults: their flags on the command line, by flat name."""
        values, known = self.flat(), self.known()
        usual = defaults(known, values)
        return {
            name: known[name].flag
            for name, value in values.items()
            if value != usual[name]
        }

    @property
    def published(self) -> bool:
        """Whether the run is that of the published replayer, quirk by quirk."""
        return self.compat == "reference"

    @property
    def draws(self) -> bool:
        """Whether jobs are drawn at random."""
        if self.shuffle_submits or self.arrival is not None:
            return True
        return self.workload is not None and takes(self.workload, "seed")

    @property
    def policy_type(self) -> PolicyType:
        """What is known of the policy before one is made."""
        return _policy_type(self.policy)

    @property
    def solves(self) -> bool:
        """Whether the policy asks a solver."""
        return "solver" in self.policy_type.settings

    @property
    def constants(self) -> dict[str, str]:
        """What is set of the policy's own constants, as text by name; --set wins over --compat."""
        as_published = CONSTANTS.get(self.compat or "", {}).get(self.policy, {})
        return {**as_published, **dict(self.policy_options)}

    def settings(self, interference: Interference | None = None) -> dict[str, Any]:
        """Return what the run lets its policy know: fields of these names are filled from it, and --set cannot."""
        values = self.flat()
        settings = {
            name: values[name] for name, each in self.known().items() if each.for_policy
        }
        return settings | {
            "objective": Objective.of(self.objective),
            "solver": self.solver,
            "interference": interference,
        }

    def make_policy(self, interference: Interference | None = None) -> Policy:
        """Make the policy, a new one for each replay."""
        return self.policy_type.make(self.settings(interference), self.constants)

    @cached_property
    def traits(self) -> Traits:
        """What the policy is, once its constants are known: those of a schedule say it."""
        from bft.replay.engine.policy_api import Traits

        return Traits.of(self.make_policy())

    def make_workload(self) -> Workload | None:
        """Make the workload that submits and cancels jobs, a new one for each replay; None without one.

        Raises
        ------
        InputError
            When there is no such workload, or a value of its constants does not fit.
        """
        if self.workload is None:
            return None
        return make_workload(self.workload, {"seed": self.seed})

    def ineffective(self, *, refused: bool = False) -> Iterator[str]:
        """Yield a sentence for each option that is stated and changes nothing, in the order of the options.

        With `refused` only for those that nobody can have meant.
        """
        known, values = self.known(), self.flat()
        for name in self.changed():
            each = known[name]
            applies = each.published or not self.published
            conditions = each.conditions if applies else (_PUBLISHED,)
            unmet = next((c for c in conditions if not c.holds(self, name)), None)
            if unmet is not None and (unmet.refused or not refused):
                yield f"{each.flag} has no effect {unmet.otherwise.format_map(values)}"

    def notes(self) -> Iterator[str]:
        """Yield notes on what changes the result, once the policy can be made and its backend used here.

        Raises
        ------
        InputError
            When the policy does not accept its constants, or the backend cannot be used on this machine.
        """
        traits = self.traits
        if self.solves:
            _check_backend(self.solver.backend)
        yield from self.ineffective()
        if self.solver.verify and self.policy == "milp-sharing":
            yield (
                "--verify checks only decisions in which nobody may share: the exact dynamic programme cannot do others"
            )
        solver = self.solver
        own = "--gap" if solver.gap > 0 else "--strict-reference"
        canonical = solver.ties == "canonical" and solver.backend != "exact"
        if self.solves and solver.keeps_own_answers and canonical:
            yield f"--ties canonical has no effect with {own}: the solver's own answers count, and differ by backend"
        if 0 < (self.co2_per_kwh or 0.0) < 1:
            yield (
                f"--co2-per-kwh {self.co2_per_kwh:g} is less than any grid emits: are these kilograms? It is in grams, "
                f"and {self.co2_per_kwh:g} kg are {1000 * (self.co2_per_kwh or 0.0):g}"
            )
        if traits.clairvoyant and not self.policy_type.traits.clairvoyant:
            yield f"--objective {self.objective} sees each job's true remaining work, which no scheduler knows"


def _policy_type(name: str) -> PolicyType:
    from bft.replay.policies.registry import policy_type

    return policy_type(name)


def _check_backend(name: str) -> None:
    """Refuse a backend that this machine lacks; not when options are made, as a run may be planned on another."""
    from bft.milp.backends.registry import backend_names, describe

    if name == "auto" or (state := describe(name)).available:
        return
    usable = ", ".join(each for each in backend_names() if describe(each).available)
    raise InputError(
        f"--backend {name} is not available here ({state.licence}); there are {usable}",
        hint=state.how_to_get,
    )


@cache
def _known(table: Any) -> Mapping[str, OptionField]:
    known = {
        **option_fields(table),
        **option_fields(Rules),
        **option_fields(SolverOptions),
    }
    known["time_limit_s"] = replace(
        known["time_limit_s"], default=DECISION_LIMIT_S, shown=""
    )
    for name in dict.fromkeys(name for _, sets in DEFAULTS for name in sets):
        known[name] = replace(known[name], varies=True, shown=_shown(known[name]))
    return known


def _values(part: Rules | SolverOptions) -> dict[str, Any]:
    return {each.name: getattr(part, each.name) for each in fields(part)}


def defaults(
    known: Mapping[str, OptionField], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the default of each option by flat name, given the values of others."""
    found = {name: each.default for name, each in known.items()}
    for condition, sets in reversed(DEFAULTS):
        if all(_is(values.get(name), of) for name, of in condition.items()):
            found |= {name: known[name].checked(value) for name, value in sets.items()}
    policy = values.get("policy") or found["policy"]
    rigid = _policy_type(policy).traits.rigid
    return found | {"oversized": "refuse" if rigid else "skip"}


def _is(value: Any, one_of: tuple[str, ...]) -> bool:
    return value in one_of if one_of else value is not None


def _shown(each: OptionField) -> str:
    """Describe a default that follows from other options."""
    texts = [_plain(each.default)]
    for condition, sets in DEFAULTS:
        if each.name in sets:
            others = ", ".join(
                " ".join((f"--{name}", " or ".join(of))).rstrip()
                for name, of in condition.items()
            )
            texts.append(f"with {others} {_plain(sets[each.name])}")
    return "; ".join(texts)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(f"{size}:{spent:g}" for size, spent in value) or "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Every option by its flat name, in the order in which they are reported.
FIELDS = Options.known()


# The formulation in which two jobs may share units.
_SHARING = "items"


def conflicts(o: Options) -> Iterator[str]:
    """Yield a sentence for each combination of options that nobody can have meant."""
    policy, traits = o.policy, o.policy_type.traits
    if o.jobs is not None and (o.job_bounds is not None or o.job_curves is not None):
        yield "give either --jobs or the pair -bdfn and -scfn"
    if (o.job_bounds is None) != (o.job_curves is None):
        stated, missing = (
            ("-bdfn", "-scfn") if o.job_curves is None else ("-scfn", "-bdfn")
        )
        yield f"{stated} needs {missing} with it: a published job set is a pair of tables"
    if o.arrival is not None and o.scale_arrivals != 1:
        yield "give either --arrival, new instants of submission, or --scale-arrivals, the same further apart"
    if o.cluster is not None and o.node_trace is not None:
        yield "give either -ndmap, a node trace, or --cluster, nodes that are always idle"
    if o.cluster is not None and o.published:
        yield "the published replayer knows no fixed clusters: leave out --cluster or --compat"
    if o.cluster is not None and o.rules.harms:
        yield "--return-time and --reserve are about nodes that host jobs take back; with --cluster there are none"
    if o.cluster is not None and o.jobs is None:
        yield "--cluster needs jobs: --jobs FILE, with --jobs-format where it is not the native one"
    if o.xi is None and traits.shares:
        yield f"--policy {policy} shares units and needs --xi FILE: what sharing costs"
    if o.xi is not None and o.published:
        yield "the published replayer knows no sharing: leave out --xi or --compat"
    if o.xi is not None and "interference" not in o.policy_type.settings:
        yield f"--policy {policy} shares nothing, so it takes no --xi"
    if o.published and (o.rules.max_jobs == 0 or policy not in ("milp", "equal-share")):
        yield "the published replayer knows --policy milp and equal-share, and -maxJ from 1 on"
    if o.preset is not None and (policy != "milp" or o.compat is not None):
        yield f"--preset {o.preset} is for --policy milp, without --xi and --compat"
    if o.workload is not None and o.published:
        yield "the published replayer knows no jobs that depend on others: leave out --workload or --compat"
    if o.kinds is not None or cluster_kinds(o.cluster):
        yield from _with_kinds(o)
    if o.compat == "lucid" and policy not in CONSTANTS["lucid"]:
        yield f"--compat lucid is for --policy {', '.join(CONSTANTS['lucid'])}, not {policy}"
    if o.compat in POLLUX_READING and o.jobs_format != "pollux":
        yield f"--compat {o.compat} is for --jobs-format pollux, not {o.jobs_format}"
    if o.solves:
        yield from _with_the_solver(o)
    yield from o.ineffective(refused=True)


def _with_kinds(o: Options) -> Iterator[str]:
    """Yield what does not go with several kinds of units."""
    kinds = "--kinds" if o.kinds is not None else "a --cluster of kinds"
    if o.kinds is not None and o.cluster is not None:
        yield "--kinds is for a node trace; a cluster names the kinds itself: --cluster 6x4:t4+2x8:a100"
    if not o.policy_type.traits.kinds:
        yield f"--policy {o.policy} knows no kinds of units; with {kinds} choose one that does, such as milp or sia"
    for stated, flag in (
        (o.compat in ("reference", "lucid"), f"--compat {o.compat}"),
        (o.xi is not None, "--xi"),
        (o.workload is not None, "--workload"),
        (o.curves != "known", f"--curves {o.curves}"),
        (o.rules.admission == "deadline", "--admission deadline"),
        (
            o.solver.formulation not in ("auto", "modes"),
            f"--formulation {o.solver.formulation}",
        ),
        (o.oversized == "cap", "--oversized cap"),
        (o.cap_units is not None, "--cap-units"),
        (o.rules.harms, "--return-time and --reserve"),
        (
            o.node_trace is None and o.cluster is None,
            "the bundled trace: -ndmap FILE names another",
        ),
    ):
        if stated:
            yield f"{kinds} does not go with {flag}"


def _with_the_solver(o: Options) -> Iterator[str]:
    """Yield what no solver can do, or not the one that is asked for."""
    # Imported late: to print help, no solver need be loaded.
    from bft.milp import ProblemError
    from bft.milp.backends.registry import able, listed

    shares, solver = o.xi is not None, o.solver
    formulation = solver.formulation
    if shares and formulation not in ("auto", _SHARING):
        yield f"--formulation {formulation} knows no sharing; with --xi choose {_SHARING}"
    if formulation == "auto":
        formulation = (
            "node" if solver.strict_reference else "items" if shares else "modes"
        )
    if solver.backend == "auto":
        return
    try:
        formulations = listed(solver.backend).formulations
    except ProblemError as error:  # another package's, which is broken
        yield str(error)
    else:
        if formulation not in formulations:
            others = ", ".join(able(formulation))
            yield f"--backend {solver.backend} cannot solve formulation {formulation}; choose one of {others}"
