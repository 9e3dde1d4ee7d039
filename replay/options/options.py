"""Options, resolved once: everything that decides a replay's result, what follows from it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bft.models import InputError, Objective
from bft.models.checks import (
    OUTPUT,
    Condition,
    Number,
    OptionField,
    cluster_nodes,
    option_fields,
    refuse_unknown,
)
from bft.models.errors import FLAGS, naming_options
from bft.models.searches.workload_api import Workload, make_workload
from bft.replay.engine.rules import Interference, Rules
from bft.replay.options.table import (
    CONSTANTS,
    DEFAULTS,
    POLLUX_READING,
    OptionTable,
)
from bft.replay.policies.solver import SolverOptions

if TYPE_CHECKING:
    from bft.replay.engine.policy_api import Policy, Traits
    from bft.replay.policies.registry import PolicyType

_PUBLISHED = Condition(lambda run, _: False, "with $compat=reference")


def _fields() -> dict[str, OptionField]:
    tables = (OptionTable, Rules, SolverOptions)
    known = {
        name: each for table in tables for name, each in option_fields(table).items()
    }
    # As published.
    known["time_limit_s"] = replace(known["time_limit_s"], default=10.0, shown="")
    for name in {name for _, sets in DEFAULTS for name in sets}:
        known[name] = replace(known[name], varies=True, shown=_shown(name, known))
    return known


def _shown(name: str, known: Mapping[str, OptionField]) -> str:
    """Describe the default of an option, which follows from others."""
    texts = [_plain(known[name].default)]
    for condition, sets in DEFAULTS:
        if name in sets:
            stated = ", ".join(
                f"{known[other].flag}{'=' * known[other].rare or ' '}{' or '.join(values)}".rstrip()
                for other, values in condition.items()
            )
            texts.append(f"with {stated} {_plain(sets[name])}")
    return "; ".join(texts)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(f"{size}:{spent:g}" for size, spent in value) or "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Every option by its flat name, in the order in which they are reported.
FIELDS = _fields()
FLAGS.update({name: field.flag for name, field in FIELDS.items()})


def defaults(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default of each option by flat name, given the values of others."""
    from bft.replay.policies.registry import policy_type

    found = {name: each.default for name, each in FIELDS.items()}
    for condition, sets in reversed(DEFAULTS):
        # Without values any one meets the condition.
        if all(
            stated.get(name) in of if of else stated.get(name) is not None
            for name, of in condition.items()
        ):
            found |= {name: FIELDS[name].checked(value) for name, value in sets.items()}
    rigid = policy_type(stated.get("policy", found["policy"])).traits.rigid
    return found | {"oversized": "refuse" if rigid else "skip"}


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
        line does, and in `bft.replay` and the like as its argument.

    Examples
    --------
    >>> options = Options(tfwd_s=120, backend="exact")
    >>> options.tfwd_s, options.rules.max_jobs, options.solver.time_limit_s
    (120.0, 10, 10.0)
    >>> Options(tfwd_s=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: -Tfwd: expected a number of seconds > 0 and at most 1e+09, not -1
    >>> options = Options(policy="fifo", tfwd_s=30)
    >>> options.policy_type.traits.rigid, list(options.notes())
    (True, ['-Tfwd has no effect with --policy fifo'])
    """

    def __init__(self, **stated: Any) -> None:
        refuse_unknown(stated, FIELDS)
        given = {
            name: FIELDS[name].checked(value)
            for name, value in stated.items()
            if value is not None
        }
        values = defaults(given) | given
        rules = {name: values[name] for name in option_fields(Rules)}
        solver = {name: values[name] for name in option_fields(SolverOptions)}
        # The dataclass is frozen, and not yet handed out.
        vars(self).update(values, rules=Rules(**rules), solver=SolverOptions(**solver))
        for conflict in conflicts(self):
            raise InputError(conflict)
        self.policy_type.parse(self.constants, list(self.settings()))
        self.make_workload()

    def flat(self) -> dict[str, Any]:
        """Every option by its flat name, as summary.json records it."""
        return {name: getattr(self, name) for name in FIELDS}

    @property
    def published(self) -> bool:
        """Whether the run is that of the published replayer, quirk by quirk."""
        return self.compat == "reference"

    @property
    def draws(self) -> bool:
        """Whether jobs are drawn at random."""
        drawn = self.arrival, self.workload
        return self.shuffle_submits or any(each is not None for each in drawn)

    @property
    def policy_type(self) -> PolicyType:
        """What is known of the policy before one is made."""
        from bft.replay.policies.registry import policy_type

        return policy_type(self.policy)

    @property
    def solves(self) -> bool:
        """Whether the policy asks a solver."""
        return "solver" in self.policy_type.settings

    @property
    def constants(self) -> dict[str, str]:
        """What is set of the policy's own constants, as text by name; --set wins over --option compat."""
        as_published = CONSTANTS.get(self.compat or "", {}).get(self.policy, {})
        return {**as_published, **dict(self.policy_options)}

    def settings(self, interference: Interference | None = None) -> dict[str, Any]:
        """Return what the run lets its policy know: fields of these names are filled from it, and --set cannot."""
        return {
            **{name: getattr(self, name) for name in FIELDS if FIELDS[name].for_policy},
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
        named, known = self.workload, {"seed": self.seed}
        return None if named is None else make_workload(named, known)

    def ineffective(self, *, refused: bool = False) -> Iterator[str]:
        """Yield a sentence for each option that is stated and changes nothing, in the order of the options.

        With `refused` only for those that nobody can have meant. Options are named as in an error, `$tfwd_s`.
        """
        values = self.flat()
        usual = defaults(values)
        for name, each in FIELDS.items():
            if values[name] == usual[name]:
                continue
            applies = each.published or not self.published
            conditions = each.conditions if applies else (_PUBLISHED,)
            unmet = next((c for c in conditions if not c.holds(self, name)), None)
            if unmet is not None and (unmet.refused or not refused):
                otherwise = unmet.otherwise.format_map(values)
                yield f"${name} has no effect {otherwise}"

    def notes(self) -> Iterator[str]:
        """Yield notes on what changes the result, once the policy can be made and its backend used here.

        Raises
        ------
        InputError
            When the policy does not accept its constants, or the backend cannot be used on this machine.
        """
        traits, solver, grams = self.traits, self.solver, self.co2_per_kwh or 0.0
        if self.solves:
            _check_backend(solver.backend)
        yield from map(naming_options, self.ineffective())
        own = "$gap" if solver.gap > 0 else "$strict_reference"
        canonical = solver.ties == "canonical" and solver.backend != "exact"
        sentences = {
            "$verify checks only decisions in which nobody may share: the exact dynamic programme cannot do others": (
                solver.verify and self.policy == "milp-sharing"
            ),
            f"$ties=canonical has no effect with {own}: the solver's own answers count, and differ by backend": (
                self.solves and solver.keeps_own_answers and canonical
            ),
            f"--co2-per-kwh {grams:g} is less than any grid emits: are these kilograms? It is in grams, and {grams:g} "
            f"kg are {1000 * grams:g}": 0 < grams < 1,
            f"--objective {self.objective} sees each job's true remaining work, which no scheduler knows": (
                traits.clairvoyant and not self.policy_type.traits.clairvoyant
            ),
        }
        told = (sentence for sentence, holds in sentences.items() if holds)
        yield from map(naming_options, told)


def _check_backend(name: str) -> None:
    """Refuse a backend that this machine lacks; not when options are made, as a run may be planned on another."""
    from bft.milp.backends.registry import backend_names, describe

    if name == "auto" or (state := describe(name)).available:
        return
    usable = ", ".join(each for each in backend_names() if describe(each).available)
    raise InputError(
        f"$backend {name} is not available here ({state.licence}); there are {usable}",
        hint=state.how_to_get,
    )


def conflicts(o: Options) -> Iterator[str]:
    """Yield a sentence for each combination of options that nobody can have meant."""
    policy, traits = o.policy, o.policy_type.traits
    pair = (
        ("$job_bounds", "$job_curves")
        if o.job_curves is None
        else ("$job_curves", "$job_bounds")
    )
    sentences = {
        "give either $jobs or the pair $job_bounds and $job_curves": o.jobs is not None
        and (o.job_bounds is not None or o.job_curves is not None),
        f"{pair[0]} needs {pair[1]} with it: a published job set is a pair of tables": (
            (o.job_bounds is None) != (o.job_curves is None)
        ),
        "give either $arrival, new instants of submission, or $scale_arrivals, the same further apart": (
            o.arrival is not None and o.scale_arrivals != 1
        ),
        "give either $node_trace, a node trace, or $cluster, nodes that are always idle": (
            o.cluster is not None and o.node_trace is not None
        ),
        "the published replayer knows no fixed clusters: leave out $cluster or $compat": (
            o.cluster is not None and o.published
        ),
        "$return_time_s and $reserve are about nodes that host jobs take back; with $cluster there are none": (
            o.cluster is not None and o.rules.harms
        ),
        "$cluster needs jobs: $jobs FILE, with $jobs_format where it is not the native one": (
            o.cluster is not None and o.jobs is None
        ),
        f"$policy {policy} shares units and needs $xi FILE: what sharing costs": (
            o.xi is None and traits.shares
        ),
        "the published replayer knows no sharing: leave out $xi or $compat": (
            o.xi is not None and o.published
        ),
        f"$policy {policy} shares nothing, so it takes no $xi": (
            o.xi is not None and "interference" not in o.policy_type.settings
        ),
        "the published replayer knows $policy milp and equal-share, and $max_jobs from 1 on": (
            o.published
            and (o.rules.max_jobs == 0 or policy not in ("milp", "equal-share"))
        ),
        f"$preset {o.preset} is for $policy milp and one's own of its kind, without $xi and $compat": (
            o.preset is not None
            and (
                "objective" not in o.policy_type.settings
                or traits.shares
                or o.compat is not None
            )
        ),
        "the published replayer knows no jobs that depend on others: leave out $workload or $compat": (
            o.workload is not None and o.published
        ),
        **_with_kinds(o),
        f"$compat=lucid is for $policy {', '.join(CONSTANTS['lucid'])}, not {policy}": (
            o.compat == "lucid" and policy not in CONSTANTS["lucid"]
        ),
        f"$compat={o.compat} is for $jobs_format pollux, not {o.jobs_format}": (
            o.compat in POLLUX_READING and o.jobs_format != "pollux"
        ),
    }
    yield from (sentence for sentence, holds in sentences.items() if holds)
    if o.solves:
        yield from _with_the_solver(o)
    yield from o.ineffective(refused=True)


def _with_kinds(o: Options) -> dict[str, bool]:
    """Return what does not go with several kinds of units, and whether it is so."""
    named = any(part.kind for part in cluster_nodes(o.cluster or "") or ())
    if o.kinds is None and not named:
        return {}
    kinds = "$kinds" if o.kinds is not None else "a $cluster of kinds"
    others = {
        f"$compat={o.compat}": o.compat in ("reference", "lucid"),
        "$xi": o.xi is not None,
        "$workload": o.workload is not None,
        f"$curves={o.curves}": o.curves != "known",
        "$admission=deadline": o.rules.admission == "deadline",
        f"$formulation={o.solver.formulation}": (
            o.solver.formulation not in ("auto", "modes")
        ),
        "$oversized=cap": o.oversized == "cap",
        "$cap_units": o.cap_units is not None,
        "$return_time_s and $reserve": o.rules.harms,
        "the bundled trace: $node_trace FILE names another": (
            o.node_trace is None and o.cluster is None
        ),
    }
    return {
        "$kinds is for a node trace; a cluster names the kinds itself: $cluster 6x4:t4+2x8:a100": (
            o.kinds is not None and o.cluster is not None
        ),
        f"$policy {o.policy} knows no kinds of units; with {kinds} choose one that does, such as milp or sia": (
            not o.policy_type.traits.kinds
        ),
        **{f"{kinds} does not go with {what}": holds for what, holds in others.items()},
    }


def _with_the_solver(o: Options) -> Iterator[str]:
    """Yield what no solver can do, or not the one that is asked for."""
    # Imported late: to print help, no solver need be loaded.
    from bft.milp import ProblemError
    from bft.milp.backends.registry import able, listed

    shares, solver = o.xi is not None, o.solver
    formulation = solver.formulation
    if shares and formulation not in ("auto", "items"):
        yield f"$formulation={formulation} knows no sharing; with $xi choose items"
    if formulation == "auto":
        shared = "items" if shares else "modes"
        formulation = "node" if solver.strict_reference else shared
    if solver.backend == "auto":
        return
    try:
        if formulation not in listed(solver.backend).formulations:
            others = ", ".join(able(formulation))
            yield f"$backend {solver.backend} cannot solve formulation {formulation}; choose one of {others}"
    except ProblemError as error:  # another package's, which is broken
        yield str(error)


# --- options of an evaluation beside those of its logs ---

# What the user may say of jobs and nodes.
WORLD: Mapping[str, OptionField] = {
    name: FIELDS[name]
    for name in ("jobs", "jobs_format", "align_jobs", "trust_pickle", "node_class")
}
# What things are worth, which no replay needs to know.
_PRICES = ("price_per_node_hour", "host_price", "node_watts", "co2_per_kwh")
PRICES: Mapping[str, OptionField] = {
    **{name: FIELDS[name] for name in _PRICES},
    "price_per_kwh": OptionField(
        name="price_per_kwh",
        flags=("--price-per-kwh",),
        check=Number(0, 1e9),
        metavar="PRICE",
        help="Reports what the energy costs (needs --node-watts).",
        section=OUTPUT,
        shown="not reported",
    ),
}
FLAGS.update({name: field.flag for name, field in PRICES.items()})
