"""Jobs of one partition or queue: `--partition` gives the trace of a log without the other jobs, in every format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest
from synthetic_logs_more import BEGIN_S

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import LogFormat, Reading, format_names, log_format
from bft.replay.logs.filters import FILTERS
from bft.replay.logs.from_files import IngestOptions, ingested

# Id, host, seconds after the beginning, and partition.
Row = tuple[int, str, int, int, str]
ROWS: list[Row] = [
    (1, "n1", 60, 600, "batch"),
    (2, "n2", 120, 900, "gpu"),
    (3, "n1", 900, 2500, "batch"),
    (4, "n3", 300, 2400, "gpu"),
]


def stamp(second: int, form: str = "%Y-%m-%dT%H:%M:%S") -> str:
    return datetime.fromtimestamp(BEGIN_S + second, UTC).strftime(form)


WINDOW = ["--tz", "UTC", "--from", stamp(0), "--to", stamp(3600), "--allow-few"]


def table(rows: list[Row], header: str, line: str) -> str:
    lines = [
        line.format(
            id=number,
            host=host,
            start=stamp(start),
            end=stamp(end),
            partition=partition,
        )
        for number, host, start, end, partition in rows
    ]
    return "\n".join([header, *lines]) + "\n"


def sacct(rows: list[Row]) -> str:
    return table(
        rows,
        "JobID|Partition|NodeList|Start|End",
        "{id}|{partition}|{host}|{start}|{end}",
    )


def scontrol(rows: list[Row]) -> str:
    line = (
        "JobId={id} JobName=x UserId=u(1) GroupId=g(1) JobState=COMPLETED Partition={partition} StartTime={start} "
        "EndTime={end} NodeList={host} NumNodes=1"
    )
    return table(rows, "", line)


def sacct_json(rows: list[Row]) -> str:
    jobs = [
        {
            "job_id": number,
            "partition": partition,
            "nodes": host,
            "state": {"current": ["COMPLETED"]},
            "time": {"start": BEGIN_S + start, "end": BEGIN_S + end},
        }
        for number, host, start, end, partition in rows
    ]
    return json.dumps({"jobs": jobs}, indent=1)


def pbs(rows: list[Row]) -> str:
    records = []
    for number, host, start, end, partition in rows:
        stated = f"queue={partition} exec_host={host}/0 start={BEGIN_S + start}"
        records.append(
            (start, f"{stamp(start, '%m/%d/%Y %H:%M:%S')};S;{number}.s;{stated}")
        )
        records.append(
            (
                end,
                f"{stamp(end, '%m/%d/%Y %H:%M:%S')};E;{number}.s;{stated} end={BEGIN_S + end}",
            )
        )
    return "\n".join(record for _, record in sorted(records)) + "\n"


def lsf(rows: list[Row]) -> str:
    return "".join(
        f'"JOB_FINISH" "10.1" {BEGIN_S + end} {number} 1 33 16 {BEGIN_S + start} 0 0 {BEGIN_S + start} "u" '
        f'"{partition}" "" "" "" "login" "/" "" "" "" "file" 0 1 "{host}" 64 100.0\n'
        for number, host, start, end, partition in rows
    )


def sge(rows: list[Row]) -> str:
    return "".join(
        f"{partition}:{host}:g:u:name:{number}:sge:0:{BEGIN_S + start}:{BEGIN_S + start}:{BEGIN_S + end}:0:0:1"
        + ":0" * 19
        + ":NONE:1:0\n"
        for number, host, start, end, partition in rows
    )


def cobalt(rows: list[Row]) -> str:
    return table(
        rows,
        "COBALT_JOBID,QUEUE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION",
        "{id},{partition},{start},{end},1,{host}",
    )


def swf(rows: list[Row], queue: str = "1", partition: str = "{}") -> str:
    numbers = {"batch": "7", "gpu": "8"}
    lines = [
        f"{number} {BEGIN_S + start} 0 {end - start} 1 -1 -1 1 9 -1 1 1 1 1 "
        f"{queue.format(numbers[name])} {partition.format(numbers[name])} -1 -1 {host}"
        for number, host, start, end, name in rows
    ]
    return "\n".join(["; MaxNodes: 3", "; MaxProcs: 3", *lines]) + "\n"


def swf_by_queue(rows: list[Row]) -> str:
    return swf(rows, queue="{}", partition="-1")


def flux(rows: list[Row]) -> str:
    return table(
        rows,
        "JOBID|QUEUE|NODELIST|T_RUN|T_INACTIVE",
        "f{id}|{partition}|{host}|{start}|{end}",
    )


def flux_json(rows: list[Row]) -> str:
    jobs = [
        {
            "id": i,
            "queue": name,
            "nodelist": host,
            "t_run": BEGIN_S + start,
            "t_inactive": BEGIN_S + end,
        }
        for i, host, start, end, name in rows
    ]
    return json.dumps({"jobs": jobs}, indent=1)


def oar(rows: list[Row]) -> str:
    jobs = {
        str(number): {
            "queue": partition,
            "state": "Terminated",
            "startTime": BEGIN_S + start,
            "stopTime": BEGIN_S + end,
            "assigned_network_address": [host],
        }
        for number, host, start, end, partition in rows
    }
    return json.dumps(jobs, indent=1)


def philly(rows: list[Row]) -> str:
    jobs = []
    for number, host, start, end, partition in rows:
        attempt = {
            "start_time": stamp(start, "%Y-%m-%d %H:%M:%S"),
            "end_time": stamp(end, "%Y-%m-%d %H:%M:%S"),
            "detail": [{"ip": host, "gpus": ["gpu0"]}],
        }
        jobs.append(
            {"jobid": f"application_{number}", "vc": partition, "attempts": [attempt]}
        )
    return json.dumps(jobs, indent=1)


def intervals(rows: list[Row]) -> str:
    return table(rows, "queue,node,start,end", "{partition},{host},{start},{end}")


WRITERS: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "sacct": ("slurm", sacct),
    "scontrol": ("slurm", scontrol),
    "sacct --json": ("slurm-json", sacct_json),
    "pbs": ("pbs", pbs),
    "lsf": ("lsf", lsf),
    "sge": ("sge", sge),
    "cobalt": ("cobalt", cobalt),
    "swf": ("swf", swf),
    "swf by queue": ("swf", swf_by_queue),
    "flux": ("flux", flux),
    "flux --json": ("flux", flux_json),
    "oar": ("oar", oar),
    "philly": ("philly", philly),
    "intervals": ("intervals", intervals),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_format_that_states_partitions_is_tested_here() -> None:
    assert {form for form, _ in WRITERS.values()} == {
        form for form in format_names() if log_format(form).partitions
    }


@pytest.mark.parametrize("name", WRITERS)
def test_the_trace_is_that_of_a_log_without_the_other_jobs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form, write = WRITERS[name]
    Path("log").write_text(write(ROWS))
    wanted = "7" if form == "swf" else "BATCH"
    assert (
        run(
            [
                "ingest",
                form,
                "log",
                "--partition",
                wanted,
                *WINDOW,
                "-o",
                "some.csv",
                "--json",
            ]
        )
        == 0
    )
    output = capsys.readouterr()
    assert "jobs of other partitions were left out" in output.err
    left_out = {
        each["reason"]: each["count"] for each in json.loads(output.out)["left_out"]
    }
    other = "row" if form == "intervals" else "job"
    assert left_out[f"{other} of another partition"] == (4 if form == "pbs" else 2)
    Path("log").write_text(write([row for row in ROWS if row[4] == "batch"]))
    assert run(["ingest", form, "log", *WINDOW, "-o", "whole.csv"]) == 0
    assert Path("some.csv").read_text() == Path("whole.csv").read_text()
    assert "n1" in Path("some.csv").read_text()


@pytest.mark.parametrize("name", WRITERS)
def test_a_partition_without_jobs_is_refused_with_those_there_are(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form, write = WRITERS[name]
    Path("log").write_text(write(ROWS))
    assert (
        run(["ingest", form, "log", "--partition", "bath", *WINDOW, "-o", "t.csv"]) == 2
    )
    there = "7, 8" if form == "swf" else "batch, gpu"
    assert (
        f"--partition: the logs have no job of 'bath'; they have {there}"
        in capsys.readouterr().err
    )
    assert not Path("t.csv").exists()


@pytest.mark.parametrize(
    "form", [form for form in format_names() if not log_format(form).partitions]
)
def test_a_format_that_states_no_partitions_is_refused_by_name(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_text("any\n")
    assert run(["ingest", form, "log", "--partition", "batch", "-o", "t.csv"]) == 2
    expected = f"--partition: the format {form} states no partitions; slurm, slurm-json, pbs, lsf, sge"
    assert expected in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (
            "slurm",
            sacct(ROWS).replace("Partition", "QOS"),
            "the column Partition (export with sacct -P -X",
        ),
        (
            "cobalt",
            cobalt(ROWS).replace("QUEUE_NAME", "OTHER"),
            "the column QUEUE_NAME or QUEUE_GENID",
        ),
        ("flux", flux(ROWS).replace("QUEUE", "RANKS"), "the column QUEUE"),
        (
            "flux",
            '{"timestamp": 1.0, "name": "submit"}\n',
            "flux jobs --json, or a table of it with the column QUEUE",
        ),
        (
            "intervals",
            intervals(ROWS).replace("queue,", "x,"),
            "the column partition or queue",
        ),
    ],
)
def test_a_file_without_the_column_is_refused(
    form: str, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_text(text)
    assert run(["ingest", form, "log", "--partition", "batch", "-o", "t.csv"]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert (
        f"log: --partition: the file states no partitions: expected {expected}"
        in printed
    )


def test_a_job_that_waits_for_any_of_several_partitions_is_of_each() -> None:
    waits = (
        sacct(ROWS)
        + f"9|gpu,batch|None assigned|Unknown|Unknown\n8|gpu|n9|{stamp(0)}|{stamp(60)}\n"
    )
    Path("log").write_text(waits)
    assert (
        run(["ingest", "slurm", "log", "--partition", "batch", *WINDOW, "-o", "t.csv"])
        == 0
    )
    assert "n9" not in Path("t.csv").read_text()


@pytest.mark.parametrize("name", sorted(WRITERS.keys() - {"sacct"}))
def test_readers_hand_over_what_jobs_state_whether_or_not_a_filter_asks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A table of sacct is asked for the columns of filters alone.
    form, write = WRITERS[name]
    handed = set()

    def other(reading: Reading, line: int, count: int = 1, /, **stated: str) -> str:
        handed.update(stated)
        return ""

    monkeypatch.setattr(Reading, "other", other)
    Path("log").write_text(write(ROWS))
    ingested(form, ["log"], IngestOptions(tz="UTC", allow_few=True))
    declared = log_format(form)
    known = {"cluster": declared.clusters, "user": declared.users, "partition": True}
    assert handed == {name for name, states_it in known.items() if states_it}


def test_formats_declare_whether_they_state_what_a_filter_is_about() -> None:
    features = {field.name for field in fields(LogFormat)}
    assert features >= {f"{name}s" for name in FILTERS}


def test_outages_are_of_all_partitions() -> None:
    Path("log").write_text(sacct(ROWS))
    Path("events").write_text(
        f"node,start,end,state\nn1,{stamp(2000)},{stamp(3600)},down\n"
    )
    assert (
        run(
            [
                "ingest",
                "slurm",
                "log",
                "--partition",
                "batch",
                *WINDOW,
                "--events",
                "events",
                "-o",
                "t.csv",
            ]
        )
        == 0
    )
    rows = Path("t.csv").read_text()
    assert (
        run(
            [
                "ingest",
                "slurm",
                "log",
                "--partition",
                "batch",
                *WINDOW,
                "-o",
                "without.csv",
            ]
        )
        == 0
    )
    assert rows != Path("without.csv").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"min_gap_s": -1.0},
            "--min-gap: expected a number of seconds from 0 on, not -1.0",
        ),
        (
            {"min_gap_s": float("nan")},
            "--min-gap: expected a number of seconds from 0 on, not nan",
        ),
        ({"max_nodes": 0}, "--max-nodes: expected a whole number from 1 on, not 0"),
        (
            {"units_per_node": 0},
            "--units-per-node: expected a whole number from 1 on, not 0",
        ),
        ({"unit": "core"}, "--unit: expected node, gpu or cpu:N"),
        (
            {"unit": "gpu", "walltimes": True},
            "--walltimes is for nodes that turn idle as a whole",
        ),
        ({"nodes": "cn1"}, "nodes: expected a sequence of texts, not one text"),
    ],
)
def test_options_check_themselves(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        IngestOptions(**options)  # type: ignore[arg-type]
    assert message in str(raised.value)


# The nodes of a list as sinfo prints them: a default partition has an asterisk.
SINFO = """NODELIST PARTITION STATE
n1 batch* idle
n2 gpu idle
n3 gpu,batch idle
n4 gpu down
"""


def ingest(*arguments: str) -> int:
    return run(
        ["ingest", "slurm", "log", *WINDOW, "-o", "t.csv", "--force", *arguments]
    )


def test_the_machine_is_the_listed_nodes_of_the_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(sacct(ROWS))
    Path("sinfo").write_text(SINFO)
    assert ingest("--partition", "BATCH", "--nodes", "sinfo", "--json") == 0
    output = capsys.readouterr()
    said = "nodes of the list are of other partitions than 'BATCH': left out of the machine: 2, such as n2, n4"
    assert said in " ".join(output.err.split())
    # They are listed, and nothing says that they were down.
    assert "not in the list" not in output.out
    coverage = json.loads(output.out)["coverage"]
    assert (coverage["nodes"], coverage["foreign_nodes"]) == (2, 0)
    listed = Path("t.csv").read_text()
    assert ingest("--partition", "batch", "--nodes", "n[1,3]") == 0
    assert Path("t.csv").read_text() == listed


def test_listed_nodes_that_state_no_partition_count_which_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(sacct(ROWS))
    Path("sinfo").write_text(SINFO)
    options = ["--partition", "batch", "--nodes", "sinfo", "--nodes", "x1"]
    assert ingest(*options) == 0
    said = "nodes of the list state no partition, as others do: they count as nodes of 'batch': 1, such as x1"
    assert said in " ".join(capsys.readouterr().err.split())
    assert "x1" in Path("t.csv").read_text()
    assert "n4" not in Path("t.csv").read_text()


def test_a_list_without_a_node_of_the_partition_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(sacct(ROWS))
    Path("sinfo").write_text(SINFO.replace("batch", "cpu"))
    assert ingest("--partition", "batch", "--nodes", "sinfo") == 2
    expected = "--partition: no node of the list is of 'batch'; they are of cpu, gpu"
    assert expected in " ".join(capsys.readouterr().err.split())


def test_jobs_of_the_partition_on_listed_nodes_of_others_are_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(sacct([*ROWS, (5, "n4", 60, 600, "batch")]))
    Path("sinfo").write_text(SINFO)
    assert ingest("--partition", "batch", "--nodes", "sinfo") == 0
    warned = " ".join(capsys.readouterr().err.split())
    assert "left out: 1 of 2 nodes with jobs" in warned
    assert "n4" not in Path("t.csv").read_text()


def test_a_partition_alone_in_its_log_does_not_make_other_nodes_idle(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        (number, "n2", 20 * number, 20 * number + 10, "gpu") for number in range(150)
    ]
    Path("log").write_text(sacct(rows))
    Path("sinfo").write_text("NODELIST PARTITION STATE\nn1 batch idle\nn2 gpu idle\n")
    arguments = [item for item in WINDOW if item != "--allow-few"]
    command = ["ingest", "slurm", "log", *arguments, "--nodes", "sinfo", "-o", "t.csv"]
    assert run(command) == 2
    assert "all 150 rows have the Partition 'gpu'" in capsys.readouterr().err
    assert run([*command, "--partition", "gpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coverage"]["nodes"] == 1


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_value_is_not_all(
    name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_text(sacct(ROWS))
    assert ingest(f"--{name}", value) == 2
    assert f"--{name}: expected the name of a {name}" in capsys.readouterr().err
    with pytest.raises(InputError, match=f"expected the name of a {name}"):
        IngestOptions(**{name: value})  # type: ignore[arg-type]
    assert getattr(IngestOptions(**{name: None}), name) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_that_is_given_twice_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log").write_text(sacct(ROWS))
    assert ingest(f"--{name}", "batch", f"--{name}", "gpu") == 2
    expected = f"'--{name}': given 2 times (batch, gpu); expected one"
    assert expected in " ".join(capsys.readouterr().err.split())


def test_several_partitions_in_one_value_are_refused_as_that(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(sacct(ROWS))
    assert ingest("--partition", "gpu,batch") == 2
    expected = "--partition: expected the name of one partition, not 'gpu,batch'"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("line_by_line", [False, True])
def test_blanks_around_names_do_not_matter(line_by_line: bool) -> None:
    Path("log").write_text(sacct(ROWS))
    assert ingest("--partition", "batch") == 0
    expected = Path("t.csv").read_text()
    blanks = sacct(ROWS).replace("|batch|", "|long, batch |")
    # A carriage return is read line by line, not by columns.
    Path("log").write_bytes(
        blanks.replace("\n", "\r\n" if line_by_line else "\n").encode()
    )
    assert ingest("--partition", " batch") == 0
    assert Path("t.csv").read_text() == expected


def test_names_of_cells_with_several_partitions_are_proposed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(sacct(ROWS).replace("|batch|", "|long, batch|"))
    assert ingest("--partition", "bath") == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "they have long, batch, gpu; did you mean 'batch'?" in printed


@pytest.mark.parametrize("queues", [0, 2])
def test_jobs_of_swf_that_were_chosen_by_their_queue_are_counted(
    queues: int, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = swf(ROWS).splitlines()
    by_queue = swf_by_queue(ROWS).splitlines()
    # Jobs 1 and 2 state no partition; the queue of job 1 has the number that is asked for.
    lines[2 : 2 + queues] = by_queue[2 : 2 + queues]
    Path("log").write_text("\n".join(lines) + "\n")
    command = ["ingest", "swf", "log", *WINDOW, "--partition", "7", "-o", "t.csv"]
    assert run(command) == 0
    why = "field 16 states no partition: the queue in field 15 was taken for it: 1 (first: log, line 3"
    assert (why in capsys.readouterr().out) == bool(queues)


def shares(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[dict[str, float], str]:
    """Ingest; return the shares of the node-time in percent, and what standard error says."""
    common = ["--tz", "UTC", "--allow-few", "--force", "-o", "t.csv"]
    assert run(["ingest", *arguments, *common]) == 0
    output = capsys.readouterr()
    form = r"busy ([\d.]+)%, unavailable ([\d.]+)%, idle ([\d.]+)%"
    found = re.search(form, output.out)
    assert found, output
    names = ("busy", "unavailable", "idle")
    return dict(zip(names, map(float, found.groups()), strict=True)), output.err


HOURS = 3600
DAY = ["--from", stamp(0), "--to", stamp(10 * HOURS)]
OF_GPU = ["--partition", "gpu"]
DOWN = f"node,start,end,state\nn1,{stamp(HOURS * 3 // 2)},,down\n"


def around_an_outage(host: str) -> list[Row]:
    """Jobs before and after an outage, and one of another partition in the midst of it."""
    return [
        (1, "n1", 0, HOURS, "gpu"),
        (2, host, 2 * HOURS, 3 * HOURS, "cpu"),
        (3, "n1", 8 * HOURS, 10 * HOURS, "gpu"),
    ]


def test_a_job_of_swf_is_a_sign_of_life_before_any_of_its_own_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, other, last = around_an_outage("n1")
    named = [
        (n, host, a, b, "batch" if of == "cpu" else of)
        for n, host, a, b, of in (other, first, last)
    ]
    Path("log").write_text(swf(named))
    Path("events").write_text(DOWN)
    beside = ["swf", "log", "--events", "events", *DAY, "--partition", "8"]
    some, _ = shares(capsys, *beside)
    assert some["unavailable"] == 5.0


# The numbers of partitions in SWF are those of `swf`.
@pytest.mark.parametrize("name", sorted(WRITERS.keys() - {"swf", "swf by queue"}))
def test_an_outage_without_an_end_ends_with_a_job_of_any_partition(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form, write = WRITERS[name]
    Path("log").write_text(write(around_an_outage("n1")))
    Path("events").write_text(DOWN)
    beside = [form, "log", "--events", "events", *DAY]
    whole, _ = shares(capsys, *beside)
    some, said = shares(capsys, *beside, *OF_GPU)
    assert whole == {"busy": 40.0, "unavailable": 5.0, "idle": 55.0}
    assert some == {"busy": 30.0, "unavailable": 5.0, "idle": 65.0}
    assert "it ends on each node with the first one: 1" in said


def test_an_outage_ends_with_a_job_of_a_row_that_is_read_by_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Of the cpu jobs the first alone is read by itself.
    short = [(number, "n9", 0, 60, "cpu") for number in range(10, 90)]
    Path("log").write_text(sacct(short + around_an_outage("n1")))
    Path("events").write_text(DOWN)
    some, _ = shares(capsys, "slurm", "log", "--events", "events", *DAY, *OF_GPU)
    assert some == {"busy": 30.0, "unavailable": 5.0, "idle": 65.0}
    assert "n9" not in Path("t.csv").read_text()


def test_a_machine_that_is_down_comes_back_with_a_job_of_any_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("jobs").write_text(cobalt(around_an_outage("n2")))
    header = "START_TIMESTAMP,END_TIMESTAMP,IS_ALL_MACHINE_DOWN"
    Path("status").write_text(f"{header}\n{stamp(HOURS * 3 // 2)},,1\n")
    some, _ = shares(capsys, "cobalt", "jobs", "status", *DAY, *OF_GPU)
    assert some == {"busy": 30.0, "unavailable": 5.0, "idle": 65.0}


def test_a_job_of_another_cluster_does_not_end_an_outage_of_a_node_of_that_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = sacct(around_an_outage("n1")).replace("Partition", "Cluster")
    Path("log").write_text(rows)
    Path("events").write_text(DOWN)
    only = ["--events", "events", "--cluster", "gpu"]
    some, said = shares(capsys, "slurm", "log", *only, *DAY)
    assert some == {"busy": 30.0, "unavailable": 65.0, "idle": 5.0}
    assert "jobs of other clusters" not in said


def test_listings_are_told_apart_by_the_jobs_of_all_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def listed(number: int, host: str, start: int, partition: str) -> str:
        return (
            f"JobId={number} JobName=x UserId=u(1) GroupId=g(1) JobState=RUNNING Partition={partition} "
            f"StartTime={stamp(start)} EndTime=Unknown NodeList={host} NumNodes=1\n"
        )

    text = ""
    for now in range(0, 24 * HOURS, 2 * HOURS):
        text += "".join(listed(n, f"c{n}", 0, "cpu") for n in range(1, 13))
        # The latest start in a listing tells when it was made.
        text += listed(1_000_000 + now, "c99", now, "cpu")
        if now % (4 * HOURS) == 0:
            text += "".join(listed(now + n, f"g{n}", now, "gpu") for n in range(20, 32))
    Path("log").write_text(text)
    shown = ["--from", stamp(0), "--to", stamp(22 * HOURS)]
    log = ["slurm", "log", "--nodes", "g[20-31]", *shown]
    whole, _ = shares(capsys, *log)
    some, said = shares(capsys, *log, *OF_GPU)
    assert some == whole == {"busy": 54.5, "unavailable": 0.0, "idle": 45.5}
    assert "jobs vanished between two listings" in said


@pytest.mark.parametrize("name", sorted(WRITERS.keys() - {"swf", "swf by queue"}))
def test_a_log_lasts_to_its_last_record_of_any_partition(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form, write = WRITERS[name]
    rows = [
        (1, "g1", 0, 16 * HOURS, "gpu"),
        (2, "g2", 0, 12 * HOURS, "gpu"),
        (3, "c1", 0, 20 * HOURS, "cpu"),
    ]
    Path("log").write_text(write(rows))
    window = ["--from", stamp(0), "--to", stamp(20 * HOURS)]
    log = [form, "log", "--nodes", "g[1-2]", *window]
    whole, _ = shares(capsys, *log)
    some, said = shares(capsys, *log, *OF_GPU)
    assert some == whole == {"busy": 70.0, "unavailable": 0.0, "idle": 30.0}
    assert "the logs hold" not in said


def test_a_job_that_goes_on_lasts_to_the_last_record_of_any_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        (1, "g1", 0, 30 * HOURS, "gpu"),
        (2, "g2", 0, 16 * HOURS, "gpu"),
        (3, "c1", 0, 20 * HOURS, "cpu"),
    ]
    # Without its last record: the first job goes on when the log ends.
    Path("log").write_text("".join(pbs(rows).splitlines(keepends=True)[:-1]))
    window = ["--from", stamp(0), "--to", stamp(20 * HOURS)]
    log = ["pbs", "log", "--nodes", "g[1-2]", *window]
    whole, _ = shares(capsys, *log)
    some, said = shares(capsys, *log, *OF_GPU)
    assert some == whole == {"busy": 90.0, "unavailable": 0.0, "idle": 10.0}
    assert "the logs hold" not in said


def test_a_record_of_pbs_without_a_queue_is_of_that_of_its_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def record(second: int, kind: str, job: int, message: str) -> str:
        return f"{stamp(second, '%m/%d/%Y %H:%M:%S')};{kind};{job}.s;{message}\n"

    def began(job: int, queue: str) -> str:
        start = f"start={BEGIN_S} exec_host=n{job}/0"
        return record(0, "S", job, f"queue={queue} {start}")

    # Also where a job began in the file before.
    Path("log1").write_text(began(1, "gpu") + began(2, "gpu") + began(3, "cpu"))
    ended = f"start={BEGIN_S} exec_host=n2/0 end={BEGIN_S + 4 * HOURS}"
    later = record(HOURS, "R", 1, "") + record(HOURS, "R", 3, "")
    Path("log2").write_text(later + record(4 * HOURS, "E", 2, ended))
    window = ["--from", stamp(0), "--to", stamp(4 * HOURS)]
    log = ["pbs", "log1", "log2", "--nodes", "n[1-2]", *window]
    some, said = shares(capsys, *log, *OF_GPU)
    assert some == {"busy": 62.5, "unavailable": 0.0, "idle": 37.5}
    assert "look idle meanwhile: 2 (first: log1, line 3, 'cpu')" in said


@pytest.mark.parametrize(("partition", "idle"), [("", 8.3), ("gpu", 8.3), ("cpu", 0.0)])
def test_nodes_are_idle_only_where_stated_if_any_row_states_an_idle_one(
    partition: str, idle: float, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = [
        ("n1", 0, 1, "busy", "gpu"),
        ("n1", 1, 2, "idle", partition),
        ("n1", 5, 6, "busy", "gpu"),
        ("n2", 0, 6, "busy", "gpu"),
    ]
    rows = [
        f"{node},{stamp(begin * HOURS)},{stamp(end * HOURS)},{state},{of}"
        for node, begin, end, state, of in hours
    ]
    Path("log").write_text("\n".join(["node,start,end,state,partition", *rows, ""]))
    some, _ = shares(capsys, "intervals", "log", *OF_GPU)
    unavailable = 25.0 if idle else 33.3
    assert some == {"busy": 66.7, "unavailable": unavailable, "idle": idle}


@pytest.mark.parametrize("lines", [1, 80])
def test_nodes_that_only_jobs_of_other_clusters_name_are_told(
    lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        (1, "n1", 0, HOURS, "alpha"),
        (2, "n2", 0, HOURS, "alpha"),
        (3, "n2", HOURS, 2 * HOURS, "beta"),
    ]
    rows += [(4 + number, "m1", 0, HOURS, "beta") for number in range(lines)]
    Path("log").write_text(sacct(rows).replace("Partition", "Cluster"))
    only = ["slurm", "log", "--cluster", "alpha", *DAY]
    _, said = shares(capsys, *only, "--nodes", "n[1-2],m1")
    why = "jobs of other clusters were left out: nodes of this trace on which they ran look idle meanwhile"
    assert f"{why}: 1, such as m1" in said
    _, said = shares(capsys, *only)
    assert why not in said


@pytest.mark.parametrize(("share", "busy"), [(False, 15.0), (True, 95.0)])
def test_a_job_without_an_end_ends_with_a_job_of_any_partition_unless_they_share_nodes(
    share: bool, busy: float, capsys: pytest.CaptureFixture[str]
) -> None:
    minutes = range(600, 2400, 60)
    jobs = [(1000 + begin, "n1", begin, begin + 60, "gpu") for begin in minutes]
    jobs.append((2, "n1", 2 * HOURS, 3 * HOURS, "cpu"))
    if share:
        jobs += [(begin, "n1", begin, begin + 60, "cpu") for begin in minutes]
    lost = f"1|gpu|n1|{stamp(HOURS)}|Unknown|RUNNING\n"
    ended = (
        sacct(jobs).replace("\n", "|COMPLETED\n").replace("End|COMPLETED", "End|State")
    )
    Path("log").write_text(ended + lost)
    some, _ = shares(capsys, "slurm", "log", *DAY, *OF_GPU)
    assert some["busy"] == busy


def test_jobs_of_other_partitions_show_that_the_log_and_its_nodes_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # On n1 jobs of gpu for a day, then jobs of cpu for three days.
    begins = range(0, 24 * HOURS, 600)
    jobs = [(begin, "n1", begin, begin + 300, "gpu") for begin in begins]
    later = range(24 * HOURS, 96 * HOURS, 600)
    jobs += [(begin, "n1", begin, begin + 300, "cpu") for begin in later]
    Path("log").write_text(sacct(jobs))
    window = ["--from", stamp(0), "--to", stamp(96 * HOURS)]
    some, said = shares(capsys, "slurm", "log", *window, *OF_GPU)
    assert some == {"busy": 12.5, "unavailable": 0.0, "idle": 87.5}
    assert "no job starts in the last part" not in said
    Path("log").write_text(sacct([job for job in jobs if job[4] == "gpu"]))
    some, said = shares(capsys, "slurm", "log", *window, *OF_GPU)
    assert some["unavailable"] > 70
