"""Flux, HTCondor, Kubernetes, Prometheus, LDMS: what is left out, noted or refused."""

from __future__ import annotations

import json

import pytest
from synthetic_logs_more import BEGIN_S, LENGTH_S, read_files, read_lines
from synthetic_logs_sources import zulu

from bft.models import InputError
from bft.replay.logs import (
    Clock,
    Collector,
    Diagnosis,
    Reading,
    Settings,
    detect,
    node_trace,
    read_log,
)
from bft.replay.trace.node_trace import SECOND_NS


def test_events_of_flux_without_an_r_are_noted() -> None:
    events = [
        {"timestamp": BEGIN_S, "name": "submit"},
        {"timestamp": BEGIN_S, "name": "alloc"},
        {"timestamp": BEGIN_S, "name": "submit"},
        {"timestamp": BEGIN_S, "name": "alloc"},
    ]
    r = {"version": 1, "execution": {"nodelist": ["n[1-2]"], "starttime": 0.0}}
    busy, diagnosis = read_lines(
        "flux",
        *map(json.dumps, [*events, {"timestamp": BEGIN_S + 9, "name": "free"}, r]),
    )
    assert busy == {("n1", 0, 9), ("n2", 0, 9)}
    assert "its R does not follow its events" in diagnosis.warnings()[0]


def test_snapshots_of_flux_resource_list() -> None:
    stamps = (
        f"{BEGIN_S + at}\nn[1-2] free\nn3 {state}\nn4 down"
        for at, state in ((0, "allocated"), (60, "free"))
    )
    busy, diagnosis = read_lines(
        "snapshots", *stamps, str(BEGIN_S + 120), "n[1-3] free", "n4 down"
    )
    assert busy == {("n3", 0, 60)}
    assert not diagnosis.skipped


def test_a_table_of_flux_without_its_columns_is_refused() -> None:
    with pytest.raises(
        InputError,
        match="no table of flux jobs with the columns JOBID, NODELIST, T_RUN",
    ):
        read_lines("flux", "JOBID|USER|NODELIST", "f1|u|n1")


def pod(**more: object) -> dict[str, object]:
    entry = {
        "kind": "Pod",
        "metadata": {"uid": "u", "name": "p", "namespace": "users"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "startTime": zulu(10)},
    }
    return {**entry, **more}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            pod(metadata={"name": "p", "ownerReferences": [{"kind": "DaemonSet"}]}),
            "on every node",
        ),
        (
            pod(metadata={"name": "p", "namespace": "kube-system"}),
            "of the cluster itself",
        ),
        (pod(spec={}), "never scheduled"),
        (pod(status={"phase": "Pending"}), "never started"),
        (pod(kind="Workload"), "Workload of Kueue"),
        (
            {
                "kind": "Event",
                "involvedObject": {"kind": "Pod", "name": "p"},
                "reason": "Pulled",
            },
            "an event that says",
        ),
    ],
)
def test_what_is_no_pod_of_a_user_is_left_out(
    entry: dict[str, object], reason: str
) -> None:
    busy, diagnosis = read_files("kubernetes", json.dumps({"items": [entry]}))
    assert not busy
    assert [reason in why for why in diagnosis.left_out] == [True]


def test_events_know_when_a_pod_was_killed() -> None:
    involved = {"kind": "Pod", "name": "p", "uid": "u"}
    assigned = "Successfully assigned users/p to n1"
    events = [
        {
            "kind": "Event",
            "involvedObject": involved,
            "reason": "Scheduled",
            "message": assigned,
            "eventTime": zulu(5),
        },
        {
            "kind": "Event",
            "involvedObject": involved,
            "reason": "Killing",
            "lastTimestamp": zulu(25),
        },
    ]
    busy, diagnosis = read_files("kubernetes", "\n".join(map(json.dumps, events)))
    assert busy == {("n1", 5, 25)}
    assert "events do not say when a pod ended by itself" in diagnosis.warnings()[0]


def ad(**more: object) -> str:
    entry = {"ClusterId": 1, "ProcId": 0, "JobStatus": 4, "JobUniverse": 5, "NumJobStarts": 1, "NumShadowStarts": 1,
             "JobCurrentStartDate": BEGIN_S, "CompletionDate": BEGIN_S + 50, "LastRemoteHost": "slot1@n1"}  # fmt: skip
    return json.dumps([{**entry, **more}])


@pytest.mark.parametrize(
    ("text", "busy"),
    [
        (ad(), {("n1", 0, 50)}),
        (
            ad(AllRemoteHosts="slot1@n1,slot2_1@n1,slot1@n2"),
            {("n1", 0, 50), ("n2", 0, 50)},
        ),
        (ad(JobStatus=3, CompletionDate=0, RemoteWallClockTime=20.0), {("n1", 0, 20)}),
        (
            ad(JobStatus=3, NumShadowStarts=2, EnteredCurrentStatus=BEGIN_S + 70),
            {("n1", 0, 70)},
        ),
        (ad(JobStatus=5), set()),
        (ad(JobUniverse=12), set()),
        (ad(JobCurrentStartDate=None), set()),
    ],
)
def test_ends_of_runs_of_htcondor(
    text: str, busy: set[tuple[str, float, float]]
) -> None:
    assert read_files("htcondor", text)[0] == busy


def test_earlier_runs_of_htcondor_are_warned_of() -> None:
    _, diagnosis = read_files("htcondor", ad(NumJobStarts=3))
    assert "a job ran more than once" in diagnosis.warnings()[0]


def answer(values: list[tuple[int, str]], name: str = "slurm_nodes_idle") -> str:
    series = [
        {
            "metric": {"__name__": name},
            "values": [[BEGIN_S + at, value] for at, value in values],
        }
    ]
    return json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": series}}
    )


def test_idle_counts_alone_need_the_size_of_the_machine() -> None:
    values = [
        (0, "1"),
        (10, "3"),
        (20, "0"),
        (100, "2"),
        (110, "2"),
    ]  # samples are missing from 20 + 2.5 x 10 on

    def idle_and_account(size: int | None) -> tuple[float, int, Diagnosis]:
        into, diagnosis = Collector(min_gap_ns=0), Diagnosis()
        settings = Settings(machine_nodes=size)
        text = [answer(values)]
        read_log(
            "prometheus",
            Reading(text, "f", into, diagnosis, Clock("UTC", diagnosis), settings),
        )
        trace, _ = node_trace(into, diagnosis, machine_nodes=size)
        assert trace.end - trace.start == 110 * SECOND_NS
        return trace.idle_node_seconds(), len(trace.nodes), diagnosis

    assert idle_and_account(5)[:2] == (10 + 30 + 20, 5)
    seconds, nodes, diagnosis = idle_and_account(None)
    assert (seconds, nodes) == (10 + 30 + 20, 3)
    assert "only idle nodes are counted" in "".join(diagnosis.warnings())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            answer([(0, "1"), (9, "1")], "slurm_nodes_alloc"),
            "no series counts idle nodes",
        ),
        (answer([(0, "NaN"), (9, "1")]), "a sample is no number of nodes"),
        ('{"status": "error", "error": "bad_data"}', "Prometheus reports an error"),
    ],
)
def test_answers_that_say_nothing_are_skipped(text: str, why: str) -> None:
    assert list(read_files("prometheus", text)[1].skipped) == [why]


def test_series_of_several_partitions_are_refused() -> None:
    def of(*partitions: str) -> str:
        series = [
            {
                "metric": {"__name__": "slurm_nodes_idle", "partition": name},
                "values": [[BEGIN_S, "1"], [BEGIN_S + 60, "1"]],
            }
            for name in partitions
        ]
        return json.dumps({"status": "success", "data": {"result": series}})

    with pytest.raises(
        InputError, match=r"counts the nodes of each partition \('all, gpu'\)"
    ):
        read_files("prometheus", of("gpu", "all"))
    read_files("prometheus", of("all"))


def test_one_sample_is_no_log() -> None:
    with pytest.raises(InputError, match="one sample is no log"):
        read_files("prometheus", answer([(0, "1")]))


def test_samples_of_ldms_with_the_header_elsewhere() -> None:
    lines = [f"{BEGIN_S + at}.2,200000,{node},1,{job}" for at in range(0, LENGTH_S, 10) for node, job in
             (("n1", 7), ("n2", 0 if at < 60 else 8))]  # fmt: skip
    fields = ("Time", "Time_usec", "ProducerName", "component_id", "job_id")
    busy, _ = read_lines("ldms", *lines, settings=Settings(fields=fields))
    assert busy == {("n1", 0, 110), ("n2", 60, 110)}
    with pytest.raises(InputError, match="is no CSV of LDMS: expected a header"):
        read_lines("ldms", *lines)


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ('{"status":"success","data":{"resultType":"matrix"', "prometheus"),
        ('{"timestamp":1605115080.03,"name":"submit"}', "flux"),
        ("JOBID|NODELIST|T_RUN|T_INACTIVE", "flux"),
        ("job_id,starting_time,finish_time,allocated_resources", "batsim"),
        ("*** Offset = 0 ClusterId = 1", "htcondor"),
        ("{", "slurm-json"),
    ],
)
def test_first_lines(line: str, form: str) -> None:
    assert detect(line) == form
