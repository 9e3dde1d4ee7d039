"""Logs written from known jobs, for PBS, LSF, Grid Engine, Cobalt and SWF, and the expected traces."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs import (
    Clock,
    Collector,
    Diagnosis,
    Reading,
    Settings,
    node_trace,
    read_log,
)
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

# A day on which no zone used here changes its clocks.
BEGIN_S = 1_612_900_000
LENGTH_S = 120
HOSTS = ("n01", "n02", "rack-3.cluster.org", "x3005c0s7b0n0", "n10")


@dataclass(frozen=True, slots=True)
class SyntheticJob:
    """A job on some hosts, seconds since BEGIN_S; `style` picks among the ways in which a format may state it."""

    hosts: tuple[str, ...]
    start_s: int
    end_s: int
    style: int


@st.composite
def job_lists(draw: st.DrawFn, *, apart: bool = False) -> list[SyntheticJob]:
    """Jobs inside the window, also of zero length and sharing hosts; `apart`: none shares a host at any time."""
    jobs: list[SyntheticJob] = []
    for _ in range(draw(st.integers(1, 8))):
        hosts = tuple(draw(st.permutations(HOSTS))[: draw(st.integers(1, len(HOSTS)))])
        start = draw(st.integers(0, LENGTH_S - 1))
        end = draw(st.integers(start, LENGTH_S))
        job = SyntheticJob(hosts, start, end, draw(st.integers(0, 7)))
        if not apart or not any(_clash(job, other) for other in jobs):
            jobs.append(job)
    return jobs


def _clash(job: SyntheticJob, other: SyntheticJob) -> bool:
    return (
        bool({*job.hosts} & {*other.hosts})
        and job.start_s < other.end_s
        and other.start_s < job.end_s
    )


def idle_seconds(jobs: Iterable[SyntheticJob]) -> NDArray[np.bool_]:
    """Whether each host is idle during each second: bool of shape (hosts sorted by name, seconds)."""
    idle = np.ones((len(HOSTS), LENGTH_S), dtype=bool)
    places = {host: place for place, host in enumerate(sorted(HOSTS))}
    for job in jobs:
        for host in job.hosts:
            idle[places[host], job.start_s : job.end_s] = False
    return idle


def idle_seconds_of(trace: NodeTrace) -> NDArray[np.bool_]:
    """The same of a trace, whatever the order of its nodes."""
    idle = np.zeros((len(trace.nodes), LENGTH_S), dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second, rest = divmod(time - BEGIN_S * SECOND_NS, SECOND_NS)
        assert rest == 0
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return idle[np.argsort(np.array(trace.nodes))]


def ingest(
    name: str,
    *texts: str,
    hosts: Sequence[str] = HOSTS,
    settings: Settings | None = None,
    tz: str | None = None,
    diagnosis: Diagnosis | None = None,
) -> NodeTrace:
    """Read files one after the other, check the account, and make the trace of the whole window."""
    collected, diagnosis = (
        Collector(min_gap_ns=0),
        diagnosis or Diagnosis(allow_few=True),
    )
    collected.known(hosts)
    read_into(collected, diagnosis, name, *texts, settings=settings, tz=tz)
    start, end = BEGIN_S * SECOND_NS, (BEGIN_S + LENGTH_S) * SECOND_NS
    return node_trace(collected, diagnosis, start_ns=start, end_ns=end)[0]


def read_into(
    collected: Collector,
    diagnosis: Diagnosis,
    name: str,
    *texts: str,
    settings: Settings | None = None,
    tz: str | None = None,
) -> None:
    """Read files one after the other, resolve repeated records, and check the account."""
    clock = Clock(tz, diagnosis)
    for number, text in enumerate(texts):
        file = f"log.{number}"
        read_log(
            name,
            Reading(
                text.split("\n"),
                file,
                collected,
                diagnosis,
                clock,
                settings or Settings(),
            ),
        )
    collected.settle(diagnosis)
    diagnosis.balance()


def intervals(collected: Collector) -> set[tuple[str, float, float]]:
    """What was busy: host, start and end in seconds since BEGIN_S."""
    collected.settle(Diagnosis())
    names = list(collected.names)
    base = BEGIN_S * SECOND_NS
    columns = (column.tolist() for column in collected.busy_intervals.merged())
    return {
        (names[node], (start - base) / 1e9, (end - base) / 1e9)
        for node, start, end in zip(*columns, strict=True)
    }


def _in_order(records: list[tuple[int, int, str]]) -> str:
    """Records by time; at one time in the order in which they were made."""
    return "".join(f"{text}\n" for _, _, text in sorted(records))


def pbs(jobs: Iterable[SyntheticJob]) -> str:
    """An accounting file: jobs with S and E, with E alone, requeued, or running until the end."""
    records: list[tuple[int, int, str]] = []

    def add(second: int, kind: str, ident: str, message: str) -> None:
        stamp = datetime.fromtimestamp(BEGIN_S + second, UTC).strftime(
            "%m/%d/%Y %H:%M:%S"
        )
        records.append((second, len(records), f"{stamp};{kind};{ident};{message}"))

    for number, job in enumerate(jobs):
        ident = f"{number}.server"
        hosts = "+".join(
            (f"{h}/7+{h}/6", f"{h}/0*13", f"{h}/0-3", f"{h}/0-3,5")[job.style % 4]
            for h in job.hosts
        )
        name = ("STDIN", '"two words; start=7"', "it's", '"end=1 exec_host=zz/0"')[
            job.style % 4
        ]
        what = f"user=u jobname={name} queue=q exec_host={hosts}"
        if job.style == 5:
            what = f"user=u exec_vnode={'+'.join(f'({h}[0]:ncpus=4+{h}[1]:ncpus=4:mem=1gb)' for h in job.hosts)}"
        what += f" start={BEGIN_S + job.start_s}"
        end = f" session=1 end={BEGIN_S + job.end_s} Exit_status=0"
        add(job.start_s, "Q", ident, "queue=q")
        if job.style == 6 and job.end_s == LENGTH_S:
            add(job.start_s, "S", ident, what)
            continue
        if job.style % 2:
            add(job.start_s, "S", ident, what)
        add(job.end_s, "R" if job.style == 3 else "E", ident, what + end)
    add(
        LENGTH_S,
        "E",
        "last.server",
        f"exec_host=n01/0 start={BEGIN_S + LENGTH_S} end={BEGIN_S + LENGTH_S}",
    )
    return _in_order(records)


def _lsf_hosts(job: SyntheticJob) -> str:
    if job.style % 2:
        return f"{len(job.hosts)} " + " ".join(f'"16*{host}"' for host in job.hosts)
    return f"{2 * len(job.hosts)} " + " ".join(
        f'"{host}" "{host}"' for host in job.hosts
    )


def lsb_acct(jobs: Iterable[SyntheticJob]) -> str:
    """Lines of lsb.acct, with tails of several lengths."""
    records = []
    for number, job in enumerate(jobs):
        start, end = BEGIN_S + job.start_s, BEGIN_S + job.end_s
        asked = '2 "n99" "all"' if job.style > 3 else "0"
        text = (
            f'"JOB_FINISH" "10.{job.style}" {end} {number} 1 33 16 {start} 0 0 {start} "u" "q" "" "" "" "login" "/" '
            f'"" "" "" "file" {asked} {_lsf_hosts(job)} 64 100.0 "" "#BSUB -R ""span[hosts=1]"";a ""b" 0.1 0.2'
        )
        records.append((job.end_s, number, text + " 0 -1" * job.style))
    return "# a comment\n" + _in_order(records)


def lsb_events(jobs: Iterable[SyntheticJob]) -> str:
    """lsb.events: jobs that end, that are put back into the queue, and that run until the end."""
    records: list[tuple[int, int, str]] = []

    def add(second: int, kind: str, fields: str) -> None:
        records.append(
            (second, len(records), f'"{kind}" "10.1" {BEGIN_S + second} {fields}')
        )

    for number, job in enumerate(jobs):
        index = job.style
        add(job.start_s, "JOB_NEW", f'{number} 1 33 "u" "say ""so"""')
        add(
            job.start_s,
            "JOB_START",
            f'{number} 4 0 0 100.0 {_lsf_hosts(job)} "" "" 0 "" {index} "" 2147483647',
        )
        if job.style == 6 and job.end_s == LENGTH_S:
            continue
        if job.style == 5:
            add(job.end_s, "JOB_REQUEUE", f"{number} {index}")
        elif job.style == 4:
            add(job.end_s, "JOB_STATUS", f"{number} 1 2903 0 0.0 0 0 0 {index} 0")
        else:
            usage = "1" + " 0.5" * 19 if job.style % 2 else "0"
            end = BEGIN_S + job.end_s
            add(
                job.end_s,
                "JOB_STATUS",
                f"{number} {(64, 32)[job.style > 1]} 0 0 0.1 {end} {usage} 0 {index} 0 0",
            )
            add(job.end_s, "JOB_STATUS", f"{number} 192 0 0 0.1 {end} 0 0 {index} 0 0")
    add(LENGTH_S, "MBD_DIE", '"master" 0 0')
    return "#80      \n" + _in_order(records)


def sge(jobs: Iterable[SyntheticJob]) -> str:
    """A Grid Engine accounting file: a record for each host of a job, in seconds or milliseconds."""
    lines = ["# Version: 8.1.9", "#"]
    for number, job in enumerate(jobs):
        unit = "000" if job.style % 2 else ""
        start, end = f"{BEGIN_S + job.start_s}{unit}", f"{BEGIN_S + job.end_s}{unit}"
        for task, host in enumerate(job.hosts):
            head = f"q:{host}:g:u:name:{number}:sge:0:{'0' if task else start}:{start}:{end}:0:0:1"
            lines.append(
                head
                + ":0" * 19
                + f":mpi:{16 * len(job.hosts)}:0:0:0:0:-l h_rt=1:0:{task or 'NONE'}:0:0:0"
            )
    return "\n".join(lines) + "\n"


def cobalt(jobs: Iterable[SyntheticJob], tz: str = "America/Chicago") -> str:
    """A job table as ALCF publishes it, with local times."""
    out = io.StringIO()
    table = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    table.writerow(
        [
            "JOB_NAME",
            "MACHINE_NAME",
            "START_TIMESTAMP",
            "END_TIMESTAMP",
            "NODES_USED",
            "LOCATION",
        ]
    )
    for number, job in enumerate(jobs):
        times = (
            datetime.fromtimestamp(BEGIN_S + second, ZoneInfo(tz))
            for second in (job.start_s, job.end_s)
        )
        fraction = ".000000" if job.style % 2 else ""
        stamps = [f"{time:%Y-%m-%d %H:%M:%S}{fraction}" for time in times]
        table.writerow(
            [
                f"{number}.polaris",
                "polaris",
                *stamps,
                float(len(job.hosts)),
                ",".join(job.hosts),
            ]
        )
    return out.getvalue()


def swf(jobs: Iterable[SyntheticJob], processors_per_node: int) -> str:
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


@st.composite
def damages(draw: st.DrawFn, text: str) -> str:
    """A log with some of its bytes changed, cut off, fields swapped, blown up or emptied, NUL bytes, quotes, lines."""
    data = bytearray(text.encode())
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(
            st.sampled_from(["bytes", "cut", "swap", "huge", "empty", "number", "glue"])
        )
        if kind == "bytes":
            data[at : at + draw(st.integers(0, 3))] = draw(
                st.binary(min_size=0, max_size=4) | st.just(b"\0" * 9)
            )
        elif kind == "cut":
            del data[at:]
        elif kind == "glue":
            data[at:at] = draw(
                st.sampled_from(
                    [b'"', b"'", b"\n", b";", b",", b":", b" ", b"=", b"+", b"/", b"("]
                )
            )
        else:
            lines = bytes(data).split(b"\n")
            line = draw(st.integers(0, len(lines) - 1))
            separator = draw(st.sampled_from([b" ", b";", b",", b":", b"+"]))
            words = lines[line].split(separator)
            one, other = (
                draw(st.integers(0, len(words) - 1)),
                draw(st.integers(0, len(words) - 1)),
            )
            if kind == "swap":
                words[one], words[other] = words[other], words[one]
            elif kind == "huge":
                words[one] = (words[one] or b"9") * (20_000 // (len(words[one]) or 1))
            elif kind == "empty":
                words[one] = b""
            else:
                words[one] = draw(st.sampled_from(ODD_NUMBERS))
            lines[line] = separator.join(words)
            data = bytearray(b"\n".join(lines))
    return bytes(data).decode("utf-8", "surrogateescape")


ODD_NUMBERS = (
    b"-1", b"0", b"nan", b"inf", b"-inf", b"1e999", b"1e18", b"99999999999999999999999", b"9199999999", b"0x10",
    "\u0663".encode(), b"1_000", b"1612900000.5", b"2021-13-45", b"4294967295", b"02",
)  # fmt: skip


def survives(name: str, text: str, *, before: tuple[str, str] | None = None) -> None:
    """Whatever the text, it is read with every line accounted for, or refused."""
    collected, diagnosis = Collector(), Diagnosis()
    try:
        if before:
            read_into(collected, diagnosis, *before)
        read_into(collected, diagnosis, name, text)
        trace, _ = node_trace(collected, diagnosis)
    except InputError:
        return
    assert all(node.isascii() for node in trace.nodes)


def read_files(
    name: str, *texts: str, **given: Any
) -> tuple[set[tuple[str, float, float]], Diagnosis]:
    """What files say was busy, see `intervals`, and the account of reading them; `given` as for `read_into`."""
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, name, *texts, **given)
    return intervals(collected), diagnosis


def read_lines(
    name: str, *lines: str, **given: Any
) -> tuple[set[tuple[str, float, float]], Diagnosis]:
    """The same of one file with these lines."""
    return read_files(name, "\n".join(lines), **given)
