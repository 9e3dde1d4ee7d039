"""The resolved run: what the options mean for their policy, looked up once; and combinations that are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bft.milp import ProblemError
from bft.milp.backends.registry import able, backend_names, describe, listed
from bft.models import InputError, Objective
from bft.models.checks import cluster_kinds
from bft.models.option_fields import POLICY_KNOWS, SECTIONS, Condition, OptionField
from bft.replay.engine.policy_api import Kind, Policy
from bft.replay.engine.rules import Interference
from bft.replay.options.presets import CONSTANTS, POLLUX_READING
from bft.replay.options.table import OptionTable
from bft.replay.policies.registry import BUILT_IN, PolicyType, policy_type

_PUBLISHED = Condition(lambda run, _: False, "with --compat reference")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run, resolved from its options: its policy's type and settings, and what has no effect and why.

    Parameters
    ----------
    options
        The options, with their defaults.
    policy
        The type of the policy that they name.
    settings
        What the run lets its policy know: fields of these names are filled from it.
    """

    options: OptionTable
    policy: PolicyType
    settings: dict[str, Any]

    @classmethod
    def of(cls, options: OptionTable) -> RunSpec:
        """Resolve options.

        Raises
        ------
        InputError
            When their policy cannot be loaded.

        Examples
        --------
        >>> from bft.replay import Options
        >>> run = RunSpec.of(Options(policy="fifo", tfwd_s=30))
        >>> run.policy.kind.rigid, list(run.ineffective())
        (True, ['-Tfwd has no effect with --policy fifo'])
        """
        settings = {
            **options.for_policy(),
            "objective": Objective.of(options.objective),
        }
        return cls(options, policy_type(options.policy), settings)

    @property
    def published(self) -> bool:
        """Whether the run is that of the published replayer, quirk by quirk."""
        return self.options.compat == "reference"

    @property
    def solves(self) -> bool:
        """Whether the policy asks a solver."""
        return "solver" in self.policy.settings

    @property
    def setting_names(self) -> tuple[str, ...]:
        """The names of the policy's fields that the run fills, so that --set cannot."""
        return (*self.settings, "interference")

    def make_policy(self, interference: Interference | None = None) -> Policy:
        """Make the policy, a new one for each replay."""
        settings = {**self.settings, "interference": interference}
        return self.policy.make(settings, self.options.constants)

    def check_constants(self) -> None:
        """Refuse a constant that the policy does not have, or a value that does not fit it."""
        self.policy.parse(self.options.constants, self.setting_names)

    def ineffective(self) -> Iterator[str]:
        """Yield a sentence for each option that is stated and changes nothing, in the order of the options."""
        for each, condition in self._unmet():
            yield self._sentence(each, condition)

    def refused(self) -> Iterator[str]:
        """Yield a sentence for each option without effect that nobody can have meant."""
        for each, condition in self._unmet():
            if condition.refused:
                yield self._sentence(each, condition)

    def _unmet(self) -> Iterator[tuple[OptionField, Condition]]:
        known = self.options.described()
        for name in self.options.changed():
            each = known[name]
            conditions = (
                each.conditions
                if each.published or not self.published
                else (_PUBLISHED,)
            )
            for condition in conditions:
                if not condition.holds(self, each.setting):
                    yield each, condition
                    break

    def _sentence(self, each: OptionField, condition: Condition) -> str:
        return f"{each.flag} has no effect {condition.otherwise.format_map(self.options.flat())}"

    def notes(self) -> list[str]:
        """Check that the policy can be made and its backend used here; return notes on what changes the result.

        Raises
        ------
        InputError
            When the policy does not accept its constants, or the backend cannot be used on this machine.
        """
        kind = Kind.of(self.make_policy())
        self._check_backend()
        return [
            *self.ineffective(),
            *self._notes_on_answers(),
            *self._notes_on_knowledge(kind),
        ]

    def _notes_on_answers(self) -> Iterator[str]:
        solver = self.options.solver
        if solver.verify and self.policy.name == "milp-sharing":
            yield (
                "--verify checks only decisions in which nobody may share: the exact dynamic programme cannot do others"
            )
        if (
            self.solves
            and solver.keeps_own_answers
            and solver.ties == "canonical"
            and solver.backend != "exact"
        ):
            own = "--gap" if solver.gap > 0 else "--strict-reference"
            yield f"--ties canonical has no effect with {own}: the solver's own answers count, and differ by backend"

    def _notes_on_knowledge(self, kind: Kind) -> Iterator[str]:
        options, policy = self.options, self.policy
        if kind.clairvoyant and not policy.kind.clairvoyant:
            yield f"--objective {options.objective} sees each job's true remaining work, which no scheduler knows"

    def _check_backend(self) -> None:
        # Not checked when options are made: a run may be planned on another machine.

        name = self.options.solver.backend
        if name == "auto" or not self.solves:
            return
        state = describe(name)
        if not state.available:
            usable = ", ".join(
                other for other in backend_names() if describe(other).available
            )
            message = f"--backend {name} is not available here ({state.licence}); there are {usable}"
            raise InputError(message, hint=state.how_to_get)


# Formulations in which two jobs may share units.
_SHARING = "items"


def conflicts(run: RunSpec) -> Iterator[str]:
    """Yield a sentence for each combination of options that nobody can have meant."""
    o, policy = run.options, run.policy.name
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
    if o.cluster is not None and run.published:
        yield "the published replayer knows no fixed clusters: leave out --cluster or --compat"
    if o.cluster is not None and o.rules.harms:
        yield "--return-time and --reserve are about nodes that host jobs take back; with --cluster there are none"
    if o.cluster is not None and o.jobs is None:
        yield "--cluster needs jobs: --jobs FILE, with --jobs-format where it is not the native one"
    if o.xi is None and run.policy.kind.shares:
        yield f"--policy {policy} shares units and needs --xi FILE: what sharing costs"
    if o.xi is not None and run.published:
        yield "the published replayer knows no sharing: leave out --xi or --compat"
    if o.xi is not None and "interference" not in run.policy.settings:
        yield f"--policy {policy} shares nothing, so it takes no --xi"
    if run.published and (
        o.rules.max_jobs == 0 or policy not in ("milp", "equal-share")
    ):
        yield "the published replayer knows --policy milp and equal-share, and -maxJ from 1 on"
    if o.preset is not None and (policy != "milp" or o.compat is not None):
        yield f"--preset {o.preset} is for --policy milp, without --xi and --compat"
    if o.workload is not None and run.published:
        yield "the published replayer knows no jobs that depend on others: leave out --workload or --compat"
    if o.kinds is not None or cluster_kinds(o.cluster):
        yield from _with_kinds(run)
    if o.compat == "lucid" and policy not in CONSTANTS["lucid"]:
        yield f"--compat lucid is for --policy {', '.join(CONSTANTS['lucid'])}, not {policy}"
    if o.compat in POLLUX_READING and o.jobs_format != "pollux":
        yield f"--compat {o.compat} is for --jobs-format pollux, not {o.jobs_format}"
    if run.solves:
        yield from _with_the_solver(run)
    yield from run.refused()


def _with_kinds(run: RunSpec) -> Iterator[str]:
    """Yield what does not go with several kinds of units."""
    o = run.options
    kinds = "--kinds" if o.kinds is not None else "a --cluster of kinds"
    if o.kinds is not None and o.cluster is not None:
        yield "--kinds is for a node trace; a cluster names the kinds itself: --cluster 6x4:t4+2x8:a100"
    if not run.policy.kind.kinds:
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


def _with_the_solver(run: RunSpec) -> Iterator[str]:
    """Yield what no solver can do, or not the one that is asked for."""
    shares, solver = run.options.xi is not None, run.options.solver
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


_HEAD = (
    "| option | in Python | default | has no effect |",
    "|---|---|---|---|",
)


def options_page(fields: Mapping[str, OptionField]) -> str:
    """Return a Markdown text with a table of options for each section.

    Parameters
    ----------
    fields
        Options by flat name, as `option_fields` returns them.
    """
    lines: list[str] = []
    for title in SECTIONS:
        rows = [_row(field) for field in fields.values() if field.section == title]
        if rows:
            lines += [f"### {title}", ""]
            lines += _HEAD
            lines += rows
            lines.append("")
    return "\n".join(lines)


def _row(field: OptionField) -> str:
    flags = ", ".join(f"`{flag}`" for flag in field.flags)
    name = f"`{field.name}`"
    idle = "; ".join(_idle(field))
    cells = [cell.replace("|", "\\|") for cell in (flags, name, _default(field), idle)]
    return f"| {' | '.join(cells)} |"


def _default(field: OptionField) -> str:
    if field.shown or field.default in (None, ()):
        return field.shown
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    return f"`{field.default}`"


def _idle(field: OptionField) -> Iterator[str]:
    """Yield where an option has no effect."""
    for condition in field.conditions:
        where = _where(field, condition)
        yield f"{where} (an error)" if condition.refused else where
    if not field.published:
        yield "with --compat reference"


def _where(field: OptionField, condition: Condition) -> str:
    if condition is POLICY_KNOWS:
        known = [
            name for name in BUILT_IN if field.setting in policy_type(name).settings
        ]
        return f"with other policies than {', '.join(known)}"
    where = condition.otherwise.replace("{policy}", "NAME")
    return where.replace("{backend}", "NAME")
