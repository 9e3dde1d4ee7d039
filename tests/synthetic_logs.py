"""Logs written from known jobs: the texts of tests/data/written.toml filled, and formats that are no rows of jobs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any
from zoneinfo import ZoneInfo

from export_world import range_query
from synthetic_logs_more import BEGIN_S, HOSTS, LENGTH_S, SyntheticJob, idle_seconds

FORMS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "data" / "written.toml").read_text("utf-8")
)
FRAME = ("head", "foot", "first", "sep", "sort", "json", "host", "join")
Jobs = Iterable[SyntheticJob]


def stamp(second: int, tz: str = "UTC") -> str:
    """A time as Slurm prints it: local, without its zone."""
    return f"{datetime.fromtimestamp(BEGIN_S + second, ZoneInfo(tz)):%Y-%m-%dT%H:%M:%S}"


def known(job: SyntheticJob, number: int, tz: str) -> dict[str, str]:
    """What the texts may name of a job."""
    start, end = BEGIN_S + job.start_s, BEGIN_S + job.end_s
    counts = {"n": number, "n1": number + 1, "s": start, "e": end, "length": end - start, "style": job.style,
              "count": len(job.hosts), "twice": 2 * len(job.hosts), "slots": 16 * len(job.hosts),
              "before": end - 1, "earlier": start - 1, "later": end + 500}  # fmt: skip
    texts = {name: str(count) for name, count in counts.items()}
    texts["hosts"] = ",".join(job.hosts)
    for name, second in (("start", job.start_s), ("end", job.end_s)):
        texts[name] = stamp(second, tz)
        texts[f"d{name}"] = texts[name].replace("T", " ")
        utc = datetime.fromtimestamp(BEGIN_S + second, UTC)
        texts[f"u{name}"] = f"{utc:%m/%d/%Y %H:%M:%S}"
    return texts


def written(form: str, jobs: Jobs, *, tz: str = "UTC", **other: Any) -> str:
    """What a program prints of jobs; `other` texts take the place of those of the form."""
    spec, jobs = FORMS[form] | other, list(jobs)
    rows = [spec["first"]] if "first" in spec else []
    for number, job in enumerate(jobs):
        texts = known(job, number, tz)

        def filled(value: Any, texts: dict[str, Any] = texts, style: int = job.style) -> str:  # fmt: skip
            one = value[style % len(value)] if isinstance(value, list) else value
            return Template(one).safe_substitute(texts)

        listed = [filled(spec.get("host", ""), {"h": host}) for host in job.hosts]
        texts["list"] = spec.get("join", "").join(listed)
        for name in (each for each in spec if each not in FRAME):
            texts[name] = filled(spec[name])
        runs_on = "open" in spec and job.style == 6 and job.end_s == LENGTH_S
        mine = [texts["open" if runs_on else "row"]]
        mine += [texts["others"]] * (len(job.hosts) - 1) if "others" in spec else []
        for task, (text, host) in enumerate(zip(mine, job.hosts, strict=False)):
            own = {"h": host, "task": task or "NONE", "task0": task}
            rows.append(Template(text).safe_substitute(own))
    head = Template(spec.get("head", "")).safe_substitute(spec)
    sep = spec.get("sep", ["\n", "\n"])[len(rows) % 2]
    if "sort" in spec:
        rows = "\n".join(rows).split("\n")
        rows.sort(key=lambda row: row[:19] if spec["sort"] == "stamp" else int(row.split()[spec["sort"]]))  # fmt: skip
    if spec.get("json"):
        whole = json.loads(head + sep.join(rows) + spec["foot"])
        return json.dumps(whole, indent=1 if all(job.style for job in jobs) else None)
    rows += [spec["foot"]] if "foot" in spec else []
    return head + sep.join(rows) + ("\n" if sep else "")


def swf(jobs: Jobs, processors_per_node: int) -> str:
    """A workload with the header of the archive; jobs use all processors of their nodes, or all but one."""
    nodes = len(HOSTS)
    lines = [
        "; Version: 2.2",
        "; Computer: made up",
        f"; UnixStartTime: {BEGIN_S}",
        "; TimeZone: 3600",
        f"; MaxNodes: {nodes}",
        f"; MaxProcs: {nodes * processors_per_node}",
        ";",
    ]
    for number, job in enumerate(sorted(jobs, key=lambda job: job.start_s), 1):
        processors = len(job.hosts) * processors_per_node - (
            job.style % 2 and processors_per_node > 1
        )
        wait = min(job.start_s, job.style)
        submit = job.start_s - wait + (BEGIN_S if job.style == 7 else 0)
        allocated, requested = (-1, processors) if job.style == 6 else (processors, -1)
        run = f"{job.end_s - job.start_s}{'.00' if job.style > 3 else ''}"
        lines.append(
            f"{number:5} {submit} {wait} {run} {allocated} -1 -1 {requested} 9 -1 1 1 1 -1 -1 1 -1 -1"
        )
    return "\n".join(lines) + "\n"


def oar_gantt(jobs: Jobs) -> str:
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


def zulu(second: int) -> str:
    """A time as Kubernetes prints it."""
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def pods(jobs: Jobs) -> str:
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


def batsim(jobs: Jobs) -> str:
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


def prometheus(jobs: Jobs) -> str:
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


def ldms(jobs: Jobs) -> str:
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
