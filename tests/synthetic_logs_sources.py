"""Logs of Flux, OAR, HTCondor, Kubernetes, Batsim, Philly, Prometheus and LDMS, written from known jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from export_world import range_query
from synthetic_logs import stamp
from synthetic_logs_more import BEGIN_S, HOSTS, LENGTH_S, SyntheticJob, idle_seconds


def squeue_json(jobs: Iterable[SyntheticJob]) -> str:
    """`squeue --json` and `scontrol show job --json`: jobs that have ended, and one that waits with a guessed start."""
    entries: list[dict[str, object]] = [
        {
            "job_id": number,
            "nodes": ",".join(job.hosts),
            "job_state": ["COMPLETED"] if job.style % 2 else "COMPLETED",
            "start_time": BEGIN_S + job.start_s,
            "end_time": {"set": True, "infinite": False, "number": BEGIN_S + job.end_s},
        }
        for number, job in enumerate(jobs, 1)
    ]
    entries.append(
        {
            "job_id": 0,
            "nodes": "",
            "job_state": ["PENDING"],
            "start_time": BEGIN_S + 5,
            "end_time": BEGIN_S + 9,
        }
    )
    return json.dumps({"jobs": entries, "warnings": []}, indent=1)


def flux_table(jobs: Iterable[SyntheticJob]) -> str:
    """`flux jobs -o "{id}|{nodelist}|{t_run}|{t_inactive}"`, with a job that waits."""
    rows = [
        f"f{number}|{','.join(job.hosts)}|{BEGIN_S + job.start_s}.0|{BEGIN_S + job.end_s}.0"
        for number, job in enumerate(jobs)
    ]
    return "\n".join(["JOBID|NODELIST|T_RUN|T_INACTIVE", *rows, "fX|||"]) + "\n"


def flux_json(jobs: Iterable[SyntheticJob]) -> str:
    """`flux jobs --json` of all jobs, or of each alone."""
    entries = [
        {
            "t_run": float(BEGIN_S + job.start_s),
            "t_cleanup": float(BEGIN_S + job.end_s) - 0.5,
            "t_inactive": float(BEGIN_S + job.end_s),
            "nodelist": ",".join(job.hosts),
            "id": number,
            "annotations": {"user": {"jobs": "[{"}},
        }
        for number, job in enumerate(jobs)
    ]
    if len(entries) % 2:
        return "\n".join(json.dumps(entry, indent=1) for entry in entries)
    return json.dumps({"jobs": entries}, indent=1)


def flux_eventlogs(jobs: Iterable[SyntheticJob]) -> str:
    """`flux job info ID eventlog` and `flux job info ID R` of each job."""
    lines = []
    for job in jobs:
        start, end = float(BEGIN_S + job.start_s), float(BEGIN_S + job.end_s)
        events = [("submit", start - 1, {"urgency": 16}), ("alloc", start, {}), ("start", start, {}),
                  ("finish", end, {"status": 0}), ("free", end, {}), ("clean", end, {})]  # fmt: skip
        lines += [
            json.dumps({"timestamp": at, "name": name, "context": more})
            for name, at, more in events
        ]
        lines.append(json.dumps({"version": 1, "execution": {"R_lite": [], "starttime": start, "expiration": 0.0,
                                                             "nodelist": list(job.hosts)}}))  # fmt: skip
    return "\n".join(lines) + "\n"


def oar(jobs: Iterable[SyntheticJob]) -> str:
    """`oarstat -J -f`, with a job that waits."""
    entries: dict[str, dict[str, object]] = {
        str(number): {
            "startTime": BEGIN_S + job.start_s,
            "stopTime": BEGIN_S + job.end_s,
            "state": ("Terminated", "Error")[job.style % 2],
            "assigned_network_address": list(job.hosts),
            "reserved_resources": {"1": {"network_address": job.hosts[0]}},
        }
        for number, job in enumerate(jobs)
    }
    entries["99"] = {
        "startTime": 0,
        "stopTime": 0,
        "state": "Waiting",
        "assigned_network_address": [],
    }
    return json.dumps(entries, indent=1)


def oar_gantt(jobs: Iterable[SyntheticJob]) -> str:
    """`oarstat -J --gantt` (get_history and parse_jobs_from_range of OAR 2.5), numbers as texts as MySQL has them.

    Jobs of odd style are no jobs: one of two resources of each of their hosts was dead meanwhile.
    """
    resources = [
        {
            "resource_id": str(2 * place + core),
            "network_address": host,
            "state": "Alive",
            "type": "default",
        }
        for place, host in enumerate(HOSTS)
        for core in range(2)
    ]
    entries: dict[str, dict[str, object]] = {}
    dead: dict[str, list[list[str]]] = {}
    for number, job in enumerate(jobs):
        times = [str(BEGIN_S + job.start_s), str(BEGIN_S + job.end_s)]
        places = [HOSTS.index(host) for host in job.hosts]
        if job.style % 2:
            for place in places:
                dead.setdefault(str(2 * place), []).append([*times, "Suspected"])
            continue
        entries[str(number)] = {
            "job_id": str(number), "state": "Terminated", "queue_name": "default", "types": [], "user": "u",
            "start_time": times[0], "stop_time": times[1], "network_address": list(job.hosts),
            "resource_id": [str(2 * place + core) for place in places for core in range(2)],
        }  # fmt: skip
    # A forecast of a job that waits.
    entries["99"] = {
        "job_id": "99", "state": "Waiting", "start_time": str(BEGIN_S), "stop_time": str(BEGIN_S + 60),
        "network_address": [HOSTS[0]], "resource_id": ["0"],
    }  # fmt: skip
    return json.dumps(
        {"dead_resources": dead, "jobs": entries, "resources": resources}, indent=1
    )


def _condor_ads(jobs: Iterable[SyntheticJob]) -> list[dict[str, object]]:
    return [
        {
            "ClusterId": number,
            "ProcId": place,
            "JobUniverse": 5,
            "NumJobStarts": 1,
            "NumShadowStarts": 1,
            "JobStatus": 3 if job.style == 5 and job.end_s > job.start_s else 4,
            "JobCurrentStartDate": BEGIN_S + job.start_s,
            "CompletionDate": BEGIN_S + job.end_s,
            "RemoteWallClockTime": float(job.end_s - job.start_s),
            "EnteredCurrentStatus": BEGIN_S + job.end_s + 500,
            "LastRemoteHost": f"slot1_{place}@{host}",
            "Cmd": 'a "b" = c',
        }
        for number, job in enumerate(jobs)
        for place, host in enumerate(job.hosts)
    ]


def condor_long(jobs: Iterable[SyntheticJob]) -> str:
    """`condor_history -l`, and the history file, whose banners end the ads."""
    ads = _condor_ads(jobs)
    texts = [
        "\n".join(f"{name} = {json.dumps(value)}" for name, value in ad.items())
        for ad in ads
    ]
    between = "\n\n" if len(ads) % 2 else "\n*** Offset = 0 ClusterId = 1 ProcId = 0\n"
    return between.join(texts) + "\n"


def condor_json(jobs: Iterable[SyntheticJob]) -> str:
    """`condor_history -json`."""
    return json.dumps(_condor_ads(jobs), indent=1)


def zulu(second: int) -> str:
    """A time as Kubernetes prints it."""
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def pods(jobs: Iterable[SyntheticJob]) -> str:
    """`kubectl get pods -A -o json`, or what a watch prints of each pod while it runs and when it has ended."""
    entries, watch = [], False
    for number, job in enumerate(jobs):
        watch |= job.style == 0
        for host in job.hosts:
            begun = {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": zulu(job.start_s),
            }
            terminated = {
                "state": {"terminated": {"finishedAt": zulu(job.end_s), "exitCode": 0}}
            }
            entries.append(
                {
                    "kind": "Pod",
                    "metadata": {"uid": f"{number}-{host}", "namespace": "users", "name": "p"},
                    "spec": {"nodeName": host, "containers": [{"name": "items"}]},
                    "status": {"phase": "Succeeded" if job.style % 2 else "Failed", "conditions": [begun],
                               "containerStatuses": [terminated]},
                }
            )  # fmt: skip
    owner = {"ownerReferences": [{"kind": "DaemonSet"}], "name": "d"}
    entries.append(
        {"kind": "Pod", "metadata": owner, "spec": {"nodeName": HOSTS[0]}, "status": {}}
    )
    if not watch:
        return json.dumps(
            {"apiVersion": "v1", "items": entries, "kind": "List"}, indent=1
        )
    lines = []
    for entry in entries:
        running = json.loads(json.dumps(entry))
        running["status"]["phase"] = "Running"
        lines += [
            json.dumps({"type": "ADDED", "object": running}),
            json.dumps({"type": "MODIFIED", "object": entry}),
        ]
    return "\n".join(lines)


def philly(jobs: Iterable[SyntheticJob]) -> str:
    """The job log of Philly: jobs with an attempt before that has no times."""
    entries = [
        {
            "jobid": f"application_{number}",
            "attempts": [
                *([{"start_time": None, "end_time": None, "detail": []}] if job.style % 2 else []),
                {"start_time": stamp(job.start_s).replace("T", " "), "end_time": stamp(job.end_s).replace("T", " "),
                 "detail": [{"ip": host, "gpus": ["gpu0"]} for host in job.hosts]},
            ],
        }
        for number, job in enumerate(jobs)
    ]  # fmt: skip
    return json.dumps([*entries, {"jobid": "none", "attempts": []}], indent=1)


def batsim(jobs: Iterable[SyntheticJob]) -> str:
    """jobs.csv: hosts are the places of ours in the order of their names; a job that never ran."""
    lines = [
        "job_id,workload_name,starting_time,finish_time,allocated_resources,metadata"
    ]
    for number, job in enumerate(jobs):
        places = sorted(sorted(HOSTS).index(host) for host in job.hosts)
        numbers = " ".join(map(str, places))
        if job.style % 2 and places == list(range(places[0], places[-1] + 1)):
            numbers = f"{places[0]}-{places[-1]}"
        lines.append(
            f'{number},w0,{BEGIN_S + job.start_s}.0,{BEGIN_S + job.end_s},{numbers},"a,b"'
        )
    return "\n".join([*lines, "x,w0,-1,-1,,"]) + "\n"


def prometheus(jobs: Iterable[SyntheticJob]) -> str:
    """A range query of the numbers of idle, allocated and mixed nodes, by the second."""
    idle = idle_seconds(jobs).sum(axis=0).tolist()
    idle.append(idle[-1])
    taken = [len(HOSTS) - free for free in idle]
    series = {
        "idle": idle,
        "alloc": [count // 2 for count in taken],
        "mix": [count - count // 2 for count in taken],
    }
    return range_query(
        (
            ({"__name__": f"slurm_nodes_{name}", "instance": "a:8080"}, counts)
            for name, counts in series.items()
        ),
        BEGIN_S,
        1,
    )


def ldms(jobs: Iterable[SyntheticJob]) -> str:
    """store_csv by the second, each node a few milliseconds late."""
    idle = idle_seconds(jobs)
    lines = ["#Time,Time_usec,ProducerName,component_id,job_id,app_id,MemFree"]
    for second in range(LENGTH_S + 1):
        for place, host in enumerate(sorted(HOSTS)):
            job = 0 if idle[place, min(second, LENGTH_S - 1)] else 4711
            lines.append(
                f"{BEGIN_S + second}.00{place}123,{place}123,{host},{place},{job},0,17"
            )
    return "\n".join(lines) + "\n"
