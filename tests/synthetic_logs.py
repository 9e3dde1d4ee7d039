"""Logs of Slurm, and the generic format, written from known jobs; see synthetic_logs_more for the jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from synthetic_logs_more import BEGIN_S, SyntheticJob


def stamp(second: int, tz: str = "UTC") -> str:
    """A time as Slurm prints it: local, without its zone."""
    return f"{datetime.fromtimestamp(BEGIN_S + second, ZoneInfo(tz)):%Y-%m-%dT%H:%M:%S}"


def sacct(jobs: Iterable[SyntheticJob], delimiter: str = "|", tz: str = "UTC") -> str:
    """`sacct -P` with steps, free text that has delimiters or line breaks in it, and epochs, by the style of a job."""
    columns = (
        "JobID",
        "JobName",
        "NodeList",
        "AllocNodes",
        "Start",
        "End",
        "State",
        "Comment",
    )
    lines = [delimiter.join(columns)]
    for number, job in enumerate(jobs, 1):
        times = [
            str(BEGIN_S + s) if job.style == 3 else stamp(s, tz)
            for s in (job.start_s, job.end_s)
        ]
        name = (
            "job",
            "job",
            f"a{delimiter}b",
            "séquence",
            "a\nb",
            f"{delimiter}{delimiter}",
            "",
            "a b",
        )[job.style]
        comment = f"x{delimiter}y" if job.style == 7 else ""
        state = ("COMPLETED", "CANCELLED by 1000")[job.style % 2]
        rest = (name, ",".join(job.hosts), str(len(job.hosts)), *times, state, comment)
        lines.append(delimiter.join((str(number), *rest)))
        if job.style % 2:
            lines.append(delimiter.join((f"{number}.batch", *rest)))
    return "\n".join(lines) + "\n"


def sacct_json(jobs: Iterable[SyntheticJob]) -> str:
    """`sacct --json`, on one line or many, with numbers as this or that release prints them."""
    entries = []
    styles = set()
    for number, job in enumerate(jobs, 1):
        styles.add(job.style)
        end: object = BEGIN_S + job.end_s
        if job.style % 2:
            end = {"set": True, "infinite": False, "number": end}
        entries.append(
            {
                "job_id": number,
                "name": '}]"{\\' * (job.style > 3),
                "nodes": ",".join(job.hosts),
                "state": {"current": ["COMPLETED"] if job.style > 1 else "COMPLETED"},
                "time": {"start": BEGIN_S + job.start_s, "end": end},
                "steps": [
                    {"step": {"name": "jobs"}, "nodes": {"list": ["x"]}, "jobs": [{}]}
                ],
            }
        )
    whole = {
        "meta": {"jobs": "[{", "plugin": [{"jobs": []}]},
        "jobs": entries,
        "errors": [],
        "warnings": [{}],
    }
    return json.dumps(whole, indent=None if 0 in styles else 1)


def sacctmgr_events(jobs: Iterable[SyntheticJob]) -> str:
    """`sacctmgr -p show event`, a line a node: the nodes were down when jobs ran."""
    rows = [
        f"c|{host}|{stamp(job.start_s)}|{stamp(job.end_s)}|DOWN*|{'a | b' if job.style % 2 else 'Not responding'}|root|"
        for job in jobs
        for host in job.hosts
    ]
    whole = f"c||{stamp(0)}|Unknown|4|Cluster registered TRES||"
    return (
        "\n".join(
            ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|", whole, *rows]
        )
        + "\n"
    )


def scontrol_reservations(jobs: Iterable[SyntheticJob]) -> str:
    """`scontrol show reservation`, over several lines each or, by the style of a job, on one (-o)."""
    return "".join(
        (" " if job.style % 2 else "\n   ").join(
            (
                f"ReservationName=m_{number} StartTime={stamp(job.start_s)} EndTime={stamp(job.end_s)} Duration=0",
                f"Nodes={','.join(job.hosts)} NodeCnt={len(job.hosts)} Features=(null) Flags=MAINT\n\n",
            )
        )
        for number, job in enumerate(jobs)
    )


def sacctmgr_reservations(jobs: Iterable[SyntheticJob]) -> str:
    """`sacctmgr -P show reservation`, which calls its field NodeNames and the column NodeName."""
    rows = [
        f"c|m|{','.join(job.hosts)}|{stamp(job.start_s)}|{stamp(job.end_s)}"
        for job in jobs
    ]
    return "\n".join(["Cluster|Name|NodeName|TimeStart|TimeEnd", *rows]) + "\n"


def interval_table(
    jobs: Iterable[SyntheticJob], states: Sequence[str] = ("busy", "down")
) -> str:
    """The generic CSV."""
    rows = [
        f'"{",".join(job.hosts)}",{BEGIN_S + job.start_s},{stamp(job.end_s)},{states[job.style % len(states)]}'
        for job in jobs
    ]
    return "\n".join(["node,start,end,state", *rows]) + "\n"
