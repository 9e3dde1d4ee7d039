"""Time limits and the queue in logs: the same jobs in the words of each scheduler give the same walltimes."""

from __future__ import annotations

import json
from array import array
from itertools import pairwise
from pathlib import Path

import pytest

from bft.datasets import generate_log
from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs.collector import Plan, Plans
from bft.replay.logs.from_files import IngestOptions, ingested
from bft.replay.logs.times import limit_ns
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.walltimes import NEVER, Walltimes, read_walltimes

T0 = 1_704_067_200  # 2024-01-01, UTC
# Seconds after T0: eligible, start, end, expected end; number of nodes, nodes. None: never, or not known.
JOBS = [
    (0, 10, 700, 3610, 2, ["n1", "n2"]),
    (5, 700, 900, None, 1, ["n1"]),
    (20, None, 650, None, 3, []),
    (30, 700, None, 7900, 1, ["n2"]),
    (40, None, None, None, 2, []),
]
SACCT = """JobID|NodeList|NNodes|Start|End|State|Eligible|Timelimit
1|n[1-2]|2|2024-01-01T00:00:10|2024-01-01T00:11:40|COMPLETED|2024-01-01T00:00:00|01:00:00
2|n1|1|2024-01-01T00:11:40|2024-01-01T00:15:00|COMPLETED|2024-01-01T00:00:05|UNLIMITED
3|None assigned|3|Unknown|2024-01-01T00:10:50|CANCELLED by 7|2024-01-01T00:00:20|1-00:00:00
4|n2|1|2024-01-01T00:11:40|Unknown|RUNNING|2024-01-01T00:00:30|02:00:00
4.0|n2|1|2024-01-01T00:11:40|Unknown|RUNNING|2024-01-01T00:00:30|
5|None assigned|2|Unknown|Unknown|PENDING|2024-01-01T00:00:40|10:00
6|None assigned|2|Unknown|Unknown|PENDING|Unknown|10:00
"""


def rows(walltimes: Walltimes) -> list[tuple[object, ...]]:
    """As JOBS has them."""

    def after(instant: int) -> float | None:
        return None if instant == NEVER else instant / SECOND_NS - T0

    names = [walltimes.names[node] for node in walltimes.nodes.tolist()]
    offsets = walltimes.offsets.tolist()
    columns = (walltimes.known, walltimes.start, walltimes.end, walltimes.expected_end)
    times = zip(
        *([after(instant) for instant in column.tolist()] for column in columns),
        strict=True,
    )
    lists = (names[low:high] for low, high in pairwise(offsets))
    return [
        (*each, count, nodes)
        for each, count, nodes in zip(
            times, walltimes.count.tolist(), lists, strict=True
        )
    ]


def known(form: str, *texts: str, folder: Path, **options: object) -> Walltimes:
    files = []
    for number, text in enumerate(texts):
        files.append(str(folder / f"log{number}"))
        Path(files[-1]).write_text(text, "utf-8")
    asked = IngestOptions(tz="UTC", walltimes=True, allow_few=True, **options)  # type: ignore[arg-type]
    made = ingested(form, files, asked)
    assert made.walltimes is not None
    return made.walltimes


def json_jobs(*, queued: bool) -> str:
    """As `sacct --json` states them, or `squeue --json` those that have not ended."""
    entries = []
    for number, (eligible, start, end, expected, count, nodes) in enumerate(JOBS, 1):
        limit = {
            "set": True,
            "infinite": expected is None,
            "number": ((expected or 0) - (start or 0)) // 60,
        }
        state = (
            "PENDING"
            if start is end is None
            else "RUNNING"
            if end is None
            else "CANCELLED"
            if not nodes
            else "DONE"
        )
        times = [0 if at is None else T0 + at for at in (eligible, start, end)]
        entry: dict[str, object] = {
            "job_id": number,
            "nodes": ",".join(nodes) or "None assigned",
        }
        if queued:
            entry |= {
                "job_state": [state],
                "eligible_time": {"set": True, "infinite": False, "number": times[0]},
            }
            guessed = (
                [T0 + 9999] * 2 if state == "PENDING" else times[1:]
            )  # by the backfill scheduler
            entry |= {
                "start_time": guessed[0],
                "end_time": guessed[1],
                "time_limit": limit,
                "node_count": count,
            }
        else:
            entry |= {
                "state": {"current": [state]},
                "tres": {"requested": [{"type": "node", "count": count}]},
            }
            entry["time"] = {
                "eligible": times[0],
                "start": times[1],
                "end": times[2],
                "limit": limit,
            }
        entries.append(entry)
    return json.dumps({"jobs": entries}, indent=1)


def test_sacct(tmp_path: Path) -> None:
    assert rows(known("slurm", SACCT, folder=tmp_path)) == JOBS
    minutes = (
        SACCT.replace("Timelimit", "TimelimitRaw")
        .replace("01:00:00", "60")
        .replace("02:00:00", "120")
    )
    assert rows(known("slurm", minutes, folder=tmp_path)) == JOBS


@pytest.mark.parametrize("queued", [False, True])
def test_json(tmp_path: Path, queued: bool) -> None:
    assert rows(known("slurm-json", json_jobs(queued=queued), folder=tmp_path)) == JOBS


def test_text_of_scontrol(tmp_path: Path) -> None:
    """What runs has its limit for an end there, and what waits a guess for a start: neither is read."""
    lines = []
    for number, (eligible, start, end, expected, count, nodes) in enumerate(JOBS, 1):
        state = (
            "PENDING"
            if start is end is None
            else "RUNNING"
            if end is None
            else "COMPLETED"
            if nodes
            else "CANCELLED"
        )
        limit = (
            "UNLIMITED"
            if expected is None
            else f"00:{(expected - (start or 0)) // 60}:00"
        )
        begun = (
            T0 + start if start is not None else T0 + 9999 if end is None else T0 + end
        )
        lines.append(
            f"JobId={number} JobName=x UserId=u(1) GroupId=g(1) JobState={state} TimeLimit={limit} SubmitTime={T0 - 5} "
            f"EligibleTime={T0 + eligible} StartTime={begun} EndTime={T0 + (9999 if end is None else end)} "
            f"NodeList={','.join(nodes) or '(null)'} NumNodes={count}{'' if nodes else f'-{count}'}"
        )
    assert rows(known("slurm", "\n".join(lines), folder=tmp_path)) == JOBS


def test_exports_that_overlap_are_one_log(tmp_path: Path) -> None:
    """A job that waits in one file runs in the next, and has ended in the third."""
    head, *lines = SACCT.splitlines()
    first = (
        "\n".join([head, lines[1], *(line.replace("700", "") for line in lines[4:5])])
        + "\n"
    )
    waits = f"{head}\n4|None assigned|1|Unknown|Unknown|PENDING|2024-01-01T00:00:30|02:00:00\n{lines[0]}\n"
    ended = lines[3].replace("Unknown|RUNNING", "2024-01-01T01:00:00|COMPLETED")
    whole = rows(
        known("slurm", first, waits, SACCT, f"{head}\n{ended}\n", folder=tmp_path)
    )
    assert whole == [*JOBS[:3], (30, 700, 3600, 7900, 1, ["n2"]), JOBS[4]]


class CountedId:
    """The id of a job, which counts how often ids are compared."""

    comparisons = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return isinstance(other, CountedId) and other.number == self.number


def test_requeued_jobs_without_an_end_take_time_in_proportion_to_their_number() -> None:
    """Each of 300 jobs begins three times, and the ends of the first two runs are not stated."""
    plans, jobs = Plans(), 300
    starts = [10, 30, 20]
    for job in range(jobs):
        for start in starts:
            end_ns = 50 * SECOND_NS if start == 30 else None
            plan = Plan(SECOND_NS, start * SECOND_NS, end_ns, None, 1, array("i", [0]))
            plans.job(CountedId(job), plan)
    CountedId.comparisons = 0
    made = plans.walltimes({"n1": 0}, set(), {})
    assert CountedId.comparisons <= 20 * jobs * len(
        starts
    )  # each with each would be 540,000
    runs = sorted(
        zip(
            (made.start // SECOND_NS).tolist(),
            (made.end // SECOND_NS).tolist(),
            strict=True,
        )
    )
    assert runs == [(10, 20)] * jobs + [(20, 30)] * jobs + [(30, 50)] * jobs


def pbs(kind: str, second: int, job: int, message: str) -> str:
    return f"01/01/2024 {second // 3600:02}:{second % 3600 // 60:02}:{second % 60:02};{kind};{job}.s;{message}"


def test_pbs(tmp_path: Path) -> None:
    """Of jobs that never began no record states how many nodes they wanted."""
    ran = [(number, job) for number, job in enumerate(JOBS) if job[1] is not None]
    lines = []
    for number, (eligible, start, end, expected, _, nodes) in ran:
        limit = (
            ""
            if expected is None
            else f" Resource_List.walltime=0{(expected - start) // 3600}:00:00"
        )
        hosts = "+".join(f"{node}/0*4" for node in nodes)
        what = f"etime={T0 + eligible} exec_host={hosts} start={T0 + start}{limit}"
        lines.append((start, pbs("S", start, number, what)))
        if end is not None:
            lines.append((end, pbs("E", end, number, f"{what} end={T0 + end}")))
    text = "\n".join(line for _, line in sorted(lines)) + "\n"
    assert rows(known("pbs", text, folder=tmp_path)) == [job for _, job in ran]


def test_swf_counts_nodes(tmp_path: Path) -> None:
    text = f"; UnixStartTime: {T0}\n; MaxNodes: 4\n; MaxProcs: 4\n"
    text += "1 0 10 690 2 -1 -1 2 3600 -1 1 1 1 1 1 1 -1 -1\n2 5 695 200 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n"
    assert rows(known("swf", text, folder=tmp_path)) == [
        (*job[:5], []) for job in JOBS[:2]
    ]


def test_reservations_count_as_announced_a_day_before(tmp_path: Path) -> None:
    reserved = tmp_path / "reservations.txt"
    reserved.write_text(
        "NodeNames|TimeStart|TimeEnd\nn[1-2]|2024-01-03T00:00:00|2024-01-03T06:00:00\n"
    )
    found = known(
        "slurm", SACCT, folder=tmp_path, reservations=[str(reserved)], end="2024-01-04"
    )
    begin = 2 * 86_400
    assert rows(found)[-1] == (
        begin - 86_400,
        begin,
        begin + 6 * 3600,
        begin + 6 * 3600,
        2,
        ["n1", "n2"],
    )
    assert found.reserved.tolist() == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        (
            "intervals",
            "node,start,end\nn1,2024-01-01,2024-01-02\n",
            "the format intervals states no time limits; slurm",
        ),
        (
            "slurm",
            SACCT.replace("Timelimit", "Comment"),
            "needs the columns Timelimit, and Eligible or Submit",
        ),
    ],
)
def test_logs_without_limits_are_refused(
    tmp_path: Path, form: str, text: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        known(form, text, folder=tmp_path)


def test_units_of_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="nodes that turn idle as a whole, not for --unit gpu"
    ):
        known("slurm", SACCT, folder=tmp_path, unit="gpu")


def test_limits() -> None:
    texts = {"1-02:03:04": 93_784, "10:00": 600, "30": 30, "00:01:30.5": 90}
    assert {text: limit_ns(text) for text in texts} == {
        text: seconds * SECOND_NS for text, seconds in texts.items()
    }
    assert [limit_ns(text) for text in ("Partition_Limit", "", "-1", "1-2", "x:1")] == [
        None
    ] * 5
    assert limit_ns("90", minutes=True) == 5400 * SECOND_NS


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_from_a_log_to_a_replay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scheduler: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run(
            [
                "generate",
                "log",
                scheduler,
                "--nodes",
                "8",
                "--days",
                "1",
                "--walltimes",
                "-o",
                "log",
            ]
        )
        == 0
    )
    files = ["-o", "trace.parquet", "--walltimes", "walltimes.parquet"]
    assert run(["ingest", scheduler, "log", "--tz", "UTC", *files]) == 0
    jobs = read_walltimes("walltimes.parquet").counts()
    assert (
        f"walltimes.parquet: {jobs['jobs']} jobs, {jobs['with_limit']} of the"
        in capsys.readouterr().out
    )
    assert jobs["jobs"] == jobs["begun"] == jobs["with_limit"] > 20
    assert (
        run(
            [
                "trace",
                "info",
                "trace.parquet",
                "--walltimes",
                "walltimes.parquet",
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)["walltimes"]
    assert found["expected"]["by_count"] > 0
    # Jobs end before their limits: nodes leave no later than expected, but where later jobs go first.
    assert found["ratio"]["p90"] <= 1


def test_other_logs_are_made_without_limits() -> None:
    with pytest.raises(
        InputError,
        match="a log of sge is made without time limits; slurm and pbs have them",
    ):
        generate_log("sge", walltimes=True)
