"""Evaluate a machine: from a scheduler's logs to what training on its idle nodes yields, and costs its own jobs.

The stages are what one can do by hand: `ingest`, a replay for each reserve, and the page. A return time needs no replay
of its own, because it changes no decision: the starts of a replay are priced at any (`bft.replay.results.host`).

Columns of the table:

- `training_node_h`: node-hours that trainings held, in the window.
- `starts`, `delayed`, `mean_delay_s`, `longest_delay_s`: of the machine's own jobs; the mean is over all starts.
- `waiting_node_h`, `waiting_share_of_host`: what they wait, also as a share of their own node-hours.
- `break_even_price`: node-hours of training for each that own jobs wait; less the energy, where prices are given.
- `net_node_h`: training less `--host-price` (1) times the waiting.
- `kwh_a_year`, `co2_kg_a_year`, `energy_cost_a_year`: more than if the nodes that train had stayed idle.
- `value_a_year`, `net_value_a_year`: `--price-per-node-hour` times training, and times the net less the energy.
- `..._a_year`: the window, repeated for 365 days.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.files import drafted
from bft.models.tables import trusting_pickles
from bft.replay.inputs.files import Files
from bft.replay.inputs.jobs import jobs_of
from bft.replay.inputs.notes import Watcher
from bft.replay.inputs.trace import traces
from bft.replay.logs.ingest import IngestOptions, Progress, ingested
from bft.replay.options.options import FIELDS, PRICES, WORLD, Options, defaults
from bft.replay.results.host import (
    Starts,
    host_node_hours,
    known_jobs,
    starts_of,
    waiting,
)
from bft.replay.results.metrics import mean
from bft.replay.results.outcome_tables import read_returns
from bft.replay.results.run_directory import is_run, plain, read_summary
from bft.replay.run import execute, versions
from bft.replay.studies.study import key_of, key_of_run, read_json, write_whole
from bft.replay.trace.host_jobs import file_beside
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import write_trace
from bft.replay.trace.trace_statistics import idle_by_class, iso

# Seconds until a node is back, and nodes kept free, at which the machine's own jobs are priced.
RETURN_TIMES_S, RESERVES = (30.0, 120.0, 300.0), (0, 1, 4, 16)
# The return time of the replays and of the sentences, and the longest of which the page tells.
USUAL_S, LONGEST_S = 120.0, 900.0
YEAR_S = 365 * 86_400.0
# Options of all replays: the best setting. U is left out: it needs as many replays again.
SETTING = {"preset": "best", "dedicated": False, "return_time_s": USUAL_S}
# Files of an evaluation.
TRACE, MADE = "trace.parquet", "ingest.json"
PAGE, TABLE, FIGURES = "evaluation.html", "evaluation.csv", "evaluation.json"
# Options of `ingest` whose flag is not their name.
_FLAGS = {"begin": "from", "end": "to", "columns": "map"}


class Onlooker(Protocol):
    """An object that shows how far an evaluation is."""

    def note(self, text: str) -> None:
        """Something worth reporting that changes or explains a result, not an error."""

    def begin(self, name: str, command: str, *, done: bool = False) -> None:
        """A stage begins, which this command line does as well; `done`: its output is there already."""

    def share(self, done: float) -> None:
        """So much of the stage is done, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found.

    Parameters
    ----------
    folder
        Where the trace, the replays, the page and the table lie.
    figures
        The content of evaluation.json (docs/report.md).
    degraded
        Whether a replay used fallbacks (docs/results.md).
    """

    folder: Path
    figures: dict[str, Any]
    degraded: bool

    @property
    def page(self) -> Path:
        """The page, for any browser."""
        return self.folder / PAGE

    @property
    def table(self) -> pd.DataFrame:
        """Return a row for each reserve and return time."""
        return pd.DataFrame(self.figures["table"])


def folder_of(files: Sequence[str]) -> Path:
    """Return the folder of an evaluation that is not told another: named after the first log, in this folder."""
    return Path(f"{Path(files[0]).name.partition('.')[0]}-evaluation")


STAGES = 2 + len(RESERVES)
WritePage = Callable[[dict[str, Any], Sequence[dict[str, Any]], Path, Path], None]
"""Writes figures, curves by reserve and the charts of a run directory into a file."""


def evaluate(
    form: str,
    files: Sequence[str],
    logs: IngestOptions,
    stated: Mapping[str, Any],
    folder: Path,
    *,
    write_page: WritePage,
    onlooker: Onlooker,
) -> Evaluation:
    """Evaluate a machine by its logs.

    Parameters
    ----------
    form, files, logs
        As for `ingested`.
    stated
        Options of `WORLD` and `PRICES` by flat name; None counts as not stated.
    folder
        Where all files are written. A stage whose output is there, made of the same inputs with the same options, is
        not done again.
    write_page
        Writes the page.
    onlooker
        Who shows progress.

    Raises
    ------
    InputError
        When an input or an option cannot be used, or the folder holds something else.
    """
    stated = {name: value for name, value in stated.items() if value is not None}
    prices = {name: each.checked(stated.get(name)) for name, each in PRICES.items()}
    if prices["price_per_kwh"] is not None and prices["node_watts"] is None:
        raise InputError("$price_per_kwh has no effect without $node_watts")
    world = {name: stated[name] for name in WORLD if name in stated}
    points = [
        Options(**world, **SETTING, node_trace=str(folder / TRACE), reserve=reserve)
        for reserve in RESERVES
    ]
    known = {name: prices[name] for name in PRICES if name in FIELDS}
    priced = Options(**{**points[0].flat(), **known})
    teller = _Teller(onlooker)
    for note in priced.notes():
        teller.note(note)
    if (folder / TRACE).exists() and not (folder / MADE).exists():
        why = "is there and no evaluation's; choose another folder with $out"
        raise InputError(why, file=folder / TRACE)
    reader = Files()
    if points[0].jobs is not None:
        # A table that cannot be used is told before the logs are read, which may take minutes.
        with trusting_pickles(points[0].trust_pickle):
            jobs_of(points[0], None, Watcher(), reader)
    _ingest(form, files, logs, folder, reader, teller)
    summaries = [_replay(options, folder, reader, teller) for options in points]
    asked = {"--format": form, **_of_logs(logs), **_of_replay(points[0], *WORLD)}
    asked |= {
        each.flag: prices[name]
        for name, each in PRICES.items()
        if prices[name] != each.default
    }
    onlooker.begin("page", _typed(["evaluate", *files], {**asked, "--out": folder}))
    _, trace = traces(points[0], Watcher(), reader)  # as the replays read it
    replays = [
        _Replayed.of(_run(folder, reserve), reserve, summary, trace)
        for reserve, summary in zip(RESERVES, summaries, strict=True)
    ]
    figures = _figures(replays, summaries, trace, prices)
    notes = [*trace.assumptions, *priced.notes()]
    notes += [] if trace.uncertain is None else [str(trace.uncertain)]
    notes += [note for summary in summaries for note in summary["notes"]]
    figures["notes"] = [*dict.fromkeys(notes)]
    write_whole(folder / FIGURES, json.dumps(plain(figures), indent=1) + "\n")
    with drafted(folder / TABLE) as draft:
        pd.DataFrame(figures["table"]).to_csv(draft, index=False)
    with drafted(folder / PAGE) as draft:
        curves = [each.by_ago() for each in replays]
        write_page(figures, curves, _run(folder, figures["reserve"]), draft)
    onlooker.share(1.0)
    return Evaluation(folder, figures, any(each["degraded"] for each in summaries))


class _Teller(Watcher):
    """Tells an onlooker each note once, and how far a replay is."""

    def __init__(self, onlooker: Onlooker) -> None:
        self.onlooker = onlooker
        self._told: set[str] = set()

    def note(self, text: str) -> None:
        """Tell a note that is new."""
        if text not in self._told:
            self._told.add(text)
            self.onlooker.note(text)

    def reading(self, files: Sequence[str]) -> Progress:
        """What tells how far the reading of files is, by their bytes."""
        sizes = {name: Path(name).stat().st_size for name in files}
        before = 0

        @contextmanager
        def progress(name: str) -> Iterator[Callable[[int], None]]:
            nonlocal before
            yield lambda count: self.onlooker.share(
                (before + count) / sum(sizes.values())
            )
            before += sizes.get(name, 0)

        return progress

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._start, self._span = start_ns, max(end_ns - start_ns, 1)

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""
        self.onlooker.share((now_ns - self._start) / self._span)


# --- the stages ---------------------------------------------------------------------------------------------------


def _ingest(
    form: str,
    files: Sequence[str],
    logs: IngestOptions,
    folder: Path,
    reader: Files,
    teller: _Teller,
) -> None:
    """Make the trace with its host jobs, unless both are there."""
    target, given = folder / TRACE, (*logs.nodes, *logs.events, *logs.reservations)
    read = [*files, *(name for name in given if Path(name).is_file())]
    try:
        digests = {name: reader.digest(name) for name in read}
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", file=error.filename
        ) from error
    asked = {
        "form": form,
        "files": digests,
        "options": repr(logs),
        "versions": versions(),
    }
    made = read_json(folder / MADE) or {}
    output = _digests(target, reader)
    done = (made.get("asked"), made.get("output")) == (asked, output)
    options = {**_of_logs(logs), "-o": target, "--force": True}
    teller.onlooker.begin("logs", _typed(["ingest", form, *files], options), done=done)
    if not done:
        found = ingested(form, files, logs, progress=teller.reading(read))
        write_trace(found.trace, target)
        made = {"asked": asked, "output": _digests(target, reader)}
        made["warnings"] = found.account.warnings()
        write_whole(folder / MADE, json.dumps(made, indent=1) + "\n")
    for warning in made["warnings"]:
        teller.note(warning)


def _digests(trace: Path, reader: Files) -> list[str]:
    """SHA-256 of a trace and of the host jobs beside it, as far as they are there."""
    both = (trace, file_beside(trace) or trace)
    return [reader.digest(str(path)) for path in both if path.exists()]


def _replay(
    options: Options, folder: Path, reader: Files, teller: _Teller
) -> dict[str, Any]:
    """Replay, unless this very replay is there; return its summary."""
    reserve = options.rules.reserve
    target = _run(folder, reserve)
    asked = _of_replay(options, "node_trace", *WORLD, *SETTING, "reserve")
    command = _typed(["replay"], {**asked, "--out": target, "--force": True})
    summary = read_summary(target) if is_run(target) else None
    done = summary is not None and key_of_run(summary) == key_of(options, reader)
    if summary is None or not done or summary["metrics"]["interrupted"]:
        teller.onlooker.begin(f"replay, {reserve} kept free", command)
        return execute(options, target, force=True, watcher=teller, files=reader)
    teller.onlooker.begin(f"replay, {reserve} kept free", command, done=True)
    for note in summary["notes"]:
        teller.note(note)
    return summary


def _run(folder: Path, reserve: int) -> Path:
    """The run directory of a reserve."""
    return folder / f"reserve-{reserve}"


def _typed(words: Sequence[str], options: Mapping[str, Any]) -> str:
    """A command line as one types it, with options by flag; a flag alone has a truth value."""
    typed = ["bft-replay", *words]
    for flag, value in options.items():
        if flag == "--node-watts":
            value = ",".join(f"{watts:g}" for watts in value)
        for each in value if isinstance(value, list | tuple) else [value]:
            text = (
                str(each).removesuffix(".0") if isinstance(each, float) else str(each)
            )
            typed += [flag] if isinstance(each, bool) else [flag, text]
    return shlex.join(typed)


def _of_logs(logs: IngestOptions) -> dict[str, Any]:
    """Options of logs that differ from the defaults, by flag."""
    usual, found = IngestOptions(), {}
    for each in fields(logs):
        value = getattr(logs, each.name)
        if value != getattr(usual, each.name):
            name = _FLAGS.get(each.name, each.name.removesuffix("_s"))
            value = ",".join(value) if each.name == "fields" else value
            found[f"--{name.replace('_', '-')}"] = value
    return found


def _of_replay(options: Options, *names: str) -> dict[str, Any]:
    """Those of these options of a replay that differ from the defaults, by flag."""
    values = options.flat()
    usual = defaults(values)
    stated = (name for name in names if values[name] != usual[name])
    return {FIELDS[name].flag: values[name] for name in stated}


# --- what they found ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Replayed:
    """A replay: the starts of host jobs, and node-hours of training and of host jobs."""

    reserve: int
    starts: Starts
    used_node_h: float
    host_node_h: float | None

    @classmethod
    def of(
        cls, folder: Path, reserve: int, summary: dict[str, Any], trace: NodeTrace
    ) -> _Replayed:
        # Of all the time that the log covers: a replay ends with its last training, sooner or later by its reserve.
        window = trace.start, trace.end
        return cls(
            reserve,
            starts_of(trace, read_returns(folder, trace.nodes), *window),
            summary["metrics"]["used_unit_s"] / trace.units_per_node / 3600,
            host_node_hours(trace, *window),
        )

    def by_ago(self) -> dict[str, Any]:
        """Return what prices any whole number of seconds up to `LONGEST_S`, for the page.

        `ago` has a row for each whole number of seconds since training let go of the last node of a start: these
        seconds, how many starts, their nodes, and the sums of the exact seconds and of nodes times seconds. Where a
        node takes D seconds to return, the starts of the rows below D wait, each D less its own seconds.
        """
        ago_s = LONGEST_S - self.starts.delays_s(LONGEST_S)
        late = ago_s < LONGEST_S
        ago_s, nodes = ago_s[late], self.starts.nodes[late]
        whole = ago_s.astype(np.int64)
        columns = (np.ones(len(ago_s)), nodes, ago_s, nodes * ago_s)
        sums = np.array([np.bincount(whole, each) for each in columns])
        rows = [
            [second, *sums[:, second].tolist()] for second in np.unique(whole).tolist()
        ]
        return {
            "reserve": self.reserve,
            "training_node_h": self.used_node_h,
            "host_node_h": self.host_node_h,
            "starts": len(self.starts.nodes),
            "least_s": float(ago_s.min(initial=LONGEST_S)),
            "ago": rows,
        }

    def priced(
        self, return_time_s: float, prices: Mapping[str, Any], a_year: float
    ) -> dict[str, Any]:
        """Return a row of the table; `a_year` is how often the window of the replay fits into a year."""
        used, count = self.used_node_h, len(self.starts.nodes)
        found = waiting(self.starts, return_time_s, used, self.host_node_h)
        net = used - _host_price(prices) * found["waiting_node_h"]
        row = {
            "reserve": self.reserve,
            **found,
            "starts": count,
            "delayed_share": found["delayed"] / count if count else None,
            "mean_delay_s": mean(self.starts.delays_s(return_time_s)),
            "training_node_h": used,
            "net_node_h": net,
            "training_node_h_a_year": used * a_year,
            "waiting_node_h_a_year": found["waiting_node_h"] * a_year,
            "net_node_h_a_year": net * a_year,
        }
        energy_cost = 0.0
        if prices["node_watts"] is not None:
            idle, busy = prices["node_watts"]
            kwh = row["kwh_a_year"] = (busy - idle) / 1000 * used * a_year
            if prices["co2_per_kwh"] is not None:
                row["co2_kg_a_year"] = kwh * prices["co2_per_kwh"] / 1000
            if prices["price_per_kwh"] is not None:
                energy_cost = row["energy_cost_a_year"] = kwh * prices["price_per_kwh"]
        if prices["price_per_node_hour"] is not None:
            price = prices["price_per_node_hour"] * a_year
            row["value_a_year"] = price * used
            row["net_value_a_year"] = price * net - energy_cost
            if price and found["waiting_node_h"]:
                paid = used - energy_cost / price
                row["break_even_price"] = paid / found["waiting_node_h"]
        return row


def _host_price(prices: Mapping[str, Any]) -> float:
    """Node-hours of training that a node-hour of host jobs counts as; 1 is the lowest honest one."""
    return 1.0 if prices["host_price"] is None else float(prices["host_price"])


def _figures(
    replays: Sequence[_Replayed],
    summaries: Sequence[Mapping[str, Any]],
    trace: NodeTrace,
    prices: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of evaluation.json but for its notes."""
    a_year = YEAR_S / trace.duration_s
    table = [
        each.priced(seconds, prices, a_year)
        for each in replays
        for seconds in RETURN_TIMES_S
    ]
    net = "net_node_h" if prices["price_per_node_hour"] is None else "net_value_a_year"
    usual = [row for row in table if row["return_time_s"] == USUAL_S]
    best = max(usual, key=lambda row: row[net])
    summary = summaries[RESERVES.index(best["reserve"])]
    metrics, jobs = summary["metrics"], summary["inputs"]["jobs"]
    start, end = (iso(instant, trace.zone) for instant in (trace.start, trace.end))
    idle_node_h = trace.idle_node_seconds() / 3600
    return {
        "machine": trace.machine,
        "window": {"start": start, "end": end, "days": trace.duration_s / 86_400},
        "zone": trace.zone or "UTC",
        "nodes": len(trace.nodes),
        "idle_share": idle_node_h / (len(trace.nodes) * trace.duration_s / 3600),
        "eq_nodes": idle_node_h / (trace.duration_s / 3600),
        "classes": _classes(trace),
        "jobs": jobs["count"],
        "jobs_finished": metrics["jobs_finished"],
        "generated_load": jobs["generated_load"],
        "used_share": best["training_node_h"] / idle_node_h,
        "share_of_bound": metrics["share_of_bound"],
        "by_job": known_jobs(trace) is not None,
        "lower_bound": metrics["host"]["lower_bound"],
        "prices": {**prices, "host_price": _host_price(prices)},
        "a_year": a_year,
        "reserve": best["reserve"],
        "return_time_s": USUAL_S,
        "table": table,
    }


def _classes(trace: NodeTrace) -> dict[str, dict[str, Any]]:
    """Return CPU and GPU nodes and their idle share; by partition where lists do not tell them apart."""
    kinds = tuple(name.partition("/")[0] for name in trace.classes)
    if set(kinds) <= {"cpu", "gpu"}:
        trace = replace(trace, classes=kinds)
    return idle_by_class(trace, trace.start, trace.end)
