"""Logs written from known jobs, by the texts of tests/data/written.toml; reading them, and what must come of them."""

import json
import math
import tomllib
from contextlib import chdir
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

from bft.models import InputError
from bft.replay.logs.ingest import Ingested, IngestOptions, ingested
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


def idle_seconds(jobs):
    """Whether each host is idle during each second: bool of shape (hosts sorted by name, seconds)."""
    idle = np.ones((len(HOSTS), LENGTH_S), dtype=bool)
    places = {host: place for place, host in enumerate(sorted(HOSTS))}
    for job in jobs:
        for host in job.hosts:
            idle[places[host], job.start_s : job.end_s] = False
    return idle


def idle_told(trace: NodeTrace, begin_s: int, seconds: int):
    """Whether a trace says that each of its slots is idle in each second: bool of shape (slots, seconds)."""
    told = np.zeros((trace.slots, seconds), dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second = max(0, time // SECOND_NS - begin_s)
        told[trace.leaves(event), second:] = False
        told[trace.joins(event), second:] = True
    return told


def idle_seconds_of(trace: NodeTrace, seconds: int = LENGTH_S):
    """As `idle_seconds`, of a trace whose times are whole seconds, whatever the order of its nodes."""
    assert not (trace.times % SECOND_NS).any()
    return idle_told(trace, BEGIN_S, seconds)[np.argsort(np.array(trace.nodes))]


# How far from BEGIN_S `read_texts` looks, in seconds. A job without an end is believed for a day and more.
AROUND_S = 86_400
_FOLDER = TemporaryDirectory()


def read_texts(
    form: str,
    *texts: str | bytes,
    window: tuple[float, float] | None = (-AROUND_S, AROUND_S),
    files=None,
    **options,
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
    bounds = zip(("begin", "end"), window or (), strict=window is not None)
    asked = {"tz": "UTC", "min_gap_s": 0.0, "uncertain": "idle", "allow_few": True}
    asked |= {name: f"{BEGIN_S + second}" for name, second in bounds} | options
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


def taken(trace: NodeTrace):
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


def read_files(form: str, *texts: str | bytes, **options):
    """When files say that nodes were not idle, see `taken`, and the account of reading them; see `read_texts`."""
    made = read_texts(form, *texts, **options)
    return taken(made.trace), made.account


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


# -- logs of jobs

FORMS = tomllib.loads(
    (Path(__file__).parent / "data" / "written.toml").read_text("utf-8")
)
FRAME = ("head", "foot", "first", "sep", "sort", "json", "host", "join")


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


def written(form: str, jobs, *, tz: str = "UTC", **other) -> str:
    """What a program prints of jobs; `other` texts take the place of those of the form."""
    spec, jobs = FORMS[form] | other, list(jobs)
    rows = [spec["first"]] if "first" in spec else []
    for number, job in enumerate(jobs):
        texts = known(job, number, tz)

        def filled(value, texts = texts, style: int = job.style) -> str:  # fmt: skip
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


def swf(jobs, processors_per_node: int) -> str:
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


def oar_gantt(jobs) -> str:
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
