"""The table of options: every option of a replay, with all that is known of it, in one place.

An option of the engine stands in `replay/engine/rules.py`, one of the solver in `replay/policies/solver.py`, all others
here; defaults that follow from other options in `presets`. Checks, command line, help, notes on options without effect,
and the reference page are loops over these fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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
    TRUST_PICKLE,
    Condition,
    option,
)
from bft.replay.engine.rules import Rules
from bft.replay.options.presets import (
    JOB_FORMATS,
    PRESETS,
)
from bft.replay.policies.solver import SolverOptions

_FILE: Check = Maybe(Text())


def _policies() -> Iterator[str]:
    # Imported late: `--help` need not wait for it.
    from bft.replay.policies.registry import each_policy_name

    return each_policy_name()


def _given(name: str, *, refused: bool = False) -> Condition:
    """Return the condition that another option is given."""
    return Condition(
        lambda run, _: getattr(run, name) is not None, f"without ${name}", refused
    )


_TRACE_OF_NODES = Condition(
    lambda run, _: run.cluster is None,
    "with $cluster, whose nodes are idle from the first submit on",
)
_OWN_TRACE = Condition(
    lambda run, _: run.node_trace is not None,
    "on the bundled trace, which is in order",
)
_PART_OF_TRACE = Condition(
    lambda run, _: run.node_trace is not None,
    "on the bundled trace, which is used whole",
)
_POLLUX_JOBS = Condition(
    lambda run, _: run.jobs_format == "pollux", "without $jobs_format pollux"
)
_DEADLINES_COUNT = Condition(
    lambda run, _: run.deadline_boost > 1, "without $deadline_boost"
)
_MEMORY_COUNTS = Condition(
    lambda run, _: run.xi is not None and run.unit_memory_gib is not None,
    "without $xi and $unit_memory_gib",
    refused=True,
)
_DRAWN = Condition(
    lambda run, name: name in run.policy_type.settings or run.draws,
    "with $policy {policy}, without $shuffle_submits, $arrival and $workload",
)
_SHARED = _given("xi")
_RETURN_TIME = _given("return_time_s")


@dataclass(frozen=True, init=False)
class OptionTable:
    """The fields of `Options`, but for those of rules and solver."""

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
    trust_pickle: bool = option(
        "--trust-pickle",
        Flag(),
        default=False,
        help=TRUST_PICKLE,
        section=INPUT,
        published=True,
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
        conditions=(_given("jobs", refused=True),),
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
    oversized: Literal["refuse", "skip", "cap", "wait"] = option(
        "--oversized",
        Maybe(Name(("refuse", "skip", "cap", "wait"))),
        shown="refuse for rigid policies, else skip",
        help="Jobs that need more units than are ever idle: refuse, leave out (skip), run them on what there is (cap), "
        "or let them wait in the queue.",
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
        conditions=(_TRACE_OF_NODES, _PART_OF_TRACE),
        published=True,
    )
    node_count: int | None = option(
        "-nN --node-count",
        Maybe(whole(1)),
        help="How many nodes (columns) to use.",
        section=INPUT,
        shown="all",
        conditions=(_TRACE_OF_NODES, _PART_OF_TRACE),
        published=True,
    )
    skip_rows: int | None = option(
        "--skip-rows",
        Maybe(whole(0)),
        help="First rows of the trace to leave out.",
        section=INPUT,
        shown="0; compat: 1000",
        conditions=(_TRACE_OF_NODES, _PART_OF_TRACE),
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
        conditions=(_TRACE_OF_NODES, _given("node_trace", refused=True)),
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
        conditions=(_given("memory_table"),),
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
        conditions=(_given("node_watts", refused=True),),
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
