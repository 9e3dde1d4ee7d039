"""The formats of examples/logs, each on a small input, as a plugin that registers them would have them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bft.models import InputError
from bft.replay.logs import formats
from bft.replay.logs.ingest import Ingested, IngestOptions, ingested
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_statistics import fragments

pytestmark = pytest.mark.usefixtures("example_logs")
BEGIN_S = 1_612_900_000
DATE = "2021-02-09T19:46:40Z"
Idle = dict[str, list[tuple[float, float]]]


@pytest.fixture(autouse=True)
def _here(here: Path) -> None:
    """Each test writes its logs into a folder of its own."""


def read(form: str, text: str, **options: object) -> Ingested:
    Path("log").write_text(text)
    some = {"tz": "UTC", "min_gap_s": 0.0, "allow_few": True, **options}
    return ingested(form, ["log"], IngestOptions(**some))  # type: ignore[arg-type]


def idle(made: Ingested, since_s: int = BEGIN_S) -> Idle:
    """The idle fragments of each node, in seconds since the beginning."""
    found = fragments(made.trace)
    spans: Idle = {name: [] for name in made.trace.nodes}
    columns = (found.node.tolist(), found.start_ns.tolist(), found.end_ns.tolist())
    for node, start, end in zip(*columns, strict=True):
        span = (start / SECOND_NS - since_s, end / SECOND_NS - since_s)
        spans[made.trace.nodes[node]].append(span)
    return spans


def test_batsim_names_its_hosts_by_numbers() -> None:
    lines = [
        "job_id,submission_time,requested_time,starting_time,finish_time,allocated_resources,metadata",
        '1,0,100,0.5,10.5,0-1,"a,b"',
        "2,5.0,100,20,60.0,1 3,",
        "3,5,100,50,70,0,",
        "4,50,100,-1,-1,,",
    ]
    made = read("batsim", "\n".join(lines))
    # The window is that from the first end of a job to the last start of one.
    assert idle(made, 0) == {
        "n0": [(10.5, 50)],
        "n1": [(10.5, 20)],
        "n3": [(10.5, 20)],
    }
    assert [*made.account.left_out] == ["job that never started"]
    assert any("seconds of a simulation" in note for note in made.account.notes)


def test_a_set_of_hosts_of_batsim_that_is_none_is_skipped() -> None:
    header = "jobID,starting_time,finish_time,allocated_processors"
    made = read("batsim", f"{header}\n1,0,9,0-3\n2,0,9,3-a\n3,soon,9,1\n")
    assert [*made.account.skipped] == [
        "allocated_resources holds no set of numbers such as 0-3 7",
        "starting_time is no time in seconds",
    ]


def ldms_samples() -> list[str]:
    """Samples of two nodes, each 10 s: n1 is always busy, n2 from second 60 on."""
    return [
        f"{BEGIN_S + at}.2,200000,{node},1,{job}"
        for at in range(0, 120, 10)
        for node, job in (("n1", 7), ("n2", 0 if at < 60 else 8))
    ]


def test_samples_of_ldms_are_rounded_to_their_period() -> None:
    header = "#Time,Time_usec,ProducerName,component_id,job_id"
    made = read("ldms", "\n".join([header, *ldms_samples()]))
    assert idle(made) == {"n1": [], "n2": [(0, 60)]}


def test_the_header_of_ldms_may_lie_elsewhere() -> None:
    fields = ("Time", "Time_usec", "ProducerName", "component_id", "job_id")
    text = "\n".join(ldms_samples())
    assert idle(read("ldms", text, fields=fields)) == {"n1": [], "n2": [(0, 60)]}
    with pytest.raises(InputError, match="expected a header #Time"):
        read("ldms", text)


def attempt(start: str | None, end: str | None, **gpus: list[str]) -> dict[str, object]:
    detail = [{"ip": host, "gpus": names} for host, names in gpus.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(*attempts: dict[str, object], number: int = 1) -> dict[str, object]:
    return {"jobid": f"application_{number}", "vc": "a", "attempts": [*attempts]}


def test_each_attempt_of_a_job_of_philly_has_servers_of_its_own() -> None:
    first = attempt("2021-02-09 19:46:50", "2021-02-09 19:47:00", m1=["gpu0"])
    second = attempt("2021-02-09 19:47:10", "2021-02-09 19:47:40", m2=["gpu1"])
    lost = attempt(None, "None", m3=["gpu0"])
    jobs = [philly_job(lost, first, second), philly_job(number=2)]
    made = read("philly", json.dumps(jobs), begin=DATE, end="2021-02-09T19:47:40Z")
    assert idle(made) == {"m1": [(0, 10), (20, 60)], "m2": [(0, 30)]}
    assert (made.account.rows, made.account.used) == (2, 1)
    assert any("an attempt lacks its start" in note for note in made.account.notes)


def test_philly_names_the_gpus_of_each_attempt() -> None:
    held = attempt("2021-02-09 19:46:50", "2021-02-09 19:47:00", m1=["gpu0", "gpu2"])
    text = json.dumps([philly_job(held)])
    options = {"unit": "gpu", "units_per_node": 4, "begin": DATE, "end": "2021-02-09T19:47:10Z"}  # fmt: skip
    made = read("philly", text, **options)
    assert made.trace.idle_unit_seconds() == 4 * 30 - 2 * 10
    with pytest.raises(InputError, match="gpus holds what is no name of a GPU"):
        read("philly", text.replace("gpu2", "x2"), **options)


def answer(values: list[tuple[int, str]], **metric: str) -> str:
    series = {
        "metric": {"__name__": "slurm_nodes_idle", **metric},
        "values": [[BEGIN_S + at, value] for at, value in values],
    }
    return json.dumps({"status": "success", "data": {"result": [series]}})


# Samples are missing from second 20 + 2.5 x 10 on.
COUNTS = [(0, "1"), (10, "3"), (20, "0"), (100, "2"), (110, "2")]


@pytest.mark.parametrize("size", [5, None])
def test_prometheus_counts_idle_nodes(size: int | None) -> None:
    made = read("prometheus", answer(COUNTS), machine_nodes=size)
    assert made.trace.end - made.trace.start == 110 * SECOND_NS
    assert made.trace.idle_node_seconds() == 10 + 30 + 20
    assert len(made.trace.nodes) == (size or 3)
    warned = "only idle nodes are counted" in "".join(made.account.warnings())
    assert warned == (size is None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (answer(COUNTS, __name__="slurm_nodes_alloc"), "no series counts idle nodes"),
        (answer([(0, "NaN"), (9, "1")]), "a sample is no number of nodes"),
        ('{"status": "error", "error": "x"}', "Prometheus reports an error"),
        (answer([(0, "1")]), "one sample is no log"),
    ],
)
def test_answers_of_prometheus_that_say_nothing_are_refused(
    text: str, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read("prometheus", text, allow_few=False)


def test_series_of_several_partitions_are_refused() -> None:
    both = [json.loads(answer(COUNTS, partition=name)) for name in ("gpu", "all")]
    both[0]["data"]["result"] += both[1]["data"]["result"]
    with pytest.raises(InputError, match=r"each partition \('all, gpu'\)"):
        read("prometheus", json.dumps(both[0]))


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ('{"status":"success","data":{"resultType":"matrix"', "prometheus"),
        ("job_id,starting_time,finish_time,allocated_resources", "batsim"),
    ],
)
def test_first_lines(line: str, form: str) -> None:
    look = formats.BUILT_IN[form].first_line
    assert re.match(look, line)
