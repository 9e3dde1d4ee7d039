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
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.files import drafted
from bft.models.plugins import needs
from bft.models.tables import trusting_pickles
from bft.models.writing import three_digits
from bft.replay.inputs.files import Files
from bft.replay.inputs.jobs import jobs_of
from bft.replay.inputs.notes import Watcher
from bft.replay.inputs.trace import traces
from bft.replay.logs.ingest import IngestOptions, Progress, ingested
from bft.replay.options.options import FIELDS, PRICES, WORLD, Options, defaults
from bft.replay.report.page import AT_ONCE, rendered, templates
from bft.replay.report.run_charts import charts_of_run
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
from bft.replay.studies.run_files import read_run
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


STAGES = 2 + len(RESERVES)


def evaluate(
    form: str,
    files: Sequence[str],
    logs: IngestOptions,
    stated: Mapping[str, Any],
    folder: str | Path | None,
    *,
    watcher: Watcher,
) -> Evaluation:
    """Evaluate a machine by its logs.

    Parameters
    ----------
    form, files, logs
        As for `ingested`; nodes turn idle as a whole.
    stated
        Options of `WORLD` and `PRICES` by flat name; None counts as not stated.
    folder
        Where all files are written; None: named after the first log, in this folder. A stage whose output is there,
        made of the same inputs with the same options, is not done again.
    watcher
        Shows progress.

    Raises
    ------
    InputError
        When an input or an option cannot be used, the folder holds something else, or a package is missing.
    """
    with needs("the page of an evaluation", "report"):  # told before hours of work
        import bokeh  # noqa: F401
        import jinja2  # noqa: F401
    if logs.unit is not None:
        why = "unit: evaluate is for whole nodes, as logs do not say which units of its nodes a host job takes"
        raise InputError(why, hint="ingest makes a trace of units, which replay takes")
    folder = Path(folder or f"{Path(files[0]).name.partition('.')[0]}-evaluation")
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
    for note in priced.notes():
        watcher.note(note)
    if (folder / TRACE).exists() and not (folder / MADE).exists():
        why = "is there and no evaluation's; choose another folder with $out"
        raise InputError(why, file=folder / TRACE)
    reader = Files()
    if points[0].jobs is not None:
        # A table that cannot be used is told before the logs are read, which may take minutes.
        with trusting_pickles(points[0].trust_pickle):
            jobs_of(points[0], None, Watcher(), reader)
    _ingest(form, files, logs, folder, reader, watcher)
    summaries = {
        options.rules.reserve: _replay(options, folder, reader, watcher)
        for options in points
    }
    asked = {"--format": form, **_of_logs(logs), **_of_replay(points[0], *WORLD)}
    asked |= {
        each.flag: prices[name]
        for name, each in PRICES.items()
        if prices[name] != each.default
    }
    watcher.begin("page", _typed(["evaluate", *files], {**asked, "--out": folder}))
    _, trace = traces(points[0], Watcher(), reader)  # as the replays read it
    # 1 is the lowest honest price.
    if prices["host_price"] is None:
        prices["host_price"] = 1.0
    # Of all the time that the log covers: a replay ends with its last training, sooner or later by its reserve.
    window = trace.start, trace.end
    host_node_h, a_year = host_node_hours(trace, *window), YEAR_S / trace.duration_s
    curves, table = [], []
    for reserve, summary in summaries.items():
        returns = read_returns(_run(folder, reserve), trace.nodes)
        starts = starts_of(trace, returns, *window)
        used_node_h = summary["metrics"]["used_unit_s"] / trace.units_per_node / 3600
        curves.append(_by_ago(reserve, starts, used_node_h, host_node_h))
        table += [
            _priced(curves[-1], starts, seconds, prices, a_year)
            for seconds in RETURN_TIMES_S
        ]
    figures = _figures(table, summaries, trace, prices)
    notes = [*trace.assumptions, *priced.notes()]
    notes += [] if trace.uncertain is None else [str(trace.uncertain)]
    notes += [note for summary in summaries.values() for note in summary["notes"]]
    figures["notes"] = [*dict.fromkeys(notes)]
    write_whole(folder / FIGURES, json.dumps(plain(figures), indent=1) + "\n")
    with drafted(folder / TABLE) as draft:
        pd.DataFrame(table).to_csv(draft, index=False)
    with drafted(folder / PAGE) as draft:
        page = _page(figures, curves, _run(folder, figures["reserve"]))
        draft.write_text(page, "utf-8")
    watcher.share(1.0)
    fell_back = any(summary["degraded"] for summary in summaries.values())
    return Evaluation(folder, figures, fell_back)


# --- the stages ---------------------------------------------------------------------------------------------------


def _ingest(
    form: str,
    files: Sequence[str],
    logs: IngestOptions,
    folder: Path,
    reader: Files,
    watcher: Watcher,
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
    watcher.begin("logs", _typed(["ingest", form, *files], options), done=done)
    if not done:
        found = ingested(form, files, logs, progress=_reading(read, watcher))
        write_trace(found.trace, target)
        made = {"asked": asked, "output": _digests(target, reader)}
        made["warnings"] = found.account.warnings()
        write_whole(folder / MADE, json.dumps(made, indent=1) + "\n")
    for warning in made["warnings"]:
        watcher.note(warning)


def _reading(files: Sequence[str], watcher: Watcher) -> Progress:
    """What tells how far the reading of files is, by their bytes."""
    sizes, before = {name: Path(name).stat().st_size for name in files}, 0

    @contextmanager
    def progress(name: str) -> Iterator[Callable[[int], None]]:
        nonlocal before
        yield lambda count: watcher.share((before + count) / sum(sizes.values()))
        before += sizes.get(name, 0)

    return progress


def _digests(trace: Path, reader: Files) -> list[str]:
    """SHA-256 of a trace and of the host jobs beside it, as far as they are there."""
    both = (trace, file_beside(trace) or trace)
    return [reader.digest(str(path)) for path in both if path.exists()]


def _replay(
    options: Options, folder: Path, reader: Files, watcher: Watcher
) -> dict[str, Any]:
    """Replay, unless this very replay is there; return its summary."""
    reserve = options.rules.reserve
    target, name = _run(folder, reserve), f"replay, {reserve} kept free"
    asked = _of_replay(options, "node_trace", *WORLD, *SETTING, "reserve")
    command = _typed(["replay"], {**asked, "--out": target, "--force": True})
    if is_run(target):
        summary = read_summary(target)
        if (
            key_of_run(summary) == key_of(options, reader)
            and not summary["metrics"]["interrupted"]
        ):
            watcher.begin(name, command, done=True)
            for note in summary["notes"]:
                watcher.note(note)
            return summary
    watcher.begin(name, command)
    return execute(options, target, force=True, watcher=watcher, files=reader)


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
            text = f"{each:.15g}" if isinstance(each, float) else str(each)
            typed += [flag] if isinstance(each, bool) else [flag, text]
    return shlex.join(typed)


def _of_logs(logs: IngestOptions) -> dict[str, Any]:
    """Options of logs that differ from the defaults, by flag."""
    found, usual = {}, asdict(IngestOptions())
    for name, value in asdict(logs).items():
        if value != usual[name]:
            flag = _FLAGS.get(name, name.removesuffix("_s")).replace("_", "-")
            found[f"--{flag}"] = ",".join(value) if name == "fields" else value
    return found


def _of_replay(options: Options, *names: str) -> dict[str, Any]:
    """Those of these options of a replay that differ from the defaults, by flag."""
    values, usual = options.flat(), defaults(options.flat())
    return {FIELDS[n].flag: values[n] for n in names if values[n] != usual[n]}


# --- what they found ----------------------------------------------------------------------------------------------


def _by_ago(
    reserve: int, starts: Starts, used_node_h: float, host_node_h: float | None
) -> dict[str, Any]:
    """Return what prices any whole number of seconds up to `LONGEST_S`, for the page.

    `ago` has a row for each whole number of seconds since training let go of the last node of a start: these seconds,
    how many starts, their nodes, and the sums of the exact seconds and of nodes times seconds. Where a node takes D
    seconds to return, the starts of the rows below D wait, each D less its own seconds.
    """
    ago_s = LONGEST_S - starts.delays_s(LONGEST_S)
    late = ago_s < LONGEST_S
    ago_s, nodes = ago_s[late], starts.nodes[late]
    columns = {"starts": 1, "nodes": nodes, "ago": ago_s, "nodes_ago": nodes * ago_s}
    sums = pd.DataFrame(columns).groupby(ago_s.astype(np.int64)).sum().reset_index()
    return {
        "reserve": reserve,
        "training_node_h": used_node_h,
        "host_node_h": host_node_h,
        "starts": len(starts.nodes),
        "least_s": float(ago_s.min(initial=LONGEST_S)),
        "ago": sums.to_numpy().tolist(),
    }


def _priced(
    curve: Mapping[str, Any],
    starts: Starts,
    return_time_s: float,
    prices: Mapping[str, Any],
    a_year: float,
) -> dict[str, Any]:
    """Return a row of the table; `a_year` is how often the window of the replay fits into a year."""
    used, count = curve["training_node_h"], curve["starts"]
    found = waiting(starts, return_time_s, used, curve["host_node_h"])
    net = used - prices["host_price"] * found["waiting_node_h"]
    row = {
        "reserve": curve["reserve"],
        **found,
        "starts": count,
        "delayed_share": found["delayed"] / count if count else None,
        "mean_delay_s": mean(starts.delays_s(return_time_s)),
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


def _figures(
    table: list[dict[str, Any]],
    summaries: Mapping[int, Mapping[str, Any]],
    trace: NodeTrace,
    prices: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of evaluation.json but for its notes; summaries by reserve."""
    net = "net_node_h" if prices["price_per_node_hour"] is None else "net_value_a_year"
    usual = [row for row in table if row["return_time_s"] == USUAL_S]
    best = max(usual, key=lambda row: row[net])
    summary = summaries[best["reserve"]]
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
        "prices": prices,
        "a_year": YEAR_S / trace.duration_s,
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


# --- the page -----------------------------------------------------------------------------------------------------

# Columns of the table: figure, title, and how it is written.
COLUMNS = (
    ("return_time_s", "return time, s", "number"),
    ("reserve", "nodes kept free", "number"),
    ("training_node_h_a_year", "training, node-h a year", "number"),
    ("delayed_share", "starts that wait", "share"),
    ("mean_delay_s", "mean delay, s", "number"),
    ("longest_delay_s", "longest delay, s", "number"),
    ("waiting_node_h_a_year", "own jobs wait, node-h a year", "number"),
    ("waiting_share_of_host", "share of their node-hours", "share"),
    ("break_even_price", "break-even price", "number"),
    ("net_node_h_a_year", "net, node-h a year", "number"),
    ("net_value_a_year", "net, in money a year", "money"),
)
# As evaluation.js writes them.
FORMS = {
    "number": three_digits,
    "share": lambda value: f"{three_digits(100 * value)}%",
    "money": "{:,.0f}".format,
}


def sentences(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and text of what can be read aloud, one paragraph each.

    Parameters
    ----------
    figures
        The content of evaluation.json.
    """
    text = templates().get_template("evaluation.txt").render(figures)
    for line in text.splitlines():
        title, _, sentence = line.partition(": ")
        if sentence:
            yield title, sentence


def _page(figures: dict[str, Any], curves: Sequence[dict[str, Any]], run: Path) -> str:
    """The page, with the charts of a run directory; `curves` prices any return time, for each reserve."""
    columns = [each for each in COLUMNS if each[0] in figures["table"][0]]
    shown = [(key, form) for key, _, form in columns]
    return rendered(
        "evaluation.html",
        charts_of_run(read_run(run))[:AT_ONCE],
        machine=figures["machine"],
        figures=figures,
        sentences=list(sentences(figures)),
        columns=columns,
        forms=FORMS,
        what_if=plain({**figures, "curves": curves, "columns": shown}),
        version=metadata.version("bft-replay"),
    )
