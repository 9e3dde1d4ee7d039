"""What the idle nodes of public machines are worth, and what it costs their users: a page of what FOLDER holds.

    python -m benchmarks.machines FOLDER              # writes FOLDER/machines.md
    python -m benchmarks.machines FOLDER --days 14    # replays 14 days of each instead of 7

FOLDER holds data sets of docs/data.md as they were downloaded, in any folders below it. They are known by their names,
other tables by their columns. Of each the whole is ingested, and its middle days are replayed: with the published
setting and with `--preset best`, jobs generated to its size, the exact dynamic programme, and a return time of 120 s.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bft
from benchmarks._tables import program
from bft.models import InputError
from bft.replay.logs.formats import detect
from bft.replay.logs.lines import first_line, open_lines
from bft.replay.logs.tables import column_map, public_tables
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.parts import cut
from bft.replay.trace.trace_statistics import iso, trace_statistics

RETURN_TIME_S = 120.0
SETTINGS: dict[str, dict[str, Any]] = {
    "published": {"tfwd": 120},
    "best": {"preset": "best"},
}
OWN_ROWS = "rows of our own"
README_ROWS = "rows of our own, and those of its README"
TABLES = (".csv", ".csv.gz", ".parquet", ".swf", ".swf.gz")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A public table of jobs.

    Parameters
    ----------
    machine
        Its name.
    files
        Regular expression for the names of its files, with their folders.
    table
        Its map (`ingest --map`); empty: the format shows itself.
    options
        Options of `ingest` beside the map.
    tried
        What the project has read of it; never the whole.
    """

    machine: str
    files: str
    table: str
    options: dict[str, Any] = field(default_factory=dict)
    tried: str = OWN_ROWS


DATA_SETS = (
    DataSet("Aurora", r"ANL-ALCF-DJC-AURORA_\w+\.csv(\.gz)?", "alcf"),
    DataSet("Polaris", r"ANL-ALCF-DJC-POLARIS_\w+\.csv(\.gz)?", "alcf"),
    DataSet("Frontier", r"frontier-\d{4}\.swf(\.gz)?", "frontier"),
    DataSet(
        "Lassen",
        r"final_csm_allocation_(history_hashed|node_history)\.csv(\.gz)?",
        "lassen",
        {"tz": "America/Los_Angeles"},
    ),
    DataSet("Kestrel", r"kestrel_jobs_\w+\.parquet", "kestrel"),
    DataSet("Seren, GPUs", r"trace_seren\.csv", "acme", {"machine_nodes": 2288}, README_ROWS),
    DataSet("Kalos, GPUs", r"trace_kalos\.csv", "acme", {"machine_nodes": 2416}, README_ROWS),
    *(
        DataSet(f"Helios {name}, GPUs", rf"{name}/cluster_log\.csv", "acme", {"tz": "Asia/Shanghai"}, README_ROWS)
        for name in ("Earth", "Saturn", "Uranus", "Venus")
    ),
    DataSet("Marconi100", r"job_table\.parquet", "pm100", {"tz": "UTC"}),
    DataSet("Fugaku", r"\d\d_\d\d\.parquet", "fugaku", {"tz": "Asia/Tokyo", "machine_nodes": 158_976}),
    DataSet("Adastra", r"AdastaJobsMI250_15days\.parquet", "adastra", {"tz": "Europe/Paris"}),
    DataSet("MIT Supercloud", r"slurm-log\.csv", "mit-supercloud"),
)  # fmt: skip


def main() -> int:
    """Write the page; 1 where a data set could not be read, 2 where there is none."""
    parser = program(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--days", type=float, default=7.0, help="to replay; 0: none [7]"
    )
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"there is no folder {given.folder}")
    found, unknown = recognised(given.folder)
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for known, files in found:
        print(f"{known.machine}: {len(files)} files", file=sys.stderr)
        try:
            rows.append(measured(known, files, given.days))
        except InputError as error:
            failed.append(f"- {known.machine}: {error}")
    page = given.folder / "machines.md"
    page.write_text("\n".join(lines_of(rows, failed, unknown, given.folder)) + "\n")
    print(page)
    return 1 if failed else 0 if rows else 2


def recognised(
    folder: Path,
) -> tuple[list[tuple[DataSet, list[str]]], list[Path]]:
    """Return the data sets that a folder holds, each with its files, and the tables that are none of them."""
    files = sorted(
        path for path in folder.rglob("*") if path.name.lower().endswith(TABLES)
    )
    found: list[tuple[DataSet, list[str]]] = []
    for known in DATA_SETS:
        pattern = re.compile(rf"(.*/)?{known.files}")
        own = [path for path in files if pattern.fullmatch(path.as_posix())]
        files = [path for path in files if path not in own]
        if own:
            found.append((known, [str(path) for path in own]))
    unknown = []
    for path in files:
        table = _table_by_columns(path)
        if table is None:
            unknown.append(path)
        else:
            known = DataSet(path.name, path.name, table, tried="nothing of it")
            found.append((known, [str(path)]))
    return found, unknown


def _table_by_columns(path: Path) -> str | None:
    """Return the map whose columns a file has; empty where its format shows itself, None where neither is so."""
    with open_lines(path) as lines:
        head = first_line(lines)
    columns = {cell.strip().strip('"') for cell in head.split(",")}
    for name, table in public_tables().items():
        theirs = set(column_map(table.columns).values()) if table.columns else set()
        if theirs and not table.header and not table.lookup and theirs <= columns:
            return name
    return "" if detect(head) in ("cobalt", "swf", "slurm") else None


def measured(known: DataSet, files: Sequence[str], days: float) -> dict[str, Any]:
    """Ingest a data set, and replay its middle days under each setting."""
    stated = {"columns": known.table, **known.options}
    trace = bft.ingest(files, "auto", **stated)
    whole = trace_statistics(trace)
    row: dict[str, Any] = {
        "machine": known.machine,
        "tried": known.tried,
        "nodes": len(trace.nodes),
        "whole": whole,
        "zone": f" Times that state no zone count as {trace.zone}." * bool(trace.zone),
        "notes": trace.notes,
    }
    if not days:
        return row | {name: {} for name in SETTINGS} | {"window": "nothing"}
    part = middle(trace, days)
    row["window"] = f"{iso(part.start)} to {iso(part.end)}"
    for name, setting in SETTINGS.items():
        run = bft.replay(part, backend="exact", return_time=RETURN_TIME_S, **setting)
        row[name] = run.metrics
    return row


def middle(trace: NodeTrace, days: float) -> NodeTrace:
    """Return the days in the middle of a trace, or all of it where it has fewer."""
    length = round(days * 86_400 * SECOND_NS)
    if trace.end - trace.start <= length:
        return trace
    start = (trace.start + trace.end - length) // 2
    return cut(trace, start, start + length)


def worth(metrics: dict[str, Any]) -> float | None:
    """Return the number of dedicated nodes on which the same jobs would have done as much."""
    if metrics.get("U") is None:
        return None
    return float(metrics["U"] * metrics["dedicated_nodes"])


EXPLAINED = f"""\
Idle share, idle nodes and fragments are those of all days in the files; the replays are of the windows below.
*Worth* is the number of dedicated nodes on which the same generated jobs would have done as much under the same
setting, so that settings compare by the share.
*Of the bound* is the share of what no policy can exceed (docs/bounds.md).
Host jobs wait where a node that they take returns after {RETURN_TIME_S:g} s; nodes that leave at one instant count as
one start, and *training for each* is the node-hours of training for a node-hour that host jobs wait
(docs/host-jobs.md).
Nodes that were down or reserved look idle, because these tables do not state it.
Jobs of tables with counts are placed on the first free nodes, so that their fragments are a model."""
HEADER = (
    "machine", "nodes", "days", "idle", "idle nodes", "median fragment", "setting", "worth in nodes",
    "of the bound", "host starts that wait", "host node-h waiting", "training for each",
)  # fmt: skip


def lines_of(
    rows: Sequence[dict[str, Any]],
    failed: Sequence[str],
    unknown: Sequence[Path],
    folder: Path,
) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# What the idle nodes of these machines are worth, and what it costs their users", "")  # fmt: skip
    if rows:
        yield f"| {' | '.join(HEADER)} |"
        yield f"|{'---|' * len(HEADER)}"
        for row in rows:
            yield from _table_rows(row)
        yield from ("", EXPLAINED)
        yield from ("", "## Windows and notes", "")
        for row in rows:
            tried = f"The project itself has read {row['tried']}.{row['zone']}"
            yield f"- {row['machine']}: replayed {row['window']}. {tried}"
            for note in row["notes"]:
                yield f"  - {note}"
    if failed:
        yield from ("", "## Not read", "", *failed)
    if unknown:
        yield from ("", "## Not recognised", "")
        yield from (f"- {path.relative_to(folder)}" for path in unknown)


def _table_rows(row: dict[str, Any]) -> Iterator[str]:
    """Yield one line of the table for each setting; what the settings share stands in the first."""
    whole = row["whole"]
    median = whole.get("fragments", {}).get("seconds_quantiles", {}).get("p50")
    shared = [
        row["machine"],
        f"{row['nodes']:,}",
        f"{whole['duration_s'] / 86_400:.1f}",
        _number(whole["idle_share"], ".1%"),
        f"{whole['idle_nodes_mean']:,.1f}",
        _number(median, ",.0f", " s"),
    ]
    for number, name in enumerate(SETTINGS):
        metrics = row[name]
        host = metrics.get("host") or {}
        cells = [
            name,
            _number(worth(metrics), ",.1f"),
            _number(metrics.get("share_of_bound"), ".1%"),
            _number(host.get("delayed_share"), ".1%"),
            _number(host.get("waiting_node_h"), ",.1f"),
            _number(host.get("break_even_price"), ".1f"),
        ]
        first = [""] * len(shared) if number else shared
        yield f"| {' | '.join([*first, *cells])} |"


def _number(value: float | None, form: str, unit: str = "") -> str:
    """Return a number as text, or a dash."""
    return "-" if value is None else f"{value:{form}}{unit}"


if __name__ == "__main__":
    sys.exit(main())
