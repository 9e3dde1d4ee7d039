"""The options of `bft-replay replay`, by what they are about."""

from __future__ import annotations

from typing import Any

import click

from bft.models.checks import Text
from bft.replay.cli.parameters import Checked, Decorator, Seconds, YesNo, option, section, together, use_config
from bft.replay.cli.solver_options import solver_options
from bft.replay.options.options import DECISION_LIMIT_S, FIELDS
from bft.replay.policies.solver import SolverOptions


def _of(name: str, *flags: str, **more: Any) -> Decorator:
    field = FIELDS[name]
    return option(name, *flags, check=field.check, default=field.default, **more)


_trace = section(
    "Input",
    _of(
        "node_trace",
        "-ndmap",
        "--node-trace",
        metavar="FILE",
        help="Node trace: Parquet, CSV, or the published pickle. [bundled]",
    ),
    _of(
        "cluster",
        "--cluster",
        metavar="NxU|FILE",
        help="A fixed cluster instead of a trace: N nodes of U units; or a file with virtual clusters: "
        "vc, nodes, units_per_node.",
    ),
    _of("first_node", "-nis", "--first-node", help="First node (column) to use."),
    _of("node_count", "-nN", "--node-count", help="How many nodes (columns) to use. [all]"),
    _of("skip_rows", "--skip-rows", help="First rows of the trace to leave out. [0; compat: 1000]"),
    _of("sort", "--sort", help="Accept a trace whose rows are not in order of time."),
    _of(
        "walltimes",
        "--walltimes",
        metavar="FILE",
        help="What the batch scheduler knew of its jobs, as `ingest --walltimes` writes it, for policies that look at "
        "how long nodes are expected to stay idle (docs/walltimes.md).",
    ),
    _of(
        "kinds",
        "--kinds",
        metavar="FILE",
        help="Kinds of units, such as types of GPU: a table of node and kind (docs/formats.md). [all alike]",
    ),
)
_jobs = section(
    "Jobs",
    _of("job_bounds", "-bdfn", "--job-bounds", metavar="FILE", help="Published job table: bounds (needs -scfn)."),
    _of("job_curves", "-scfn", "--job-curves", metavar="FILE", help="Published job table: scalability (needs -bdfn)."),
    _of("jobs", "--jobs", metavar="FILE", help="Job table in one file, instead of -bdfn and -scfn."),
    _of("jobs_format", "--jobs-format", help="What --jobs is written as."),
    _of(
        "applications",
        "--applications",
        metavar="DIR",
        help="Measured application profiles, for --jobs-format pollux.",
    ),
    _of("align_jobs", "--align-jobs", help="Shift all jobs so that the first is submitted when the trace begins."),
    _of("repeat", "--repeat", metavar="TIMES", help="Take the jobs so many times, one round after the other."),
    _of(
        "cap_units",
        "--cap-units",
        metavar="UNITS",
        help="Let no job use more units. One of a single size keeps its duration. [no limit]",
    ),
    _of(
        "shuffle_submits",
        "--shuffle-submits",
        help="Deal out the instants of submission to the jobs at random, by --seed.",
    ),
    _of(
        "arrival",
        "--arrival",
        metavar="poisson:RATE",
        help="Submit the jobs, in their order, at random instants: RATE an hour on average, by --seed. "
        "[as in the table]",
    ),
    _of(
        "scale_arrivals",
        "--scale-arrivals",
        metavar="FACTOR",
        help="Multiply the time from the first submission to each: 30 spreads 10 hours over 300.",
    ),
    _of(
        "workload",
        "--workload",
        metavar="NAME[:KEY=VALUE,...]",
        help="Who submits and stops jobs on the way: hpo, trials that successive halving stops; nas, members that have "
        "children; or another package's (docs/scenarios.md). [nobody]",
    ),
    _of(
        "oversized",
        "--oversized",
        help="Jobs that need more units than are ever idle: refuse, leave out, or run them on what there is. "
        "[refuse for rigid policies, else skip]",
    ),
    _of(
        "seed",
        "--seed",
        help="Of what is drawn at random: --shuffle-submits, --arrival, --workload, policies that search so.",
    ),
)
_policy = section(
    "Policy",
    _of(
        "policy",
        "--policy",
        metavar="NAME",
        help="Who decides; `bft-replay policies` lists them. [milp; with --xi milp-sharing]",
    ),
    _of(
        "policy_options",
        "--set",
        metavar="NAME=VALUE",
        help="A constant of the policy; `bft-replay policies NAME` lists them. May be repeated.",
    ),
    _of(
        "policy_time_limit_s",
        "--policy-time-limit",
        help="Stop the replay when the policy takes longer for one decision, seconds. [never]",
    ),
    _of(
        "preset",
        "--preset",
        help="Values for -maxJ, -Tfwd, --objective and --backend that go together; those that are given win. "
        "best: as much training as possible, nobody forgotten. [as published]",
    ),
    _of(
        "tfwd_s",
        "-Tfwd",
        "--forward-window",
        help="Forward-looking window: seconds over which a new allocation must pay back. [10; with --preset best 60]",
    ),
    _of(
        "objective",
        "--objective",
        help="What is maximised: a curve (own, the jobs' Os; throughput, samples/s; efficiency, speed-up over one unit;"
        " power:A; useful-time) and factors on it (srpt:B, ageing:HOURS[:CAP]), as in power:0.5+ageing:60:2. "
        "[own; with --preset best as above]",
    ),
    _of(
        "curves",
        "--curves",
        help="What the decision knows of the jobs' curves: everything (known), what it sees while they run (learn), or "
        "what is measured at a few sizes first (profile). Jobs progress by their true curves.",
    ),
    _of(
        "deadline_boost",
        "--deadline-boost",
        help="Factor on a job's weight at its deadline; 1: deadlines do not count.",
    ),
    _of(
        "deadline_horizon_s",
        "--deadline-horizon",
        help="Seconds before its deadline at which a job's weight starts to rise.",
    ),
    click.option(
        "-mip",
        "--mip",
        type=YesNo(),
        metavar="BOOL",
        default=True,
        show_default=True,
        help="Decide by MILP; 0 is --policy equal-share.",
    ),
)
_admission = section(
    "Policy",
    _of(
        "admission",
        "--admission",
        help="Admit all jobs, or one with a deadline only if it and all that were admitted can keep theirs.",
    ),
    _of(
        "admission_units",
        "--admission-units",
        metavar="UNITS",
        help="Units that --admission deadline counts on. [those that are idle at the submission]",
    ),
)
_solver = section(
    "Solver",
    solver_options(SolverOptions(time_limit_s=DECISION_LIMIT_S), backend="cbc; with --preset best auto"),
    _of(
        "verify",
        "--verify",
        help="Check every answer by the exact dynamic programme (DP), also with --ties solver or --gap.",
    ),
)
_ratios = section(
    "Sharing",
    _of("xi", "--xi", metavar="FILE", help="xi table: who slows whom down by how much when they share units."),
    _of("xi_max", "--xi-max", help="Share only where both ratios are at most this. [no limit]"),
    _of(
        "unit_memory_gib",
        "--unit-memory",
        help="Memory of a unit, GiB: jobs must fit, alone and together. [any]",
    ),
    _of(
        "memory_table",
        "--memory-table",
        metavar="FILE",
        help="Memory by model and batch size: who does not fit may share with a smaller batch.",
    ),
    _of("sub_batch", "--sub-batch", help="Least share of its goodput that a job keeps with a smaller batch."),
    _of("forbid", "--forbid", metavar="MODEL,MODEL", help="Two models that may not share; may be repeated."),
)
_sharing = section("Sharing", _ratios, _of("xi_partners", "--xi-partners", help="Best partners considered per job."))
_in_play = section(
    "Policy",
    _of(
        "max_jobs",
        "-maxJ",
        "--max-jobs",
        help="Jobs in play at once, 0 for all; later ones wait. [10; with --cluster or --preset best all]",
    ),
)
_rules = section(
    "Costs and rules",
    _of(
        "cost_model",
        "--cost-model",
        help="The cost of a rescale: T x rate off the progress, or T seconds without progress.",
    ),
    _of("events", "--events", help="Decide at node events, submits and finishes, or at node events only."),
    _of("min_interval_s", "--min-interval", help="Least time between two decisions, seconds."),
    _of(
        "checkpoint_interval_s",
        "--checkpoint-interval",
        help="Seconds between two checkpoints of a job that cannot shrink.",
    ),
    _of(
        "start_overhead_s",
        "--start-overhead",
        help="Seconds without progress after a job's first start. [0; with --compat pollux 30]",
    ),
    _of(
        "restart_overhead",
        "--restart-overhead",
        metavar="SECONDS|UNITS:SECONDS,...",
        help="The same after later starts, by size: 8:40,64:60 is 40 s up to 8 units, 60 above. "
        "[0; with --compat pollux 30]",
    ),
    _of(
        "restart_overlap",
        "--restart-overlap",
        metavar="SHARE",
        help="Part of it that passes while another job still runs on the units; 1: all, if none of them was free.",
    ),
    _of(
        "network_interference",
        "--network-interference",
        metavar="SHARE",
        help="Part of the rate that jobs on several nodes lose where two of them share a node.",
    ),
    _of(
        "compat", "--compat", help="Account as the published replayer; as Lucid's artifact; as Pollux' (30 s a start)."
    ),
)
_run = section(
    "Output",
    click.option("-name", "--name", type=Checked(Text()), default="debug", show_default=True, help="Name of the run."),
    click.option(
        "-print",
        "--print",
        "print_",
        type=YesNo(),
        metavar="BOOL",
        default=True,
        show_default=True,
        help="Print progress and summary; 0 writes them to replay.log in the run directory.",
    ),
    click.option(
        "--live",
        is_flag=True,
        help="Show how the replay stands: units, jobs, rate, last decision; on a terminal as a table.",
    ),
    _of("bound", "--bound", help="Report the outcome as a share of its upper bound."),
    _of(
        "node_watts",
        "--node-watts",
        metavar="IDLE,BUSY",
        help="Watts of an idle and of a busy node: reports the energy. [not reported]",
    ),
    _of(
        "price_per_node_hour",
        "--price-per-node-hour",
        metavar="PRICE",
        help="Reports what the used node-hours are worth. [not reported]",
    ),
    _of(
        "co2_per_kwh",
        "--co2-per-kwh",
        metavar="GRAMS",
        help="Grams of CO2 per kWh: reports the CO2 (needs --node-watts). [not reported]",
    ),
    click.option("--no-u", is_flag=True, help="Skip the second replay, on dedicated nodes, that U needs."),
    click.option(
        "--checkpoint-every",
        "checkpoint_every_s",
        type=Seconds(zero=True),
        metavar="SECONDS",
        help="Save the state so often; the same command then resumes a killed replay. [never]",
    ),
    click.option("--out", metavar="DIR", type=Checked(Text()), help="Run directory. [NAME-itrOut]"),
    click.option("--force", is_flag=True, help="Replace an earlier run in the run directory."),
    click.option("--json", "as_json", is_flag=True, help="Write the summary as JSON to standard output."),
    click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=use_config,
        help="TOML file with options by their long names; flags win.",
    ),
)
replay_options = together(_trace, _jobs, _policy, _in_play, _admission, _solver, _sharing, _rules, _run)
# Those on which bounds depend, whoever decides.
bound_options = together(_trace, _jobs, _ratios, _in_play)
