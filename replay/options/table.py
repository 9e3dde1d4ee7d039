"""The table of options: every option of a replay, with all that is known of it, in one place.

An option of the engine stands in `replay/engine/rules.py`, one of the solver in `replay/policies/solver.py`, all others
here; defaults that follow from other options in `presets`. Checks, command line, help, notes on options without effect,
and the reference page are loops over these fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from bft.models import InputError, Objective
from bft.models.checks import (
    Arrival,
    Assignment,
    Check,
    Flag,
    Maybe,
    Name,
    Number,
    OneOrMore,
    Pair,
    Several,
    Text,
    Watts,
    seconds,
    whole,
)
from bft.models.objectives import ObjectiveText
from bft.models.option_fields import (
    COSTS,
    INPUT,
    JOBS,
    OUTPUT,
    POLICY,
    POLICY_KNOWS,
    SHARING,
    Condition,
    OptionField,
    option,
    option_fields,
)
from bft.models.searches.workload_api import Workload, make_workload, takes
from bft.replay.engine.rules import Interference, Rules
from bft.replay.options.presets import (
    CONSTANTS,
    DECISION_LIMIT_S,
    DEFAULTS,
    JOB_FORMATS,
    PRESETS,
)
from bft.replay.policies.solver import SolverOptions

if TYPE_CHECKING:
    from bft.replay.engine.policy_api import Policy
    from bft.replay.policies.registry import PolicyType

_FILE: Check = Maybe(Text())


def _policies() -> Iterator[str]:
    # Imported late: `--help` need not wait for it.
    from bft.replay.policies.registry import each_policy_name

    return each_policy_name()


def _given(name: str, flag: str, *, refused: bool = False) -> Condition:
    """Return the condition that another option is given."""
    return Condition(
        lambda run, _: getattr(run, name) is not None, f"without {flag}", refused
    )


_TRACE_OF_NODES = Condition(
    lambda run, _: run.cluster is None,
    "with --cluster, whose nodes are idle from the first submit on",
)
_OWN_TRACE = Condition(
    lambda run, _: run.node_trace is not None,
    "on the bundled trace, which is in order",
)
_POLLUX_JOBS = Condition(
    lambda run, _: run.jobs_format == "pollux", "without --jobs-format pollux"
)
_DEADLINES_COUNT = Condition(
    lambda run, _: run.deadline_boost > 1, "without --deadline-boost"
)
_MEMORY_COUNTS = Condition(
    lambda run, _: run.xi is not None and run.unit_memory_gib is not None,
    "without --xi and --unit-memory",
    refused=True,
)
_DRAWN = Condition(
    lambda run, name: name in run.policy_type.settings or run.draws,
    "with --policy {policy}, without --shuffle-submits, --arrival and --workload",
)
_SHARED = _given("xi", "--xi")
_RETURN_TIME = Condition(
    lambda run, _: run.rules.return_time_s is not None, "without --return-time"
)
_PUBLISHED = Condition(lambda run, _: False, "with --compat reference")


@dataclass(frozen=True, init=False)
class OptionTable:
    """The options of a replay and what follows from them; `Options` makes them."""

    rules: Rules
    solver: SolverOptions
    node_trace: str | None = option(
        "-ndmap --node-trace",
        _FILE,
        help="Node trace: Parquet, CSV, or the published pickle.",
        section=INPUT,
        shown="bundled",
        published=True,
        input_file=True,
    )
    job_bounds: str | None = option(
        "-bdfn --job-bounds",
        _FILE,
        help="Published job table: bounds (needs -scfn).",
        section=JOBS,
        published=True,
        input_file=True,
    )
    job_curves: str | None = option(
        "-scfn --job-curves",
        _FILE,
        help="Published job table: scalability (needs -bdfn).",
        section=JOBS,
        published=True,
        input_file=True,
    )
    jobs: str | tuple[str, ...] | None = option(
        "--jobs",
        Maybe(OneOrMore(Text())),
        help="Job table in one file, instead of -bdfn and -scfn. Several are joined: their names must differ.",
        section=JOBS,
        published=True,
        input_file=True,
    )
    jobs_format: str = option(
        "--jobs-format",
        Name(("native", *JOB_FORMATS)),
        "native",
        help="What --jobs is written as.",
        section=JOBS,
        conditions=(_given("jobs", "--jobs", refused=True),),
        published=True,
    )
    applications: str | None = option(
        "--applications",
        _FILE,
        help="Measured application profiles, for --jobs-format pollux.",
        section=JOBS,
        metavar="DIR",
        conditions=(_POLLUX_JOBS,),
        published=True,
        input_file=True,
    )
    align_jobs: bool = option(
        "--align-jobs",
        Flag(),
        default=False,
        help="Shift all jobs so that the first is submitted when the trace begins.",
        section=JOBS,
        conditions=(_TRACE_OF_NODES,),
        published=True,
    )
    repeat: int = option(
        "--repeat",
        Number(1, 10_000, whole=True),
        1,
        help="Take the jobs so many times, one round after the other.",
        section=JOBS,
        metavar="TIMES",
        published=True,
    )
    cap_units: int | None = option(
        "--cap-units",
        Maybe(whole(1)),
        help="Let no job use more units. One of a single size keeps its duration.",
        section=JOBS,
        metavar="UNITS",
        shown="no limit",
        published=True,
    )
    shuffle_submits: bool = option(
        "--shuffle-submits",
        Flag(),
        default=False,
        help="Deal out the instants of submission to the jobs at random, by --seed.",
        section=JOBS,
        published=True,
    )
    arrival: str | None = option(
        "--arrival",
        Maybe(Arrival()),
        help="Submit the jobs, in their order, at random instants: RATE an hour on average, by --seed.",
        section=JOBS,
        metavar="poisson:RATE",
        shown="as in the table",
        published=True,
    )
    scale_arrivals: float = option(
        "--scale-arrivals",
        Number(0, 1e6),
        1.0,
        help="Multiply the time from the first submission to each: 30 spreads 10 hours over 300.",
        section=JOBS,
        metavar="FACTOR",
        published=True,
    )
    workload: str | None = option(
        "--workload",
        Maybe(Text()),
        help="Who submits and stops jobs on the way: hpo, trials that successive halving stops; nas, members "
        "that have children; or another package's (docs/scenarios.md).",
        section=JOBS,
        metavar="NAME[:KEY=VALUE,...]",
        shown="nobody",
    )
    oversized: Literal["refuse", "skip", "cap"] = option(
        "--oversized",
        Maybe(Name(("refuse", "skip", "cap"))),
        shown="refuse for rigid policies, else skip",
        help="Jobs that need more units than are ever idle: refuse, leave out, or run them on what there is.",
        section=JOBS,
    )
    cluster: str | None = option(
        "--cluster",
        _FILE,
        help="A fixed cluster instead of a trace: N nodes of U units, with kinds of units as 6x4:t4+2x8:a100; or a "
        "file with virtual clusters: vc, nodes, units_per_node.",
        section=INPUT,
        metavar="NxU[:KIND+...]|FILE",
        input_file=True,
    )
    first_node: int = option(
        "-nis --first-node",
        whole(0),
        0,
        help="First node (column) to use.",
        section=INPUT,
        conditions=(_TRACE_OF_NODES,),
        published=True,
    )
    node_count: int | None = option(
        "-nN --node-count",
        Maybe(whole(1)),
        help="How many nodes (columns) to use.",
        section=INPUT,
        shown="all",
        conditions=(_TRACE_OF_NODES,),
        published=True,
    )
    skip_rows: int | None = option(
        "--skip-rows",
        Maybe(whole(0)),
        help="First rows of the trace to leave out.",
        section=INPUT,
        shown="0; compat: 1000",
        conditions=(_TRACE_OF_NODES,),
        published=True,
    )
    sort: bool = option(
        "--sort",
        Flag(),
        default=False,
        help="Accept a trace whose rows are not in order of time.",
        section=INPUT,
        conditions=(_TRACE_OF_NODES, _OWN_TRACE),
        published=True,
    )
    node_class: str | None = option(
        "--node-class",
        Maybe(Text()),
        help="Use the nodes of one class only, as the trace states it: gpu, or gpu/debug (docs/formats.md).",
        section=INPUT,
        metavar="CLASS",
        shown="all",
        conditions=(_TRACE_OF_NODES, _given("node_trace", "-ndmap", refused=True)),
    )
    kinds: str | None = option(
        "--kinds",
        _FILE,
        help="Kinds of units, such as types of GPU: a table of node and kind (docs/formats.md).",
        section=INPUT,
        shown="all alike",
        input_file=True,
    )
    policy: str = option(
        "--policy",
        Name(_policies),
        "milp",
        help="Who decides; `bft-replay policies` lists them.",
        section=POLICY,
        metavar="NAME",
        published=True,
    )
    policy_options: tuple[tuple[str, str], ...] = option(
        "--set",
        Several(Assignment()),
        (),
        help="A constant of the policy; `bft-replay policies NAME` lists them. May be repeated.",
        section=POLICY,
        metavar="NAME=VALUE",
    )
    preset: Literal["best"] | None = option(
        "--preset",
        Maybe(Name(tuple(PRESETS))),
        help="Values for -maxJ, -Tfwd, --objective and --backend that go together; those that are given win. "
        "best: as much training as possible, nobody forgotten.",
        section=POLICY,
        shown="as published",
    )
    tfwd_s: float = option(
        "-Tfwd --forward-window",
        seconds(),
        10.0,  # as published
        help="Forward-looking window: seconds over which a new allocation must pay back.",
        section=POLICY,
        conditions=(POLICY_KNOWS,),
        for_policy=True,
        published=True,
    )
    objective: str = option(
        "--objective",
        ObjectiveText(),
        "own",
        help="What is maximised: a curve (own, the jobs' Os; throughput, samples/s; efficiency, speed-up over "
        "one unit; power:A; useful-time) and factors on it (srpt:B, ageing:HOURS[:CAP]), as in "
        "power:0.5+ageing:60:2.",
        section=POLICY,
        conditions=(POLICY_KNOWS,),
        for_policy=True,
    )
    curves: Literal["known", "learn", "profile"] = option(
        "--curves",
        Name(("known", "learn", "profile")),
        "known",
        help="What the decision knows of the jobs' curves: everything (known), what it sees while they run "
        "(learn), or what is measured at a few sizes first (profile). Jobs progress by their true curves.",
        section=POLICY,
        conditions=(POLICY_KNOWS,),
        for_policy=True,
    )
    deadline_boost: float = option(
        "--deadline-boost",
        Number(1),
        1.0,
        help="Factor on a job's weight at its deadline; 1: deadlines do not count.",
        section=POLICY,
        conditions=(POLICY_KNOWS,),
        for_policy=True,
    )
    deadline_horizon_s: float = option(
        "--deadline-horizon",
        seconds(),
        86_400.0,
        help="Seconds before its deadline at which a job's weight starts to rise.",
        section=POLICY,
        conditions=(_DEADLINES_COUNT, POLICY_KNOWS),
        for_policy=True,
    )
    seed: int = option(
        "--seed",
        whole(0),
        0,
        help="Of what is drawn at random: --shuffle-submits, --arrival, --workload, policies that search so.",
        section=JOBS,
        conditions=(_DRAWN,),
        for_policy=True,
        published=True,
    )
    xi: str | None = option(
        "--xi",
        _FILE,
        help="xi table: who slows whom down by how much when they share units.",
        section=SHARING,
        input_file=True,
    )
    xi_max: float | None = option(
        "--xi-max",
        Maybe(Number(1)),
        help="Share only where both ratios are at most this.",
        section=SHARING,
        shown="no limit",
        conditions=(_SHARED,),
    )
    xi_partners: int = option(
        "--xi-partners",
        whole(1),
        3,
        help="Best partners considered per job.",
        section=SHARING,
        conditions=(_SHARED, POLICY_KNOWS),
        for_policy=True,
    )
    unit_memory_gib: float | None = option(
        "--unit-memory",
        Maybe(Number(0, above=True)),
        help="Memory of a unit, GiB: jobs must fit, alone and together.",
        section=SHARING,
        shown="any",
        for_policy=True,
    )
    memory_table: str | None = option(
        "--memory-table",
        _FILE,
        help="Memory by model and batch size: who does not fit may share with a smaller batch.",
        section=SHARING,
        conditions=(_MEMORY_COUNTS,),
        input_file=True,
    )
    sub_batch: float = option(
        "--sub-batch",
        Number(0, 1, above=True),
        0.5,
        help="Least share of its goodput that a job keeps with a smaller batch.",
        section=SHARING,
        conditions=(_given("memory_table", "--memory-table"),),
    )
    forbid: tuple[tuple[str, str], ...] = option(
        "--forbid",
        Several(Pair()),
        (),
        help="Two models that may not share; may be repeated.",
        section=SHARING,
        metavar="MODEL,MODEL",
        conditions=(_SHARED,),
    )
    compat: Literal["reference", "lucid", "pollux", "sia"] | None = option(
        "--compat",
        Maybe(Name(("reference", "lucid", "pollux", "sia"))),
        help="Account as the published replayer; as Lucid's artifact; as Pollux' or Sia's (30 s a start, or what "
        "the application states).",
        section=COSTS,
        published=True,
    )
    dedicated: bool = option(
        "--no-u",
        Flag(),
        default=True,
        help="Skip the second replay, on dedicated nodes, that U needs.",
        section=OUTPUT,
        published=True,
    )
    bound: bool = option(
        "--bound",
        Flag(),
        default=False,
        help="Report the outcome as a share of its upper bound.",
        section=OUTPUT,
    )
    node_watts: tuple[float, float] | None = option(
        "--node-watts",
        Maybe(Watts()),
        help="Watts of an idle and of a busy node: reports the energy.",
        section=OUTPUT,
        metavar="IDLE,BUSY",
        shown="not reported",
    )
    price_per_node_hour: float | None = option(
        "--price-per-node-hour",
        Maybe(Number(0, 1e9)),
        help="Reports what the used node-hours are worth.",
        section=OUTPUT,
        metavar="PRICE",
        shown="not reported",
    )
    co2_per_kwh: float | None = option(
        "--co2-per-kwh",
        Maybe(Number(0, 1e5)),
        help="Grams of CO2 per kWh: reports the CO2 (needs --node-watts).",
        section=OUTPUT,
        metavar="GRAMS",
        shown="not reported",
        conditions=(_given("node_watts", "--node-watts", refused=True),),
    )
    host_price: float | None = option(
        "--host-price",
        Maybe(Number(0, 1e9)),
        help="What a node-hour that the machine's own jobs wait is worth, in node-hours of training: reports what "
        "harvesting yields beyond that.",
        section=OUTPUT,
        metavar="PRICE",
        shown="not reported",
        conditions=(_RETURN_TIME,),
    )

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
        from bft.replay.engine.policy_api import Kind

        kind = Kind.of(self.make_policy())
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
        if kind.clairvoyant and not self.policy_type.kind.clairvoyant:
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
    rigid = _policy_type(policy).kind.rigid
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
