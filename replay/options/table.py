"""The table of options: every option of a replay, with all that is known of it, in one place.

An option of the engine stands in `replay/engine/rules.py`, one of the solver in `replay/policies/solver.py`, all others
here, with the defaults that follow from other options. Checks, command line, help, notes on options without effect,
and the reference page are loops over these fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bft.models.checks import (
    ARRIVAL,
    ASSIGNMENT,
    COSTS,
    FLAG,
    INPUT,
    JOBS,
    OUTPUT,
    PAIR,
    POLICY,
    POLICY_KNOWS,
    SHARING,
    TEXT,
    TEXTS,
    TRUST_PICKLE,
    WATTS,
    Condition,
    Name,
    Number,
    Several,
    option,
    seconds,
    whole,
)
from bft.models.objectives import OBJECTIVE
from bft.replay.engine.rules import Rules
from bft.replay.policies.solver import SolverOptions

# Other formats of job tables -> their readers.
JOB_FORMATS = {
    "tiresias": "bft.models.workloads.rigid_jobs:read_tiresias_jobs",
    "venus": "bft.models.workloads.rigid_jobs:read_venus_jobs",
    "pollux": "bft.models.workloads.jobs_pollux:read_pollux_jobs",
    "philly": "bft.models.workloads.rigid_jobs:read_philly_jobs",
    "swf": "bft.models.workloads.rigid_jobs:read_swf_jobs",
}
# What Pollux' artifact charges for every start, and Sia's for those of applications that state nothing, seconds.
POLLUX_START_S = 30.0
# Defaults that other options change: options and their values, or nothing for any value -> what holds unless stated.
# The first row that sets an option wins; each of these options has its usual default in its field.
DEFAULTS: tuple[tuple[dict[str, tuple[str, ...]], dict[str, Any]], ...] = (
    (
        {"preset": ("best",)},  # docs/objectives.md
        {
            "tfwd_s": 60.0,
            "objective": "power:0.5+ageing:60:2",
            "max_jobs": 0,
            "backend": "auto",
        },
    ),
    ({"cluster": ()}, {"max_jobs": 0}),
    ({"xi": ()}, {"policy": "milp-sharing"}),
    (
        {"compat": ("pollux", "sia")},
        {"start_overhead_s": POLLUX_START_S, "restart_overhead": POLLUX_START_S},
    ),
    ({"compat": ("sia",)}, {"free_moves": True}),
    # What a restart of a preempted job costs in Lucid's artifact: units, seconds. Lucid itself does not preempt.
    (
        {"compat": ("lucid",), "policy": ("srtf", "tiresias-l")},
        {"restart_overhead": ((8, 40.0), (64, 60.0))},
    ),
)
# Presets -> the values of their options; options given beside a preset take precedence.
PRESETS: dict[str, dict[str, Any]] = {
    value: defaults
    for condition, defaults in DEFAULTS
    for value in condition.get("preset", ())
}
# Constants of the policies as an artifact runs them, by --option compat (docs/decisions/0011-lucid.md, 0022-sia.md).
CONSTANTS: dict[str, dict[str, dict[str, str]]] = {
    "lucid": {
        "lucid": {"compat": "yes"},
        "srtf": {"compat": "yes"},
        "tiresias-l": {
            "compat": "yes",
            "limits": "18000",
            "interval_s": "60",
            "placement": "all",
        },
    },
    "sia": {"sia": {"freeze": "yes", "user_batch": "yes", "quantum": "0.01"}},
}
# By --option compat, how the jobs of Pollux' artifact are read (`read_pollux_jobs`).
POLLUX_READING: dict[str, dict[str, bool]] = {
    "pollux": {"whole_seconds": True},
    "sia": {"whole_seconds": True, "published_fit": True},
}


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
        TEXT,
        help="Node trace: Parquet, CSV, or the published pickle.",
        section=INPUT,
        shown="bundled",
        published=True,
        input_file=True,
    )
    trust_pickle: bool = option(
        "--trust-pickle",
        FLAG,
        default=False,
        help=TRUST_PICKLE,
        section=INPUT,
        published=True,
    )
    job_bounds: str | None = option(
        "-bdfn --job-bounds",
        TEXT,
        help="Published job table: bounds (needs -scfn).",
        section=JOBS,
        published=True,
        input_file=True,
    )
    job_curves: str | None = option(
        "-scfn --job-curves",
        TEXT,
        help="Published job table: scalability (needs -bdfn).",
        section=JOBS,
        published=True,
        input_file=True,
    )
    jobs: str | tuple[str, ...] | None = option(
        "--jobs",
        TEXTS,
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
        TEXT,
        help="Measured application profiles, for --jobs-format pollux.",
        section=JOBS,
        metavar="DIR",
        conditions=(_POLLUX_JOBS,),
        published=True,
        input_file=True,
        rare=True,
    )
    align_jobs: bool = option(
        "--align-jobs",
        FLAG,
        default=False,
        help="Shift all jobs so that the first is submitted when the trace begins.",
        section=JOBS,
        conditions=(_TRACE_OF_NODES,),
        published=True,
        rare=True,
    )
    repeat: int = option(
        "--repeat",
        whole(1, 10_000),
        1,
        help="Take the jobs so many times, one round after the other.",
        section=JOBS,
        metavar="TIMES",
        published=True,
        rare=True,
    )
    cap_units: int | None = option(
        "--cap-units",
        whole(1),
        help="Let no job use more units. One of a single size keeps its duration.",
        section=JOBS,
        metavar="UNITS",
        shown="no limit",
        published=True,
    )
    shuffle_submits: bool = option(
        "--shuffle-submits",
        FLAG,
        default=False,
        help="Deal out the instants of submission to the jobs at random, by --seed.",
        section=JOBS,
        published=True,
        rare=True,
    )
    arrival: str | None = option(
        "--arrival",
        ARRIVAL,
        help="Submit the jobs, in their order, at random instants: RATE an hour on average, by --seed.",
        section=JOBS,
        metavar="poisson:RATE",
        shown="as in the table",
        published=True,
        rare=True,
    )
    scale_arrivals: float = option(
        "--scale-arrivals",
        Number(0, 1e6),
        1.0,
        help="Multiply the time from the first submission to each: 30 spreads 10 hours over 300.",
        section=JOBS,
        metavar="FACTOR",
        published=True,
        rare=True,
    )
    workload: str | None = option(
        "--workload",
        TEXT,
        help="Who submits and stops jobs on the way: hpo, trials that successive halving stops; nas, members "
        "that have children; or another package's (docs/scenarios.md).",
        section=JOBS,
        metavar="NAME[:KEY=VALUE,...]",
        shown="nobody",
    )
    oversized: Literal["refuse", "skip", "cap", "wait"] = option(
        "--oversized",
        Name(("refuse", "skip", "cap", "wait")),
        shown="refuse for rigid policies, else skip",
        help="Jobs that need more units than are ever idle: refuse, leave out (skip), run them on what there is (cap), "
        "or let them wait in the queue.",
        section=JOBS,
        rare=True,
    )
    cluster: str | None = option(
        "--cluster",
        TEXT,
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
        whole(1),
        help="How many nodes (columns) to use.",
        section=INPUT,
        shown="all",
        conditions=(_TRACE_OF_NODES, _PART_OF_TRACE),
        published=True,
    )
    skip_rows: int | None = option(
        "--skip-rows",
        whole(0),
        help="First rows of the trace to leave out.",
        section=INPUT,
        shown="0; compat: 1000",
        conditions=(_TRACE_OF_NODES, _PART_OF_TRACE),
        published=True,
    )
    sort: bool = option(
        "--sort",
        FLAG,
        default=False,
        help="Accept a trace whose rows are not in order of time.",
        section=INPUT,
        conditions=(_TRACE_OF_NODES, _OWN_TRACE),
        published=True,
    )
    node_class: str | None = option(
        "--node-class",
        TEXT,
        help="Use the nodes of one class only, as the trace states it: gpu, or gpu/debug (docs/formats.md).",
        section=INPUT,
        metavar="CLASS",
        shown="all",
        conditions=(_TRACE_OF_NODES, _given("node_trace", refused=True)),
    )
    kinds: str | None = option(
        "--kinds",
        TEXT,
        help="Kinds of units, such as types of GPU: a table of node and kind (docs/formats.md).",
        section=INPUT,
        shown="all alike",
        input_file=True,
        rare=True,
    )
    policy: str = option(
        "--policy",
        Name(_policies),
        "milp",
        help="Who decides; `bft-replay list policies` lists them.",
        section=POLICY,
        metavar="NAME",
        published=True,
    )
    policy_options: tuple[tuple[str, str], ...] = option(
        "--set",
        Several(ASSIGNMENT),
        (),
        help="A constant of the policy; `bft-replay list policies NAME` lists them. May be repeated.",
        section=POLICY,
        metavar="NAME=VALUE",
    )
    preset: Literal["best"] | None = option(
        "--preset",
        Name(tuple(PRESETS)),
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
        OBJECTIVE,
        "own",
        help="What is maximised: a curve (own, the jobs' Os; throughput, samples/s; efficiency, speed-up over "
        "one unit; power:A; useful-time) and factors on it (srpt:B, ageing:HOURS[:CAP]), as in "
        "power:0.5+ageing:60:2; `bft-replay list objectives` says which is for what.",
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
        rare=True,
    )
    deadline_boost: float = option(
        "--deadline-boost",
        Number(1),
        1.0,
        help="Factor on a job's weight at its deadline; 1: deadlines do not count.",
        section=POLICY,
        conditions=(POLICY_KNOWS,),
        for_policy=True,
        rare=True,
    )
    deadline_horizon_s: float = option(
        "--deadline-horizon",
        seconds(),
        86_400.0,
        help="Seconds before its deadline at which a job's weight starts to rise.",
        section=POLICY,
        conditions=(_DEADLINES_COUNT, POLICY_KNOWS),
        for_policy=True,
        rare=True,
    )
    seed: int = option(
        "--seed",
        whole(0),
        0,
        help="Of what is drawn at random: arrivals, shuffled jobs, --workload, policies that search so.",
        section=JOBS,
        conditions=(_DRAWN,),
        for_policy=True,
        published=True,
    )
    xi: str | None = option(
        "--xi",
        TEXT,
        help="xi table: who slows whom down by how much when they share units.",
        section=SHARING,
        input_file=True,
    )
    xi_max: float | None = option(
        "--xi-max",
        Number(1),
        help="Share only where both ratios are at most this.",
        section=SHARING,
        shown="no limit",
        conditions=(_SHARED,),
        rare=True,
    )
    xi_partners: int = option(
        "--xi-partners",
        whole(1),
        3,
        help="Best partners considered per job.",
        section=SHARING,
        conditions=(_SHARED, POLICY_KNOWS),
        for_policy=True,
        rare=True,
    )
    unit_memory_gib: float | None = option(
        "--unit-memory",
        Number(0, above=True),
        help="Memory of a unit, GiB: jobs must fit, alone and together.",
        section=SHARING,
        shown="any",
        for_policy=True,
        rare=True,
    )
    memory_table: str | None = option(
        "--memory-table",
        TEXT,
        help="Memory by model and batch size: who does not fit may share with a smaller batch.",
        section=SHARING,
        conditions=(_MEMORY_COUNTS,),
        input_file=True,
        rare=True,
    )
    sub_batch: float = option(
        "--sub-batch",
        Number(0, 1, above=True),
        0.5,
        help="Least share of its goodput that a job keeps with a smaller batch.",
        section=SHARING,
        conditions=(_given("memory_table"),),
        rare=True,
    )
    forbid: tuple[tuple[str, str], ...] = option(
        "--forbid",
        Several(PAIR),
        (),
        help="Two models that may not share; may be repeated.",
        section=SHARING,
        metavar="MODEL,MODEL",
        conditions=(_SHARED,),
        rare=True,
    )
    compat: Literal["reference", "lucid", "pollux", "sia"] | None = option(
        "--compat",
        Name(("reference", "lucid", "pollux", "sia")),
        help="Account as the published replayer; as Lucid's artifact; as Pollux' or Sia's (30 s a start, or what "
        "the application states).",
        section=COSTS,
        published=True,
        rare=True,
    )
    dedicated: bool = option(
        "--no-u",
        FLAG,
        default=True,
        help="Skip the second replay, on dedicated nodes, that U needs.",
        section=OUTPUT,
        published=True,
    )
    node_watts: tuple[float, float] | None = option(
        "--node-watts",
        WATTS,
        help="Watts of an idle and of a busy node: reports the energy.",
        section=OUTPUT,
        metavar="IDLE,BUSY",
        shown="not reported",
    )
    price_per_node_hour: float | None = option(
        "--price-per-node-hour",
        Number(0, 1e9),
        help="Reports what the used node-hours are worth.",
        section=OUTPUT,
        metavar="PRICE",
        shown="not reported",
    )
    co2_per_kwh: float | None = option(
        "--co2-per-kwh",
        Number(0, 1e5),
        help="Grams of CO2 per kWh: reports the CO2 (needs --node-watts).",
        section=OUTPUT,
        metavar="GRAMS",
        shown="not reported",
        conditions=(_given("node_watts", refused=True),),
    )
    host_price: float | None = option(
        "--host-price",
        Number(0, 1e9),
        help="What a node-hour that the machine's own jobs wait is worth, in node-hours of training: reports what "
        "harvesting yields beyond that.",
        section=OUTPUT,
        metavar="PRICE",
        shown="not reported",
        conditions=(_RETURN_TIME,),
    )
