"""`bft-replay watch`: the same decisions live, beside a real scheduler, touching nothing."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import click

from bft.models.checks import INPUT, seconds, whole
from bft.replay.cli.main import EXIT_DEGRADED, discard_output
from bft.replay.cli.messages import say_error, say_note
from bft.replay.cli.parameters import (
    Checked,
    TableCommand,
    json_option,
    option,
    rare_option,
    stated_options,
    together,
    use_config,
)
from bft.replay.cli.replay import show, stop_on_interrupt, watching
from bft.replay.cli.watcher import day
from bft.replay.options.options import FIELDS, Options

UNTOUCHED = (
    "nothing on this machine is touched: decisions are told, and none is carried out"
)
# Options of a replay but for those of a node trace, which here is what is watched.
_fields = {
    name: field
    for name, field in FIELDS.items()
    if field.section != INPUT or name in ("kinds", "cluster", "trust_pickle")
}
USUAL_PERIOD_S = 10.0


@click.command(cls=TableCommand)
@click.option(
    "--command",
    metavar="COMMAND",
    help="Prints the states of all nodes; run as it is, without a shell. [lines time,node,idle on standard input]",
)
@click.option(
    "--every",
    "every_s",
    type=Checked(seconds()),
    metavar="SECONDS",
    help="Run it so often [10]; after 2.5 times without an answer all nodes count as taken.",
)
@click.option(
    "--count-as",
    default="",
    metavar="WORD=STATE,...",
    help="Count words for states otherwise, as `ingest` does: completing=idle.",
)
@click.option(
    "--settle",
    "settle_s",
    type=Checked(seconds(zero=True)),
    default=0.0,
    show_default=True,
    help="Seconds after which a node that looks idle counts as idle.",
)
@click.option(
    "--own",
    metavar="USER|PARTITION|NAME",
    help="What jobs of this user, partition or name hold counts as idle; needs --holders.",
)
@click.option(
    "--holders",
    metavar="COMMAND",
    help="Prints a line for each running job: its nodes, user, partition and name.",
)
@click.option(
    "--units-per-node",
    type=Checked(whole(1, 1024)),
    default=1,
    show_default=True,
    help="Units of each node, such as GPUs.",
)
@click.option(
    "--for",
    "for_",
    default="876000h",
    metavar="TIME",
    help="End after 90s, 30min or 8h. [at Ctrl-C]",
)
@click.option(
    "--out",
    default="shadow",
    show_default=True,
    metavar="DIR",
    help="Folder of the record and the run.",
)
@json_option("Tell each decision as a JSON line (docs/shadow.md).")
@together(*map(option, _fields.values()), rare_option)
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=use_config,
    help="TOML file with options by their long names; flags win.",
)
def watch(**given: Any) -> int:
    """Decide beside a real scheduler, as time passes, which job would get which idle node; nothing is touched.

    States of nodes come from --command, or as lines time,node,idle on standard input. At the end (Ctrl-C, --for) the
    recorded trace is replayed as `replay` does it, and compared: exit code 3 if the decisions differ. The same command
    goes on with a record that is not at its end.
    """
    import pandas as pd

    from bft.replay.results.run_directory import write_json
    from bft.replay.shadow.states import Looks, read_lines, run_commands
    from bft.replay.shadow.watching import (
        COMPARISON,
        RUN,
        TRACE,
        Record,
        Watch,
        begin,
        finish,
    )

    folder, oversized = Path(given["out"]), given["oversized"]
    own = given["own"] is not None
    refused = {
        "watch needs the jobs that it is to place: --jobs FILE, or -bdfn and -scfn": (
            not given["jobs"] and given["job_bounds"] is None
        ),
        "--cluster is a machine that is always idle: there is nothing to watch": (
            given["cluster"] is not None
        ),
        "--option compat=reference replays a file as published; it has no live side": (
            given["compat"] == "reference"
        ),
        "--policy schedule carries out decisions that were made before; there are none yet": (
            given["policy"] == "schedule"
        ),
        f"--option oversized={oversized} looks at the most units ever idle; nobody knows them yet, and jobs wait": (
            oversized not in (None, "wait")
        ),
        "--own names jobs that --holders COMMAND lists, beside --command": (
            own != (given["holders"] is not None) or (own and given["command"] is None)
        ),
        "--set window=expected needs a log of host jobs, and none is watched": (
            ("window", "expected") in given["policy_options"]
        ),
        f"{folder} holds a watch that has come to its end; choose another --out": (
            (folder / RUN).exists()
        ),
    }
    for sentence, holds in refused.items():
        if holds:
            raise click.UsageError(sentence)
    stated = {"oversized": "wait"} | stated_options(_fields, given)
    options = Options(**stated, node_trace=str(folder / TRACE))
    try:
        last_ns = pd.Timedelta(given["for_"]).value
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from error
    looks, record = Looks(say_note), Record(folder)
    source, every_s = partial(read_lines, looks), given["every_s"]
    if given["command"] is not None:
        every_s = every_s or USUAL_PERIOD_S
        others = (given[name] for name in ("holders", "own", "count_as"))
        source = partial(run_commands, looks, given["command"], every_s, *others)
    Thread(target=source, daemon=True).start()
    with watching(None) as watcher, stop_on_interrupt() as stopping:
        header, shadow, look = begin(options, record, looks, given["units_per_node"])
        told = _Told(given["as_json"])
        told.say(json.dumps(header) if given["as_json"] else UNTOUCHED)
        shadow.tell = told
        told(shadow.status())
        loop = Watch(
            shadow, looks, given["settle_s"], every_s, header["start"] + last_ns
        )
        if look[1]:
            loop.see(look)
        outcome = loop.run(stopping)
        end = shadow.replay.trace.end
        summary, found = finish(options, record, outcome, end, watcher)
    found |= {"late": shadow.late, "missed": looks.missed, "max_lag_s": told.max_lag_s}
    write_json(folder / COMPARISON, {"shadow": found})
    if given["as_json"]:
        told.say(json.dumps({"shadow": found, "run": str(folder / RUN)}))
    else:
        show(summary, folder / RUN)
    if found["until"] is not None:
        say_note(
            f"a decision at {found['until']} came at a time limit: from there on they are not claimed to be equal"
        )
    if not found["equal"]:
        say_error(
            "Different: the replay of the record decides otherwise than the watch did."
        )
    return 0 if found["equal"] and not summary["degraded"] else EXIT_DEGRADED


class _Told:
    """What is told on standard output, which may be closed meanwhile."""

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.began_ns, self.max_lag_s = as_json, time.time_ns(), 0.0

    def say(self, text: str) -> None:
        try:
            click.echo(text)
            sys.stdout.flush()
        except OSError:
            discard_output()

    def __call__(self, line: dict[str, Any]) -> None:
        """Tell a line of the watch, and how long after its instant that is."""
        instant = line["time_ns"]
        lag_s = round((time.time_ns() - max(instant, self.began_ns)) / 1e9, 6)
        self.max_lag_s = max(self.max_lag_s, lag_s)
        held = (f"{job} on {len(units)}" for job, units in line["hold"].items())
        ended = "".join(f"; {job} ends" for job in line["ended"])
        text = f"{day(instant)}  idle {line['idle']}: {', '.join(held) or 'no job runs'}{ended}"
        self.say(json.dumps(line | {"lag_s": lag_s}) if self.as_json else text)
