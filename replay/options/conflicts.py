"""Which options can be combined: combinations that are refused, and options without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bft.models.errors import InputError
from bft.replay.policies.solver import SolverOptions

if TYPE_CHECKING:
    from bft.replay.options.options import Options
    from bft.replay.policies import Kind

# What a policy may know of the run: fields of these names are filled from it.
POLICY_SETTINGS = (
    "tfwd_s",
    "solver",
    "cost_model",
    "objective",
    "curves",
    "deadline_boost",
    "deadline_horizon_s",
    "xi_partners",
    "unit_memory_gib",
    "restart_overhead",
    "seed",
)
# Of these the engine itself uses some too, whatever the policy knows.
_OF_THE_ENGINE = ("cost_model", "unit_memory_gib", "restart_overhead")
# The options of the solver, which a policy knows together.
SOLVER_OPTIONS = tuple(each.name for each in fields(SolverOptions))
# What --compat reference uses: all that the published replayer has.
_PUBLISHED = (
    "node_trace",
    "job_bounds",
    "job_curves",
    "jobs",
    "jobs_format",
    "applications",
    "align_jobs",
    "repeat",
    "cap_units",
    "shuffle_submits",
    "arrival",
    "scale_arrivals",
    "seed",
    "tfwd_s",
    "time_limit_s",
    "max_jobs",
    "first_node",
    "node_count",
    "skip_rows",
    "sort",
    "policy",
    "backend",
    "compat",
    "dedicated",
)
# Constants of the policies as Lucid's artifact runs them (docs/decisions/0011-lucid.md).
LUCID_CONSTANTS = {
    "lucid": {"compat": "yes"},
    "srtf": {"compat": "yes"},
    "tiresias-l": {"compat": "yes", "limits": "18000", "interval_s": "60", "placement": "all"},
}
# Formulations in which two jobs may share units.
_SHARING = ("items", "flow")


def contradictions(options: Options) -> Iterator[str]:
    """What cannot have been meant, one sentence each; the policy is looked up, so that its kind is known."""
    o, policy = options, options.policy
    if o.jobs is not None and (o.job_bounds is not None or o.job_curves is not None):
        yield "give either --jobs or the pair -bdfn and -scfn"
    if (o.job_bounds is None) != (o.job_curves is None):
        given, missing = ("-bdfn", "-scfn") if o.job_curves is None else ("-scfn", "-bdfn")
        yield f"{given} needs {missing} with it: a published job set is a pair of tables"
    if o.arrival is not None and o.scale_arrivals != 1:
        yield "give either --arrival, new instants of submission, or --scale-arrivals, the same further apart"
    if o.cluster is not None and o.node_trace is not None:
        yield "give either -ndmap, a node trace, or --cluster, nodes that are always idle"
    if o.cluster is not None and o.compat == "reference":
        yield "the published replayer knows no fixed clusters: leave out --cluster or --compat"
    if o.cluster is not None and o.jobs is None:
        yield "--cluster needs jobs: --jobs FILE, with --jobs-format where it is not the native one"
    if o.xi is None and kind_of(policy).shares:
        yield f"--policy {policy} shares units and needs --xi FILE: what sharing costs"
    if o.xi is not None and o.compat == "reference":
        yield "the published replayer knows no sharing: leave out --xi or --compat"
    if o.xi is not None and "interference" not in constants_of(policy):
        yield f"--policy {policy} shares nothing, so it takes no --xi"
    if o.compat == "reference" and (o.rules.max_jobs == 0 or policy not in ("milp", "equal-share")):
        yield "the published replayer knows --policy milp and equal-share, and -maxJ from 1 on"
    if o.preset is not None and (policy != "milp" or o.compat is not None):
        yield f"--preset {o.preset} is for --policy milp, without --xi and --compat"
    if o.workload is not None and o.compat == "reference":
        yield "the published replayer knows no jobs that depend on others: leave out --workload or --compat"
    if o.kinds is not None:
        yield from _of_kinds(o)
    if o.compat == "lucid" and policy not in LUCID_CONSTANTS:
        yield f"--compat lucid is for --policy {', '.join(LUCID_CONSTANTS)}, not {policy}"
    if o.compat == "pollux" and o.jobs_format != "pollux":
        yield f"--compat pollux is for --jobs-format pollux, not {o.jobs_format}"
    if "solver" in constants_of(policy):
        yield from _of_the_solver(o)
    yield from (f"{flag} has no effect {need.where(o)}" for flag, need in _idle(o) if need.refused)


def _of_kinds(o: Options) -> Iterator[str]:
    """What does not go with several kinds of units."""
    if not kind_of(o.policy).kinds:
        yield f"--policy {o.policy} knows no kinds of units; with --kinds choose one that does, such as milp or sia"
    for given, flag in (
        (o.cluster is not None, "--cluster"),
        (o.compat is not None, "--compat"),
        (o.xi is not None, "--xi"),
        (o.workload is not None, "--workload"),
        (o.curves != "known", f"--curves {o.curves}"),
        (o.rules.admission == "deadline", "--admission deadline"),
        (o.solver.formulation not in ("auto", "modes"), f"--formulation {o.solver.formulation}"),
        (o.oversized == "cap", "--oversized cap"),
        (o.cap_units is not None, "--cap-units"),
        (o.node_trace is None, "the bundled trace: -ndmap FILE names another"),
    ):
        if given:
            yield f"--kinds does not go with {flag}"


def _of_the_solver(o: Options) -> Iterator[str]:
    """What no solver can do, or not the one that is asked for."""
    from bft.milp import ProblemError
    from bft.milp.backends.registry import able, listed

    shares, solver, formulation = o.xi is not None, o.solver, o.solver.formulation
    if shares and formulation not in ("auto", *_SHARING):
        yield f"--formulation {formulation} knows no sharing; with --xi choose {' or '.join(_SHARING)}"
    if formulation == "auto":
        formulation = "node" if solver.strict_reference else "items" if shares else "modes"
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


@dataclass(frozen=True, slots=True)
class Need:
    """Options that have an effect only where a condition holds.

    Parameters
    ----------
    names
        Of the options.
    holds
        The condition.
    where
        From the options to the end of a message: where they have no effect.
    refused
        Nobody can have meant it: an error, not a note.
    """

    names: tuple[str, ...]
    holds: Callable[[Options], bool]
    where: Callable[[Options], str]
    refused: bool = False


def _without(what: str) -> Callable[[Options], str]:
    return lambda options: f"without {what}"


# The first that fails for an option is reported.
NEEDS = (
    Need(("jobs_format",), lambda o: o.jobs is not None, _without("--jobs"), refused=True),
    Need(("applications",), lambda o: o.jobs_format == "pollux", _without("--jobs-format pollux")),
    Need(
        ("first_node", "node_count", "skip_rows", "sort", "align_jobs", "walltimes"),
        lambda o: o.cluster is None,
        lambda o: "with --cluster, whose nodes are idle from the first submit on",
    ),
    Need(
        ("sort",),
        lambda o: o.node_trace is not None,
        lambda o: "on the bundled trace, which is in order",
    ),
    Need(("walltimes",), lambda o: o.node_trace is not None, _without("-ndmap"), refused=True),
    Need(("xi_max", "xi_partners", "forbid"), lambda o: o.xi is not None, _without("--xi")),
    Need(
        ("memory_table",),
        lambda o: o.xi is not None and o.unit_memory_gib is not None,
        _without("--xi and --unit-memory"),
        refused=True,
    ),
    Need(("sub_batch",), lambda o: o.memory_table is not None, _without("--memory-table")),
    Need(
        ("strict_reference",),
        lambda o: o.solver.formulation in ("auto", "node"),
        _without("--formulation node"),
        refused=True,
    ),
    Need(("co2_per_kwh",), lambda o: o.node_watts is not None, _without("--node-watts"), refused=True),
    Need(("restart_overlap",), lambda o: bool(o.rules.restart_overhead), _without("--restart-overhead"), refused=True),
    Need(
        ("admission_units",), lambda o: o.rules.admission == "deadline", _without("--admission deadline"), refused=True
    ),
    Need(("deadline_horizon_s",), lambda o: o.deadline_boost > 1, _without("--deadline-boost")),
    Need(
        ("checkpoint_interval_s",),
        lambda o: kind_of(o.policy).rigid,
        lambda o: f"with --policy {o.policy}, whose jobs shrink when they lose nodes",
    ),
    Need(
        ("seed",),
        lambda o: "seed" in constants_of(o.policy) or o.shuffle_submits or o.arrival is not None or _drawn(o.workload),
        lambda o: f"with --policy {o.policy}, without --shuffle-submits, --arrival and --workload",
    ),
    *(
        Need(
            (name,),
            lambda o, name=name: name in constants_of(o.policy),  # type: ignore[misc]
            lambda o: f"with --policy {o.policy}",
        )
        for name in POLICY_SETTINGS
        if name not in ("solver", "seed", *_OF_THE_ENGINE)
    ),
    Need(SOLVER_OPTIONS, lambda o: "solver" in constants_of(o.policy), lambda o: f"with --policy {o.policy}"),
    Need(
        ("verify",),
        lambda o: o.solver.backend != "exact",
        lambda o: "with --backend exact, which is what answers are verified by",
    ),
    Need(
        ("verify",),
        lambda o: o.solver.ties == "solver" or o.solver.gap > 0 or o.solver.strict_reference,
        lambda o: "with --ties canonical, where every decision without sharing is verified anyway",
    ),
    Need(("gap", "ties"), lambda o: o.solver.backend != "exact", lambda o: "with --backend exact"),
    Need(
        ("threads",),
        lambda o: _threaded(o.solver.backend),
        lambda o: f"with --backend {o.solver.backend}, which uses one thread",
    ),
)


def _drawn(workload: str | None) -> bool:
    """Whether a workload draws at random."""
    from bft.models.searches.registry import takes

    return workload is not None and takes(workload, "seed")


def _threaded(backend: str) -> bool:
    """Whether a backend can use more than one thread."""
    from bft.milp import Feature
    from bft.milp.backends.registry import listed

    return backend == "auto" or Feature.THREADS in listed(backend).features


def without_effect(options: Options) -> list[str]:
    """What is given and changes nothing, one sentence an option, in the order of the options."""
    notes = [f"{flag} has no effect {need.where(options)}" for flag, need in _idle(options)]
    solver = options.solver
    if solver.verify and options.policy == "milp-sharing":
        notes.append(
            "--verify checks only decisions in which nobody may share: the exact dynamic programme cannot do others"
        )
    own = "--gap" if solver.gap > 0 else "--strict-reference" if solver.strict_reference else ""
    if own and solver.ties == "canonical" and solver.backend != "exact" and "solver" in constants_of(options.policy):
        notes.append(
            f"--ties canonical has no effect with {own}: the solver's own answers count, and differ by backend"
        )
    return notes


def _idle(options: Options) -> Iterator[tuple[str, Need]]:
    """Options that differ from their defaults but have no effect, by flag, with the reason."""
    published = Need((), lambda o: False, lambda o: "with --compat reference")
    for name, flag in options.changed().items():
        if options.compat == "reference" and name not in _PUBLISHED:
            yield flag, published
            continue
        lacking = next((need for need in NEEDS if name in need.names and not need.holds(options)), None)
        if lacking is not None:
            yield flag, lacking


def kind_of(policy: str) -> Kind:
    """The kind of a policy."""
    from bft.replay.policies import Kind, policy_factory

    return Kind.of(policy_factory(policy))


def constants_of(policy: str) -> tuple[str, ...]:
    """The names of a policy's settings, given by the run or by --set."""
    from bft.replay.policies import policy_factory, policy_options

    return tuple(option.name for option in policy_options(policy_factory(policy)))


def check_backend(options: Options) -> None:
    """Refuse a backend that cannot be used on this machine, where the policy asks one.

    Not checked when options are made: a run may be planned on another machine.
    """
    from bft.milp.backends.registry import backend_names, describe

    if options.solver.backend == "auto" or "solver" not in constants_of(options.policy):
        return
    state = describe(options.solver.backend)
    if not state.available:
        there = ", ".join(name for name in backend_names() if describe(name).available)
        what = f"--backend {options.solver.backend} is not available here ({state.licence}); there are {there}"
        raise InputError(what, hint=state.how_to_get)


def check_constants(policy: str, given: dict[str, str]) -> None:
    """Refuse a constant that a policy does not have, or a value that does not fit it."""
    from bft.replay.policies import parse_constants

    parse_constants(policy, given, [*POLICY_SETTINGS, "interference"])
