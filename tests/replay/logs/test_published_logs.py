"""Published logs of schedulers: what others found in them, record by record; and small inputs after public reports."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from synthetic_logs import idle_told, read_texts, taken

from bft.datasets import generate_log
from bft.replay.logs import Ingested, expand_hosts
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace

pytestmark = pytest.mark.reference


def read(form: str, *files: Path) -> Ingested:
    texts = [file.read_text() for file in files]
    return read_texts(form, *texts, window=None, keep_records=True)


def jobs_of(made: Ingested, *files: Path):
    """The nodes of each job of lsb.acct that is used, by its number, start and end in seconds since 1970."""
    lines = [line.split() for file in files for line in file.read_text().splitlines()]
    first = {"log.0": 0, "log.1": len(files[0].read_text().splitlines())}
    return {
        (lines[first[row["file"]] + row["line"] - 1][3], row["start"] // SECOND_NS, row["end"] // SECOND_NS):
        len(expand_hosts(row["hosts"]))
        for row in made.records.to_pylist() if not row["why"]
    }  # fmt: skip


def known_jobs(file: Path) -> set[tuple[str, int, int]]:
    rows = [
        row for row in csv.DictReader(file.read_text().splitlines()) if row["job_id"]
    ]
    times = [[row[name] for name in ("start_time", "finish_time")] for row in rows]
    seconds = np.array(times, dtype="datetime64[s]").astype(int).reshape(-1, 2).tolist()
    return {(row["job_id"], *each) for row, each in zip(rows, seconds, strict=True)}


# Folder of an issue; rows of ours that the other program has not: it refuses records whose tail is cut off.
@pytest.mark.parametrize(
    ("issue", "name", "more"),
    [
        ("16", "issue-16", 0),
        ("18", "issue-18", 0),
        ("31", "issue-31", 0),
        ("44", "issue-44", 0),
        ("gl-9", "hostFactor-not-a-float", 0),
        ("gl-16", "issue-gl-16", 0),
        ("gl-22", "issue-gl-22", 0),
        ("gl-19", "issue-gl-19", 2),
        ("gl-26", "issue-gl-26", 5),
    ],
)
def test_published_records_of_lsf(
    reference: Path, issue: str, name: str, more: int
) -> None:
    folder = reference / "logs" / "lsf" / "hpc-cost-simulator" / "issues" / issue
    log = folder / f"lsb.acct.{name}"
    known = known_jobs(folder / "exp_jobs.csv")
    if not (known or more):
        refused("job that never started", read, "lsf", log)
        return
    found = jobs_of(read("lsf", log), log)
    assert len(found) == len(known) + more
    assert known <= set(found)


def test_published_accounting_and_events_of_lsf_agree(reference: Path) -> None:
    folder = reference / "logs" / "lsf" / "hpc-cost-simulator"
    files = folder / "lsb.acct.16", folder / "lsb.acct"
    acct, events = read("lsf", *files), read("lsf-events", folder / "lsb.events")
    found = jobs_of(acct, *files)
    assert set(found) == known_jobs(folder / "exp_jobs.csv")
    assert {job: count for (job, _, _), count in found.items() if count > 1} == {
        "160": 2,
        "161": 8,
        "166": 2,
        "167": 3,
        "273": 2,
        "274": 2,
        "275": 3,
        "280": 2,
        "281": 5,
    }
    assert (events.account.rows, events.account.used) == (664, 2 * len(found))
    window = {"begin": "2021-01-01", "end": "2023-01-01", "window": None}
    one, other = (
        read_texts(form, *(file.read_text() for file in names), **window)
        for form, names in (("lsf", files), ("lsf-events", [folder / "lsb.events"]))
    )
    assert taken(one.trace) == taken(other.trace)


@pytest.mark.parametrize(
    ("form", "log", "used", "skipped", "left_out"),
    [
        ("lsf", "bad-records/lsb.acct-invalid-record-type", 4, 2, 0),
        ("lsf", "bad-records/lsb.acct-missing-fields", 6, 0, 0),
        ("lsf", "numExHosts/lsb.acct", 2, 0, 1),  # one of them twice
        ("lsf", "not-enough-fields/lsb.acct.not-enough-fields.1", 2, 0, 0),
        ("lsf", "not-enough-fields/lsb.acct.not-enough-fields.2", 1, 0, 0),
        ("pbs", "torque-docs-lifecycle.log", 1, 0, 2),
        (
            "pbs",
            "xdmod-unit-accounting-logs.log",
            8,
            1,
            0,
        ),  # a job of one node that the log does not name
        ("sge", "xdmod-unit-accounting.log", 2, 0, 0),
        ("swf", "accasim-workload.swf", 25, 0, 0),
    ],
)
def test_account_of_published_logs(
    reference: Path, form: str, log: str, used: int, skipped: int, left_out: int
) -> None:
    folder = reference / "logs" / form
    file = folder / "hpc-cost-simulator" / log if form == "lsf" else folder / log
    window = None if form == "swf" else (-(10**9), 10**8)
    account = read_texts(form, file.read_text(), window=window).account
    unused = [
        sum(each.count for each in tallies.values())
        for tallies in (account.skipped, account.left_out)
    ]
    assert (account.used, *unused) == (used, skipped, left_out)


def test_published_records_of_pbs(reference: Path) -> None:
    folder = reference / "logs" / "pbs"
    known = json.loads((folder / "xdmod-unit-expected.json").read_text())
    made = read("pbs", folder / "xdmod-unit-accounting-logs.log")
    found = {
        row["line"]: (
            row["start"] // SECOND_NS,
            row["end"] // SECOND_NS,
            set(row["hosts"].split(",")),
        )
        for row in made.records.to_pylist()
    }
    assert found == {
        line: (
            int(job["start"]),
            int(job["end"]),
            set(job.get("node_list", "").split(",")),
        )
        for line, job in enumerate(known.values(), 1)
    }


def test_a_published_workload_leaves_as_many_nodes_idle_as_its_jobs_do(
    reference: Path,
) -> None:
    text = gzip.decompress(
        (reference / "logs" / "swf" / "alea-hpc2n-excerpt.swf.gz").read_bytes()
    ).decode()
    made = read_texts("swf", text, window=None)
    assert (made.account.rows, made.account.used, made.coverage.nodes) == (
        3170,
        3145,
        240,
    )
    table = np.array(
        [line.split() for line in text.splitlines() if line.strip() and line[0] != ";"],
        dtype=float,
    )
    ran = table[(table[:, 3] >= 0) & (table[:, 2] >= 0)]
    begins = 1027839845 + ran[:, 1] + ran[:, 2]
    for event in range(0, len(made.trace), 200):
        now = made.trace.times[event] / SECOND_NS
        running = (begins <= now) & (now < begins + ran[:, 3])
        assert made.trace.idle_counts()[event] == 240 - ran[running, 4].sum()


@pytest.mark.parametrize(
    ("form", "log", "why"),
    [
        (
            "lsf",
            "lsf/hpc-cost-simulator/accounting.lsb",
            r"is no whole record of lsb\.acct.*line 2",
        ),
        (
            "swf",
            "swf/slurmsimtools-jobs500.swf",
            "has not 18 fields separated by blanks.*line 1, 1 fields",
        ),
        # Blocks of a Blue Gene.
        (
            "cobalt",
            "cobalt/mira-djc-3rows.csv",
            "neither a list of hosts nor one of node numbers: 3 ",
        ),
    ],
)
def test_published_files_of_something_else_are_refused(
    reference: Path, form: str, log: str, why: str
) -> None:
    refused(why, read, form, reference / "logs" / log)


# Written by sge_qmaster 8.1.9 (Debian 12).
RECORD = (
    "all.q:n1:root:root:tight.sh:1:sge:0:1795444437:1795444438:1795444445"
    ":0:0:7:0.109973:0.029575:18184.000000:0:0:0:0:14651:1:0:48.000000:40:0:0:0:321:136:NONE:defaultdepartment"
    ":mpi:8:0:0.139548:0.000000:0.001220:-pe mpi 8:0.000000:NONE:24547328.000000:0:0"
)


def test_a_generated_log_has_the_fields_of_a_real_one() -> None:
    """Fields are numbers or not, but for those that name a job, its category and its task."""
    records = [*generate_log("sge", nodes=8, days=1).splitlines(), RECORD]
    kinds = [
        [field.replace(".", "").isdecimal() for field in record.split(":")]
        for record in records
    ]
    assert len({(*kind[:4], *kind[5:39], kind[40], *kind[42:]) for kind in kinds}) == 1


# --- small inputs after public reports, and relatives of each -------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        "kubernetes-evicted",
        "nodes-down-in-the-list",
        "pbs-array-parent",
        "pbsnodes-vnodes",
        "running-with-a-past-end",
        "sge-colon-in-account",
    ],
)
def test_small_inputs_after_public_reports(
    reference: Path, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:  # fmt: skip
    """Right within 0.2 % of the node-time, and no row is skipped; relatives are cases of test_formats."""
    monkeypatch.chdir(reference / "public" / case)
    out = tmp_path / "trace.parquet"
    line = Path("command").read_text().replace("trace.parquet", str(out))
    told(f"{line.removeprefix('bft-replay ')} --strict")
    trace, truth = read_trace(out), json.loads(Path("truth.json").read_text())
    assert set(trace.nodes) == set(truth["nodes"])
    begin, end = trace.start // SECOND_NS, trace.end // SECOND_NS
    idle = idle_told(trace, begin, end - begin)
    truly = np.ones_like(idle)
    for node, spans in truth["busy"].items():
        for low, high in np.maximum(np.array(spans, dtype=int) - begin, 0):
            truly[trace.nodes.index(node), low:high] = False
    assert (idle != truly).mean() < 0.002
