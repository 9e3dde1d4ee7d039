"""`bft-replay [replay]`: the main job."""

from __future__ import annotations

import contextlib
import io
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from bft.replay.cli.main import EXIT_DEGRADED, EXIT_INTERRUPTED
from bft.replay.cli.parameters import MOST_LIMIT_S, Finite, NamesWholeOption, PolicyName, Seconds, YesNo, use_config
from bft.replay.cli.solver_options import solver_options
from bft.replay.options import JOB_FORMATS

if TYPE_CHECKING:
    from bft.replay.cli.progress import Bar, PlainLines


# Two interrupts closer than this are one.
DOUBLE_S = 0.3


@click.command(cls=NamesWholeOption, short_help="Replay a node trace (the default command).")
@click.option(
    "-ndmap", "--node-trace", metavar="FILE", help="Node trace: Parquet, CSV, or the published pickle. [bundled]"
)
@click.option("-bdfn", "--job-bounds", metavar="FILE", help="Published job table: bounds (needs -scfn).")
@click.option("-scfn", "--job-curves", metavar="FILE", help="Published job table: scalability (needs -bdfn).")
@click.option("--jobs", metavar="FILE", help="Job table in one file, instead of -bdfn and -scfn.")
@click.option("--jobs-format", type=click.Choice(["native", *JOB_FORMATS]),
              default="native", show_default=True, help="What --jobs is written as.")  # fmt: skip
@click.option("--applications", metavar="DIR", help="Measured application profiles, for --jobs-format pollux.")
@click.option("--cluster", metavar="NxU|FILE",
              help="A fixed cluster instead of a trace: N nodes of U units; or a file with virtual clusters: "
              "vc, nodes, units_per_node.")  # fmt: skip
@click.option("-Tfwd", "--forward-window", "tfwd_s", type=Seconds(), default=10.0, show_default=True,
              help="Forward-looking window: seconds over which a new allocation must pay back.")  # fmt: skip
@click.option("-optTL", "--time-limit", "time_limit_s", type=Seconds(most=MOST_LIMIT_S), default=10.0,
              show_default=True, help="Time limit of one decision, seconds.")  # fmt: skip
@click.option("-maxJ", "--max-jobs", type=click.IntRange(min=0),
              help="Jobs in play at once, 0 for all; later ones wait. [10; with --cluster all]")  # fmt: skip
@click.option("-nis", "--first-node", type=click.IntRange(min=0), default=0, show_default=True,
              help="First node (column) to use.")  # fmt: skip
@click.option("-nN", "--node-count", type=click.IntRange(min=1), help="How many nodes (columns) to use. [all]")
@click.option("-name", "--name", default="debug", show_default=True, help="Name of the run.")
@click.option("-mip", "--mip", type=YesNo(), metavar="BOOL", default=True, show_default=True,
              help="Decide by MILP; 0 is --policy equal-share.")  # fmt: skip
@click.option("-print", "--print", "print_", type=YesNo(), metavar="BOOL", default=True, show_default=True,
              help="Tell progress and summary; 0 writes them to replay.log in the run directory.")  # fmt: skip
@click.option("--policy", type=PolicyName(), metavar="NAME",
              help="Who decides; `bft-replay policies` lists them. [milp; with --xi milp-sharing]")  # fmt: skip
@click.option("--set", "policy_options", multiple=True, metavar="NAME=VALUE",
              help="A constant of the policy; `bft-replay policies NAME` lists them. May be repeated.")  # fmt: skip
@click.option("--policy-time-limit", "policy_time_limit_s", type=Seconds(most=MOST_LIMIT_S),
              help="Stop the replay when the policy takes longer for one decision, seconds. [never]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of policies that search at random.")  # fmt: skip
@solver_options(default_backend="cbc")
@click.option("--verify", is_flag=True, help="Hold every answer against the exact programme.")
@click.option("--objective", type=click.Choice(["own", "throughput", "efficiency"]), default="own", show_default=True,
              help="What is maximised: the jobs' Os, samples/s, or speed-up over one unit.")  # fmt: skip
@click.option("--deadline-boost", type=Finite(min=1), default=1.0, show_default=True,
              help="Factor on a job's weight at its deadline; 1: deadlines do not count.")  # fmt: skip
@click.option("--deadline-horizon", "deadline_horizon_s", type=Seconds(), default=86400.0, show_default=True,
              help="Seconds before its deadline at which a job's weight starts to rise.")  # fmt: skip
@click.option("--xi", metavar="FILE", help="xi table: who slows whom down by how much when they share units.")
@click.option("--xi-max", type=Finite(min=1), help="Share only where both ratios are at most this. [no limit]")
@click.option("--xi-partners", type=click.IntRange(min=1), default=3, show_default=True,
              help="Best partners considered per job.")  # fmt: skip
@click.option("--unit-memory", "unit_memory_gib", type=Finite(min=0, min_open=True),
              help="Memory of a unit, GiB: share only what fits together. [not looked at]")  # fmt: skip
@click.option("--memory-table", metavar="FILE",
              help="Memory by model and batch size: who does not fit may share with a smaller batch.")  # fmt: skip
@click.option("--sub-batch", type=Finite(min=0, min_open=True, max=1), default=0.5, show_default=True,
              help="Least share of its goodput that a job keeps with a smaller batch.")  # fmt: skip
@click.option("--forbid", multiple=True, metavar="MODEL,MODEL", help="Two models that may not share; may be repeated.")
@click.option("--cost-model", type=click.Choice(["bftrainer", "stall"]), default="bftrainer", show_default=True,
              help="What a rescale costs: T x rate off the progress, or T seconds without progress.")  # fmt: skip
@click.option("--events", type=click.Choice(["all", "node"]), default="all", show_default=True,
              help="Decide at node events, submits and finishes, or at node events only.")  # fmt: skip
@click.option("--min-interval", "min_interval_s", type=Seconds(zero=True), default=0.0, show_default=True,
              help="Least time between two decisions, seconds.")  # fmt: skip
@click.option("--checkpoint-interval", "checkpoint_interval_s", type=Seconds(zero=True), default=600.0,
              show_default=True, help="Seconds between two checkpoints of a job that cannot shrink.")  # fmt: skip
@click.option("--start-overhead", "start_overhead_s", type=Seconds(zero=True), default=0.0, show_default=True,
              help="Seconds without progress after a job's first start.")  # fmt: skip
@click.option("--restart-overhead", metavar="SECONDS|UNITS:SECONDS,...",
              help="The same after later starts, by size: 8:40,64:60 is 40 s up to 8 units, 60 above. [0]")  # fmt: skip
@click.option("--skip-rows", type=click.IntRange(min=0), help="First rows of the trace to leave out. [0; compat: 1000]")
@click.option("--sort", is_flag=True, help="Accept a trace whose rows are not in order of time.")
@click.option("--compat", type=click.Choice(["reference", "lucid", "pollux"]),
              help="Account as the published replayer; as Lucid's artifact; as Pollux' (30 s a start).")  # fmt: skip
@click.option("--no-u", is_flag=True, help="Skip the second replay, on dedicated nodes, that U needs.")
@click.option("--checkpoint-every", "checkpoint_every_s", type=Seconds(zero=True), metavar="SECONDS",
              help="Save the state so often; the same command then resumes a killed replay. [never]")  # fmt: skip
@click.option("--out", metavar="DIR", help="Run directory. [NAME-itrOut]")
@click.option("--force", is_flag=True, help="Replace an earlier run in the run directory.")
@click.option("--json", "as_json", is_flag=True, help="Write the summary as JSON to standard output.")
@click.option("--config", metavar="FILE", is_eager=True, expose_value=False, callback=use_config,
              help="TOML file with options by their long names; flags win.")  # fmt: skip
def replay(**given: Any) -> int:
    """Replay jobs on a node trace and write a run directory.

    Without -ndmap the bundled data set is replayed; without jobs a generated workload. Each option can also be
    given as an environment variable, BFT_REPLAY_REPLAY_ and its long name, or in a --config file.
    """
    from bft.replay.cli.summary import show
    from bft.replay.options import Options
    from bft.replay.policies import Kind, policy_factory, policy_options
    from bft.replay.results import LOG
    from bft.replay.run import execute

    if given["policy"] is not None and not given["mip"] and given["policy"] != "equal-share":
        raise click.UsageError(f"-mip 0 means --policy equal-share, but --policy is {given['policy']}")
    if given["jobs"] is not None and (given["job_bounds"] is not None or given["job_curves"] is not None):
        raise click.UsageError("give either --jobs or the pair -bdfn and -scfn")
    name = given["name"]
    if not name or "/" in name:
        raise click.BadParameter(f"expected a name without slashes, not {name!r}", param_hint="-name")
    for option, value in given.items():
        if isinstance(value, str) and not _writable(value):  # found out before the replay, not when it is recorded
            long = option.replace("_", "-")
            raise click.BadParameter(f"expected UTF-8 text, not {value!r}; rename it", param_hint=f"--{long}")
    by_default = "milp-sharing" if given["xi"] is not None else "milp"
    given["policy"] = given["policy"] or (by_default if given["mip"] else "equal-share")
    factory = policy_factory(given["policy"])
    if given["xi"] is None and Kind.of(factory).shares:
        raise click.UsageError(f"--policy {given['policy']} shares units and needs --xi FILE: what sharing costs")
    if given["xi"] is not None and "interference" not in (option.name for option in policy_options(factory)):
        raise click.UsageError(f"--policy {given['policy']} shares nothing, so it takes no --xi")
    given["policy_options"] = tuple(_assignment(text) for text in given["policy_options"])
    if given["compat"] == "lucid":
        if given["policy"] != "lucid":
            raise click.UsageError(f"--compat lucid is for --policy lucid, not {given['policy']}")
        given["policy_options"] += (("compat", "yes"),)
        given["compat"] = None
    given["whole_seconds"] = given["compat"] == "pollux"
    if given["compat"] == "pollux":
        if given["jobs_format"] != "pollux":
            raise click.UsageError(f"--compat pollux is for --jobs-format pollux, not {given['jobs_format']}")
        given["start_overhead_s"] = given["start_overhead_s"] or 30.0
        given["restart_overhead"] = given["restart_overhead"] or "30"
        given["compat"] = None
    if given["compat"] is not None and given["xi"] is not None:
        raise click.UsageError("the published replayer knows no sharing: leave out --xi or --compat")
    if given["compat"] is not None and given["cluster"] is not None:
        raise click.UsageError("the published replayer knows no fixed clusters: leave out --cluster or --compat")
    if given["max_jobs"] is None:
        given["max_jobs"] = 0 if given["cluster"] is not None else 10
    if given["compat"] is not None and (given["max_jobs"] == 0 or given["policy"] not in ("milp", "equal-share")):
        raise click.UsageError("the published replayer knows --policy milp and equal-share, and -maxJ from 1 on")
    given["restart_overhead"] = _overheads(given["restart_overhead"])
    if given["memory_table"] is not None and (given["xi"] is None or given["unit_memory_gib"] is None):
        raise click.UsageError("--memory-table needs --xi and --unit-memory: whose memory must fit where")
    given["forbid"] = tuple(_two_models(pair) for pair in given["forbid"])
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
        return EXIT_INTERRUPTED
    if summary["degraded"]:
        click.echo(
            "Degraded: some decisions fell back or failed verification; see the column status in steps.parquet.",
            err=True,
        )
        return EXIT_DEGRADED
    return 0


def _two_models(text: str) -> tuple[str, str]:
    models = [part.strip() for part in text.split(",")]
    if len(models) != 2 or not all(models):
        raise click.BadParameter(f"expected two models with a comma between, not {text!r}", param_hint="--forbid")
    return models[0], models[1]


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise click.BadParameter(f"expected NAME=VALUE, not {text!r}", param_hint="--set")
    return name.strip().replace("-", "_"), value


def _overheads(text: str | None) -> tuple[tuple[int, float], ...]:
    """The pairs of 8:40,64:60; a plain number of seconds is for any size."""
    if text is None:
        return ()
    pairs = []
    for part in text.split(","):
        units, colon, seconds = part.rpartition(":")
        try:
            pair = (int(units) if colon else sys.maxsize, float(seconds))
        except ValueError:
            pair = (0, math.nan)
        if not (pair[0] > 0 and 0 <= pair[1] <= MOST_LIMIT_S):
            raise click.BadParameter(
                f"expected seconds, or UNITS:SECONDS with commas between, not {text!r}", param_hint="--restart-overhead"
            )
        pairs.append(pair)
    return tuple(sorted(pairs))


def _writable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _watching(log: io.StringIO | None) -> Bar | PlainLines:
    from bft.replay.cli.progress import Bar, PlainLines

    return Bar() if log is None and sys.stderr.isatty() else PlainLines(log)


@contextlib.contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; a second one interrupts at once.

    Programs such as timeout send their signal twice, to the process and to its group: what follows within DOUBLE_S
    counts as the same.
    """
    pressed: float | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        now = time.monotonic()
        if pressed is None:
            pressed = now
        elif now - pressed > DOUBLE_S:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: pressed is not None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
