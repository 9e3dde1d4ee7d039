"""Slurm's tables, in blocks, and real files; traps one by one are cases: slurm.toml, slurm-states.toml, releases."""

import csv
import re
from datetime import datetime
from itertools import chain, pairwise, repeat
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from log_cases import spans
from refusals import refused
from synthetic_logs import damages, read_files, read_texts, stamp, taken

from bft.models import InputError
from bft.replay.logs import Ingested, IngestOptions, ingested, lines
from bft.replay.trace.node_trace import SECOND_NS

COMMAS = ["JobName", "NodeList", "AllocTRES", "Start", "End"]
HOST = r"(?=[^,])[\w.-]*(\[[\d,-]+\][\w.-]*)*"
# What a column of that table holds; the number of a job stands first, and a name may be anything.
HELD = {
    "JobName": re.compile(r".*"),
    "NodeList": re.compile(rf"{HOST}(,{HOST})*"),
    "AllocTRES": re.compile(r"(\w+=\w+(,\w+=\w+)*)?"),
    "Start": re.compile(r"[\d-]+T[\d:]+"),
    "End": re.compile(r"[\d-]+T[\d:]+"),
}


def ways(columns: list[str], fields: list[str]) -> set[tuple[tuple[str, str], ...]]:
    """All that nodes, start and end may be, with each column of one field or more, by trying every place to cut."""
    if not columns:
        return set() if fields else {()}
    first, *others = columns
    found = set()
    for size in range(1, len(fields) - len(others) + 1):
        text = ",".join(fields[:size])
        if HELD[first].fullmatch(text):
            held = () if first in ("JobName", "AllocTRES") else ((first, text),)
            found |= {(*held, *rest) for rest in ways(others, fields[size:])}
    return found


JOBS = st.tuples(
    st.sampled_from(["n1", "n[1-3]", "n[1,3-4]", "n[1,3],m2", "n1,m2", "a[1,2]-b[3,4]", "x-1.org,y"]),
    st.sampled_from(["run", "a,b", "n1", "x=1,y", "n[1", "[2]", ""]),
)  # fmt: skip


@given(st.permutations(COMMAS), st.lists(JOBS, max_size=4))
# Either node=1 is the name, or a node is called run.
@example(["Start", "End", "AllocTRES", "JobName", "NodeList"], [("n1", "run")])
def test_lists_in_a_table_with_commas_are_read_whole_or_the_row_is_skipped(
    order: list[str], jobs: list[tuple[str, str]]
) -> None:
    """Nothing says where a host list ends that stands between commas: no other nodes may come of it."""
    columns = ["JobID", *order]
    for number, (nodes, name) in enumerate(jobs):
        row = {"JobID": str(number), "NodeList": nodes, "JobName": name, "Start": stamp(60 * number),
               "AllocTRES": "billing=4,cpu=4,mem=2G,node=1", "End": stamp(60 * number + 30)}  # fmt: skip
        cells = [row[column] for column in columns]
        whole, apart = (
            read_files(
                "slurm",
                f"{mark.join(columns)}\n{mark.join(cells)}\n",
                nodes=["n[1-4],m2,a[1,2]-b[3,4],x-1.org,y"],
            )
            for mark in ",|"
        )
        is_clear = len(ways(order, ",".join(cells).split(",")[1:])) == 1
        assert (whole[1].used, sum(t.count for t in whole[1].skipped.values())) == (
            (1, 0) if is_clear else (0, 1)
        )
        assert whole[0] == (apart[0] if is_clear else set())


@pytest.mark.parametrize("mark", [",", ";", "|", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_fully_quoted_table(mark: str, end: str) -> None:
    """Delimiters, line breaks and doubled quotes inside quotes belong to their field."""
    times = (stamp(60), stamp(120), "COMPLETED")
    names = ("JobID", "JobName", "NodeList", "Start", "End", "State")
    rows = [
        ("1", f"a{mark}b", "n[1,3]", *times),
        ("2", f'a\n"" said{mark}\n', "n2", *times),
        ("1.batch", "b", "n1", *times),
    ]
    header, *lines = [mark.join(f'"{field}"' for field in row) for row in (names, *rows)]  # fmt: skip
    for text, fields in ((end.join([header, *lines]), ()), (end.join(lines), names)):
        found, account = read_files("slurm", text + end, fields=fields)
        assert found == spans("n1 60-120, n2 60-120, n3 60-120")
        assert (account.rows, account.used, account.lines) == (3, 2, 6 - bool(fields))


# --- real files -----------------------------------------------------------------------------------------------------

COST = (
    "State", "JobID", "ReqCPUS", "ReqMem", "ReqNodes", "Constraints", "Submit", "Eligible", "Start", "Elapsed",
    "Suspended", "End", "ExitCode", "DerivedExitCode", "AllocNodes", "NCPUS", "MaxDiskRead", "MaxDiskWrite",
    "MaxPages", "MaxRSS", "MaxVMSize", "CPUTime", "UserCPU", "SystemCPU", "TotalCPU",
)  # fmt: skip


def seconds(stamp: str) -> int:
    return int(np.datetime64(stamp, "s").astype(np.int64))


def read_real(path, form: str = "slurm", **options) -> Ingested:
    return ingested(
        form,
        [str(path)],
        IngestOptions(tz="UTC", allow_few=True, min_gap_s=0.0, **options),
    )


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "lines", "rows", "used", "others", "nodes"),
    [
        ("xdmod-phillips.sacct.log.gz", 4285, 4285, 4024, {"job that never started": 239, "job of zero length": 22},
         46),
        ("xdmod-unit-accounting-logs-with-job-arrays.log", 6, 6, 6, {}, 32),
        ("xdmod-unit-accounting-logs.log", 4, 4, 3, {"job of zero length": 1}, 41),
        ("xdmod-unit-utf8-multibyte-chars.log", 1, 1, 1, {}, 1),
        ("slurm2sql-test-data1.csv", 6, 5, 1, {"job step": 3, "has ended, but its end is missing": 1}, 1),
        ("slurmsimtools-sacct_dump2101.log", 16, 15, 6, {"job step": 2, "job that never started": 6,
         "has fewer fields than columns: cut off?": 1}, 2),
        ("slurmsimtools-sacct_dump2110.log", 8, 7, 1, {"job step": 2,
         "a record that repeats another one of the same job": 4}, 1),
        ("slurmsimtools-sacct_simple.log", 5, 4, 4, {}, 4),
        ("slurmsimtools-sacct_submitline_multiline.log", 19, 13, 2, {"job step": 7,
         "a record that repeats another one of the same job": 4}, 17),
    ],
)  # fmt: skip
def test_real_files_with_names_of_nodes(
    reference, name: str, lines: int, rows: int, used: int, others: dict[str, int], nodes: int
) -> None:  # fmt: skip
    fields = ("xdmod",) if name.startswith("xdmod") else ()
    made = read_real(reference / "logs/slurm" / name, fields=fields)
    unused = {**made.account.skipped, **made.account.left_out}
    assert {why: tally.count for why, tally in unused.items()} == others
    counts = (made.account.lines, made.account.rows, made.account.used)
    assert (*counts, len(made.trace.nodes)) == (lines, rows, used, nodes)


@pytest.mark.reference
def test_fields_in_excess_are_put_where_they_belong(reference) -> None:
    """Names, constraints and command lines with delimiters in them, over several lines."""
    jobs = read_real(
        reference / "logs/slurm/slurmsimtools-sacct_submitline_multiline.log"
    ).trace.host_jobs
    lengths = (jobs.end - jobs.start) // SECOND_NS
    names = [jobs.names[node] for node in jobs.nodes.tolist()]
    assert lengths.tolist() == [56, 9600]  # Elapsed 00:00:56, 02:40:00
    assert (names[0], "cpn-u25-36" in names[1:], len(names)) == ("cpn-v09-10", True, 17)


@pytest.mark.reference
@pytest.mark.parametrize(
    "folder",
    ["", "array", "multi-node", "issues/17", "issues/gl-20"],
)
def test_jobs_without_names_of_nodes_agree_with_what_others_made_of_them(
    reference, folder: str
) -> None:
    base = reference / "logs/slurm/hpc-cost-simulator" / folder
    version = "" if folder else "-v1"
    made = read_real(
        base / f"sacct-output{version}.txt", fields=COST, machine_nodes=100
    )
    with (base / f"exp_jobs{version}.csv").open(newline="") as table:
        expected = [
            row
            for row in csv.DictReader(table)
            if row["start_time"] and row["start_time"] < row["finish_time"]
        ]
    jobs = made.trace.host_jobs
    begun = jobs.start < jobs.end
    columns = (jobs.count, jobs.start // SECOND_NS, jobs.end // SECOND_NS)
    ours = sorted(zip(*(column[begun].tolist() for column in columns), strict=True))
    theirs = sorted(
        (int(row["num_hosts"]), *(seconds(row[name]) for name in ("start_time", "finish_time")))
        for row in expected
    )  # fmt: skip
    if folder == "issues/gl-20":  # theirs leaves out jobs whose memory it cannot read
        assert (set(theirs), len(theirs), len(ours)) == (set(ours), 7, 11)
    elif folder == "issues/17":  # theirs makes a job of a step whose job is not in it
        assert set(ours) < set(theirs)
    else:
        assert ours == theirs


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("slurmsimtools-jobs500.csv", "slurm", "line 1: expected a header"),
        ("xdmod-sacct.json", "slurm-json", "no.* list 'jobs'|not JSON with a list"),
        ("xdmod-unit-accounting-logs.log", "slurm", "line 1: expected a header.*--fields"),
        ("xdmod-phillips.sacct.log.gz", "slurm", "fits slurm --fields xdmod"),
        ("xdmod-unit-non-ended-job-state.log", "slurm", "job that never started: 1"),
        ("xdmod-unit-unknown-job-state.log", "slurm", "job of zero length: 1"),
        ("hpc-cost-simulator/issues/5/sacct-output.txt", "slurm", "job that never started: 3"),
        ("hpc-cost-simulator/issues/61/sacct-output.txt", "slurm", "another number of fields than columns, .*: 2"),
        ("hpc-cost-simulator/issues/63/sacct-output.txt", "slurm", "job step: 1"),
    ],
)  # fmt: skip
def test_real_files_that_are_no_log_of_jobs(
    reference, name: str, kind: str, what: str
) -> None:
    fields = ("xdmod",) if name.endswith("-job-state.log") else ()
    fields = COST if "/" in name else fields
    refused(what, read_real, reference / "logs/slurm" / name, kind, fields=fields)


@pytest.mark.reference
def test_the_short_gaps_of_a_real_log(reference) -> None:
    """2,202 gaps with a median of 1 s, where jobs of zero length split gaps too: without these 22, 2,180."""
    log = reference / "logs/slurm/xdmod-phillips.sacct.log.gz"
    made = read_real(
        log, fields=("xdmod",), uncertain="idle", begin="2005-01-01", end="2020-01-01"
    )
    gaps = sorted(
        start - end
        for (one, _, end), (other, start, _) in pairwise(sorted(taken(made.trace)))
        if one == other
    )
    assert (len(gaps), gaps[len(gaps) // 2]) == (2202 - 22, 1)


HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State|Cluster|Partition|AllocTRES|Timelimit|Eligible"
ROW = "{}|a|n0{}|1|1612900{}0|1612901{}0|COMPLETED|a|gpu|gres/gpu=2,cpu=8|01:00:00|1612899000"
# What columns hold is learned from these rows, which the first block has in any case.
HEAD = "\n".join([HEADER, *(ROW.format(k, k, k, k) for k in range(10, 16))]) + "\n"
USUAL = st.sampled_from(["1612900000", "1612950000", "2021-02-10T20:21:15"])
TIMES = USUAL | st.datetimes(datetime(2021, 2, 1), datetime(2021, 2, 3)).map(
    lambda stamp: f"{stamp:%Y-%m-%dT%H:%M:%S}"
) | st.sampled_from(
    ["", "Unknown", "0", "soon", "2021-02-10 20:21:15", "1612990000.5", "2021-10-31T02:30:00", "2021-03-28T02:30:00",
     "2021-02-29T00:00:00", "1970-01-01T00:00:00", "2262-01-01T00:00:00", "9199999999", "2021-02-10T20:21:15Z"]
)  # fmt: skip
CELLS = st.tuples(
    st.integers(0, 20).map(str) | st.sampled_from(["7.batch", "5_[1-9]", "6_1", "8+1", "", "x", "JobID"]),
    st.sampled_from(["a", "a", "a", "séquence", "a|b", "a\nb", ""]),
    st.sampled_from(["n01", "n[01-03]", "m[01-02,05]", "", "None assigned", "n01,n02", "n[03-01]", "n[01-02"]),
    st.sampled_from(["3", "3", "1", "01", "", "x", "99999999999999999999"]),
    TIMES,
    TIMES,
    st.sampled_from(["COMPLETED", "RUNNING", "CANCELLED by 7"]),
    st.sampled_from(["a", "a", "a", "B", "A", ""]),
    st.sampled_from(["gpu", "gpu", "GPU", "cpu", "cpu,gpu", ""]),
    st.sampled_from(["gres/gpu=2,cpu=8", "cpu=8", "gres/gpu=99", "", "gres/gpu:a=1"]),
    st.sampled_from(["01:00:00", "1-00:00:00", "UNLIMITED", "soon", ""]),
    st.sampled_from(["1612899000", "2021-02-10T20:21:15", "Unknown", "2021-10-31T02:30:00"]),
).map("|".join)  # fmt: skip
ODD = st.sampled_from(["", "# c", "   ", "a|b", HEADER, f"\ufeff{HEADER}"])
ROWS = st.lists(CELLS | CELLS | CELLS | ODD, min_size=1, max_size=20).map("\n".join)
TWO_LINES = ROW.format(1, 1, 1, 1).replace("|a|", "|a\nb|", 1)


def outcome(text: str, size: int, **asked):
    """All that a user can see of a log, whose blocks after the first have so many bytes; or why it was refused."""

    def unpacked(stored):
        sizes = chain([len(HEAD.encode())], repeat(size))
        return SimpleNamespace(
            peek=stored.peek, read=lambda _: stored.read(next(sizes))
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "unpacked", unpacked)
        try:
            made = read_texts("slurm", text, **asked)
        except InputError as error:
            return [str(error)]
    account = made.account.as_dict()
    found = {each["reason"]: each for name in ("skipped", "left_out", "notes") for each in account[name]}  # fmt: skip
    jobs = made.trace.host_jobs
    columns = ("known", "start", "end", "expected_end", "count", "nodes", "offsets")
    known = [] if jobs is None else [getattr(jobs, name).tolist() for name in columns]
    counted = (account["lines"], account["rows"], found)
    return [taken(made.trace), made.coverage, made.trace.uncertain, counted, known]


@given(
    rows=ROWS | ROWS.flatmap(damages),
    size=st.sampled_from([1, 60, 400]),
    asked=st.sampled_from(
        [
            {"tz": "Europe/Berlin"},
            {"tz": None, "strict": True},
            {"cluster": "a"},
            {"partition": "gpu"},
            {"cluster": "b", "partition": "cpu"},
            {"unit": "gpu", "units_per_node": 4},
            {"unit": "cpu:4", "cluster": "a"},
        ]
    ),
)
@example(
    rows=f"{ROW.format(1, 1, 1, 1)}\n{HEADER}\n{HEADER}\n",
    size=60,
    asked={"cluster": "a"},
)
@example(rows=f"{TWO_LINES}\n{ROW.format(2, 1, 3, 3)}\n{TWO_LINES}\n", size=1, asked={})
@example(
    rows=f"{ROW.format(2, 1, 3, 3)}\n{TWO_LINES.partition('b|')[0]}", size=1, asked={}
)
def test_where_a_block_ends_changes_nothing(asked, rows: str, size: int) -> None:
    assert outcome(HEAD + rows, size, **asked) == outcome(HEAD + rows, 1 << 20, **asked)
