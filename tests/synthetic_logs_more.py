"""Logs written from known jobs, for PBS, LSF, Grid Engine, Cobalt and SWF, and the expected traces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.ingest import Ingested, IngestOptions, ingested
from bft.replay.logs.records import Account
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import fragments

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


def idle_told(trace: NodeTrace, begin_s: int, seconds: int) -> NDArray[np.bool_]:
    """Whether a trace says that each of its slots is idle in each second: bool of shape (slots, seconds)."""
    told = np.zeros((trace.slots, seconds), dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second = max(0, time // SECOND_NS - begin_s)
        told[trace.leaves(event), second:] = False
        told[trace.joins(event), second:] = True
    return told


def idle_seconds_of(trace: NodeTrace, seconds: int = LENGTH_S) -> NDArray[np.bool_]:
    """As `idle_seconds`, of a trace whose times are whole seconds, whatever the order of its nodes."""
    assert not (trace.times % SECOND_NS).any()
    return idle_told(trace, BEGIN_S, seconds)[np.argsort(np.array(trace.nodes))]


# How far from BEGIN_S `read_texts` looks, in seconds. A job without an end is believed for a day and more.
AROUND_S = 86_400
Spans = set[tuple[str, float, float]]
_FOLDER = TemporaryDirectory()


def read_texts(
    form: str,
    *texts: str | bytes,
    window: tuple[float, float] | None = (-AROUND_S, AROUND_S),
    files: Mapping[str, str | bytes] | None = None,
    **options: Any,
) -> Ingested:
    """What `ingested` makes of texts, as files log.0, log.1, ..., and checks that all rows are accounted for.

    Parameters
    ----------
    window
        Begin and end of the window of observation, seconds since BEGIN_S; None: as the logs say.
    files
        Texts of further files, by the names that `options` have, as in `events=["down"]`.
    options
        As `IngestOptions` has them; by default times are UTC, no gap is too short, doubtful time is idle, and few
        usable rows will do.
    """
    asked: dict[str, Any] = {"tz": "UTC", "min_gap_s": 0.0, "uncertain": "idle"}
    if window is not None:
        begin, end = (f"{BEGIN_S + second}" for second in window)
        asked |= {"begin": begin, "end": end}
    asked |= {"allow_few": True, **options}
    named = {f"log.{number}": text for number, text in enumerate(texts)}
    with chdir(_FOLDER.name):
        for name, text in {**named, **(files or {})}.items():
            data = (
                text
                if isinstance(text, bytes)
                else text.encode("utf-8", "surrogateescape")
            )
            Path(name).write_bytes(data)
        made = ingested(form, list(named), IngestOptions(**asked))
    account = made.account
    tallies = [*account.skipped.values(), *account.left_out.values()]
    assert account.used + sum(tally.count for tally in tallies) == account.rows
    return made


def taken(trace: NodeTrace) -> Spans:
    """When nodes or units were not idle: name, start, end in seconds since BEGIN_S; that of the window is infinity."""
    found = fragments(trace)
    columns = (found.node, found.start_ns, found.end_ns)
    idle: dict[int, list[tuple[int, int]]] = {}
    for node, start, end in zip(*(column.tolist() for column in columns), strict=True):
        idle.setdefault(node, []).append((start, end))
    spans = set()
    for node in trace.members().tolist():
        name = trace.name_of(node)
        bounds = [trace.start, *sum(idle.get(node, []), ()), trace.end]
        seconds = [bound / SECOND_NS - BEGIN_S for bound in bounds]
        seconds[-1] = math.inf
        pairs = zip(bounds[::2], bounds[1::2], seconds[::2], seconds[1::2], strict=True)
        spans |= {
            (name, since, until) for low, high, since, until in pairs if low < high
        }
    return spans


def read_files(form: str, *texts: str | bytes, **options: Any) -> tuple[Spans, Account]:
    """When files say that nodes were not idle, see `taken`, and the account of reading them; see `read_texts`."""
    made = read_texts(form, *texts, **options)
    return taken(made.trace), made.account


def read_lines(form: str, *lines: str, **options: Any) -> tuple[Spans, Account]:
    """The same of one file with these lines."""
    return read_files(form, "\n".join(lines), **options)


def notes(account: Account) -> list[str]:
    """What is told of rows that are used, in order; what is told of whole logs is left out."""
    return [reason for reason, tally in account.notes.items() if tally.line]


def ingest(
    form: str, *texts: str, hosts: Sequence[str] = HOSTS, **options: Any
) -> NodeTrace:
    """The trace of the whole window, of these nodes."""
    listed = {"nodes": [",".join(hosts)], "window": (0, LENGTH_S), **options}
    return read_texts(form, *texts, **listed).trace


@st.composite
def damages(draw: st.DrawFn, text: str) -> str:
    """A log with some of its bytes changed, cut off, fields swapped, blown up or emptied, NUL bytes, quotes, lines."""
    data = text.encode()
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["noise", "cut", "swap", "word"]))
        if kind == "cut":
            data = data[:at]
        elif kind == "noise":
            data = data[:at] + draw(_NOISE) + data[at + draw(st.integers(0, 3)) :]
        else:
            lines = data.split(b"\n")
            line = draw(st.integers(0, len(lines) - 1))
            mark = draw(st.sampled_from([b" ", b";", b",", b":", b"+"]))
            words = lines[line].split(mark)
            one, other = (draw(st.integers(0, len(words) - 1)) for _ in range(2))
            blown = (words[one] or b"9") * (20_000 // (len(words[one]) or 1))
            odd = words[other] if kind == "swap" else draw(st.sampled_from([blown, b"", *ODD_NUMBERS]))  # fmt: skip
            if kind == "swap":
                words[other] = words[one]
            words[one] = odd
            lines[line] = mark.join(words)
            data = b"\n".join(lines)
    return data.decode("utf-8", "surrogateescape")


_NOISE = st.binary(max_size=4) | st.sampled_from(
    [b"\0" * 9, b'"', b"'", b"\n", b";", b",", b":", b" ", b"=", b"+", b"/", b"("]
)
ODD_NUMBERS = (
    b"-1", b"0", b"nan", b"inf", b"-inf", b"1e999", b"1e18", b"99999999999999999999999", b"9199999999", b"0x10",
    "\u0663".encode(), b"1_000", b"1612900000.5", b"2021-13-45", b"4294967295", b"02",
)  # fmt: skip


def survives(form: str, *texts: str) -> None:
    """Whatever the texts, they are read with every row accounted for, or refused."""
    try:
        trace = read_texts(form, *texts).trace
    except InputError:
        return
    assert all(node.isascii() for node in trace.nodes)
