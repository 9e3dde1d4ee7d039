"""`bft-replay [replay]`: the main job."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from bft.models.checks import Text
from bft.replay.cli.main import DOUBLE_S, EXIT_DEGRADED, EXIT_INTERRUPTED, command_line
from bft.replay.cli.parameters import Checked, NamesWholeOption, Seconds, YesNo, option, use_config
from bft.replay.cli.solver_options import solver_options
from bft.replay.options.options import Options

if TYPE_CHECKING:
    from bft.replay.cli.progress import Bar, PlainLines


_of = partial(option, Options)


@click.command(cls=NamesWholeOption, short_help="Replay a node trace (the default command).")
@_of(
    "node_trace",
    "-ndmap",
    "--node-trace",
    metavar="FILE",
    help="Node trace: Parquet, CSV, or the published pickle. [bundled]",
)
@_of("job_bounds", "-bdfn", "--job-bounds", metavar="FILE", help="Published job table: bounds (needs -scfn).")
@_of("job_curves", "-scfn", "--job-curves", metavar="FILE", help="Published job table: scalability (needs -bdfn).")
@_of("jobs", "--jobs", metavar="FILE", help="Job table in one file, instead of -bdfn and -scfn.")
@_of("jobs_format", "--jobs-format", help="What --jobs is written as.")
@_of("applications", "--applications", metavar="DIR", help="Measured application profiles, for --jobs-format pollux.")
@_of("align_jobs", "--align-jobs", help="Shift all jobs so that the first is submitted when the trace begins.")
@_of(
    "oversized",
    "--oversized",
    help="Jobs that need more units than are ever idle: refuse, leave out, or run them on what there is. "
    "[refuse for rigid policies, else skip]",
)
@_of(
    "cluster",
    "--cluster",
    metavar="NxU|FILE",
    help="A fixed cluster instead of a trace: N nodes of U units; or a file with virtual clusters: "
    "vc, nodes, units_per_node.",
)
@_of(
    "tfwd_s",
    "-Tfwd",
    "--forward-window",
    help="Forward-looking window: seconds over which a new allocation must pay back.",
)
@_of("time_limit_s", "-optTL", "--time-limit", help="Time limit of one decision, seconds.")
@_of(
    "max_jobs", "-maxJ", "--max-jobs", help="Jobs in play at once, 0 for all; later ones wait. [10; with --cluster all]"
)
@_of("first_node", "-nis", "--first-node", help="First node (column) to use.")
@_of("node_count", "-nN", "--node-count", help="How many nodes (columns) to use. [all]")
@click.option("-name", "--name", type=Checked(Text()), default="debug", show_default=True, help="Name of the run.")
@click.option(
    "-mip",
    "--mip",
    type=YesNo(),
    metavar="BOOL",
    default=True,
    show_default=True,
    help="Decide by MILP; 0 is --policy equal-share.",
)
@click.option(
    "-print",
    "--print",
    "print_",
    type=YesNo(),
    metavar="BOOL",
    default=True,
    show_default=True,
    help="Tell progress and summary; 0 writes them to replay.log in the run directory.",
)
@_of(
    "policy",
    "--policy",
    metavar="NAME",
    help="Who decides; `bft-replay policies` lists them. [milp; with --xi milp-sharing]",
)
@_of(
    "policy_options",
    "--set",
    metavar="NAME=VALUE",
    help="A constant of the policy; `bft-replay policies NAME` lists them. May be repeated.",
)
@_of(
    "policy_time_limit_s",
    "--policy-time-limit",
    help="Stop the replay when the policy takes longer for one decision, seconds. [never]",
)
@_of("seed", "--seed", help="Of policies that search at random.")
@solver_options(default_backend="cbc")
@_of("verify", "--verify", help="Hold every answer against the exact programme, also with --ties solver or --gap.")
@_of("objective", "--objective", help="What is maximised: the jobs' Os, samples/s, or speed-up over one unit.")
@_of("deadline_boost", "--deadline-boost", help="Factor on a job's weight at its deadline; 1: deadlines do not count.")
@_of(
    "deadline_horizon_s",
    "--deadline-horizon",
    help="Seconds before its deadline at which a job's weight starts to rise.",
)
@_of("xi", "--xi", metavar="FILE", help="xi table: who slows whom down by how much when they share units.")
@_of("xi_max", "--xi-max", help="Share only where both ratios are at most this. [no limit]")
@_of("xi_partners", "--xi-partners", help="Best partners considered per job.")
@_of("unit_memory_gib", "--unit-memory", help="Memory of a unit, GiB: share only what fits together. [not looked at]")
@_of(
    "memory_table",
    "--memory-table",
    metavar="FILE",
    help="Memory by model and batch size: who does not fit may share with a smaller batch.",
)
@_of("sub_batch", "--sub-batch", help="Least share of its goodput that a job keeps with a smaller batch.")
@_of("forbid", "--forbid", metavar="MODEL,MODEL", help="Two models that may not share; may be repeated.")
@_of(
    "cost_model",
    "--cost-model",
    help="The cost of a rescale: T x rate off the progress, or T seconds without progress.",
)
@_of("events", "--events", help="Decide at node events, submits and finishes, or at node events only.")
@_of("min_interval_s", "--min-interval", help="Least time between two decisions, seconds.")
@_of(
    "checkpoint_interval_s",
    "--checkpoint-interval",
    help="Seconds between two checkpoints of a job that cannot shrink.",
)
@_of(
    "start_overhead_s",
    "--start-overhead",
    help="Seconds without progress after a job's first start. [0; with --compat pollux 30]",
)
@_of(
    "restart_overhead",
    "--restart-overhead",
    metavar="SECONDS|UNITS:SECONDS,...",
    help="The same after later starts, by size: 8:40,64:60 is 40 s up to 8 units, 60 above. "
    "[0; with --compat pollux 30]",
)
@_of("skip_rows", "--skip-rows", help="First rows of the trace to leave out. [0; compat: 1000]")
@_of("sort", "--sort", help="Accept a trace whose rows are not in order of time.")
@_of("compat", "--compat", help="Account as the published replayer; as Lucid's artifact; as Pollux' (30 s a start).")
@click.option("--no-u", is_flag=True, help="Skip the second replay, on dedicated nodes, that U needs.")
@click.option(
    "--checkpoint-every",
    "checkpoint_every_s",
    type=Seconds(zero=True),
    metavar="SECONDS",
    help="Save the state so often; the same command then resumes a killed replay. [never]",
)
@click.option("--out", metavar="DIR", type=Checked(Text()), help="Run directory. [NAME-itrOut]")
@click.option("--force", is_flag=True, help="Replace an earlier run in the run directory.")
@click.option("--json", "as_json", is_flag=True, help="Write the summary as JSON to standard output.")
@click.option("--config", metavar="FILE", is_eager=True, expose_value=False, callback=use_config,
              help="TOML file with options by their long names; flags win.")  # fmt: skip
def replay(**given: Any) -> int:
    """Replay jobs on a node trace and write a run directory.

    Without -ndmap the bundled data set is replayed; without jobs a generated workload. Each option can also be
    given as an environment variable, BFT_REPLAY_REPLAY_ and its long name, or in a --config file.
    """
    from bft.replay.checkpoint import checkpoint_path
    from bft.replay.cli.summary import show
    from bft.replay.results.run_directory import LOG
    from bft.replay.run import execute

    name = given["name"]
    if not name or "/" in name:
        raise click.BadParameter(f"expected a name without slashes, not {name!r}", param_hint="-name")
    if not given["mip"]:
        if given["policy"] not in (None, "equal-share"):
            raise click.UsageError(f"-mip 0 means --policy equal-share, but --policy is {given['policy']}")
        given["policy"] = "equal-share"
    given["dedicated"] = not given["no_u"]
    options = Options(**{field.name: given[field.name] for field in fields(Options)})
    folder = Path(given["out"] or f"{name}-itrOut")
    if folder.name in ("", ".."):  # "." and the like: it is made under another name first, then renamed
        folder = folder.resolve()
    log = None if given["print_"] else io.StringIO()
    with _watching(log) as watcher, _stop_on_interrupt() as should_stop:
        summary = execute(
            options,
            folder,
            force=given["force"],
            watcher=watcher,
            should_stop=should_stop,
            checkpoint_every_s=given["checkpoint_every_s"],
        )
        if not summary["metrics"]["interrupted"]:
            watcher.done()
    if log is not None:
        show(summary, folder, log)
        (folder / LOG).write_text(log.getvalue(), encoding="utf-8")
    if given["as_json"]:
        click.echo(json.dumps(summary, indent=2, sort_keys=True))
    elif log is None:
        show(summary, folder)
    if summary["metrics"]["interrupted"]:
        click.echo("Interrupted: what had been replayed is kept and marked.", err=True)
        if given["checkpoint_every_s"] is not None and checkpoint_path(folder).exists():
            click.echo(f"To go on from there: {command_line()}", err=True)
        return EXIT_INTERRUPTED
    if summary["degraded"]:
        click.echo(
            "Degraded: some decisions fell back or failed verification; see the column status in steps.parquet.",
            err=True,
        )
        return EXIT_DEGRADED
    return 0


def _watching(log: io.StringIO | None) -> Bar | PlainLines:
    from bft.replay.cli.progress import Bar, PlainLines

    return Bar() if log is None and sys.stderr.isatty() else PlainLines(log)


@contextlib.contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether to stop: Ctrl-C or SIGTERM came since it was first asked.

    Before that nothing has been replayed that could be kept, and an interrupt ends the program as any; so does a second
    one. What follows within DOUBLE_S counts as the same.
    """
    pressed: float | None = None
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        now = time.monotonic()
        if pressed is None:
            pressed = now
        elif now - pressed > DOUBLE_S:
            raise KeyboardInterrupt

    def should_stop() -> bool:
        if not before:
            before.update({number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)})
        return pressed is not None

    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
