"""Prometheus: the answer to a range query over numbers of nodes by state, such as slurm_nodes_idle."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from bft.models import InputError
from bft.models.cells import read_number
from bft.replay.logs.formats import LogFormat
from bft.replay.logs.records import Log, Row, Unusable, each_object
from bft.replay.logs.states import MOST_PERIODS, state_of
from bft.replay.logs.times import MOST_EPOCH_S

COMMAND = "curl 'http://HOST:9090/api/v1/query_range?query={__name__=~\"slurm_nodes_.*\"}&start=...&end=...&step=60'"
# slurm_nodes_idle; or the state as a label.
NAME = re.compile(r"\w*nodes?_([a-z]+)", re.ASCII)
# Sums over all states.
TOTALS = ("total", "count", "all")
MOST_NODES = 10**7


def read(log: Log) -> Iterator[Row]:
    """Read series of the numbers of nodes in a state, as jobs of one node each for the nodes that are not idle.

    The series of a state are added up. A value holds until the next, for 2.5 steps at the most; then all nodes count as
    taken. The machine has as many nodes as --machine-nodes says, else as all states have together; where only idle
    nodes are counted, as were idle at once. Of the nodes that are not idle those with the lowest numbers are.
    """
    idle: dict[int, float] = defaultdict(float)
    others: dict[int, float] = defaultdict(float)

    def answer(entry: dict[str, Any], _: str, line: int) -> Iterator[Row]:
        if entry.get("status", "success") != "success":
            raise Unusable("Prometheus reports an error", str(entry.get("error"))[:200])
        states = [(one, state_in(one["metric"])) for one in entry["data"]["result"]]
        refuse_partitions(log, [one["metric"] for one, state in states if state])
        for one, state in states:
            if state is None:
                why = (
                    "a series counts no nodes in a state that is known: it was not read"
                )
                log.note(why, line, ascii(str(one["metric"])[:80]))
                continue
            into = idle if state == "idle" else others
            for stamp, value in one["values"]:
                time, number = sample(stamp, value)
                into[time] += number
        if "idle" not in [state for _, state in states]:
            raise Unusable("no series counts idle nodes", f"{len(states)} series")
        yield {"kind": "nothing"}

    expected = "answer of Prometheus: expected data.result with metric and values"
    yield from each_object(log, answer, keys=(), expected=expected, command=COMMAND)
    if idle:
        yield from taken(log, idle, others)


def refuse_partitions(log: Log, metrics: list[dict[str, Any]]) -> None:
    """Refuse series of several partitions: a node may belong to several, and would count in each."""
    names = sorted(
        {str(metric["partition"]) for metric in metrics if "partition" in metric}
    )
    if len(names) > 1:
        some = ascii(", ".join(names[:4]))[:80]
        why = f"counts the nodes of each partition ({some}): those of several would count in each"
        hint = 'query the series of all nodes, or those of one partition: {...,partition="NAME"}'
        raise InputError(why, file=log.name, hint=hint)


def state_in(metric: dict[str, Any]) -> str | None:
    """Return the state whose nodes a series counts; None when it is none."""
    name = NAME.fullmatch(str(metric.get("__name__", "")))
    label = metric.get("state") or metric.get("status") or (name[1] if name else "")
    word = str(label).lower()
    return None if word in TOTALS else state_of("error" if word == "err" else word)


def sample(stamp: object, value: object) -> tuple[int, float]:
    """Return the UTC nanoseconds and the number of a sample, which Prometheus writes as text."""
    number = read_number(str(value))
    if not isinstance(stamp, int | float) or not 0 < stamp < MOST_EPOCH_S:
        raise Unusable("a sample has no time in seconds since 1970", repr(stamp)[:40])
    if not 0 <= number <= MOST_NODES:
        raise Unusable("a sample is no number of nodes", repr(value)[:40])
    return round(stamp * 1000) * 10**6, number


def taken(log: Log, idle: dict[int, float], others: dict[int, float]) -> Iterator[Row]:
    """Yield since when and until when each node was not idle."""
    times = sorted(idle)
    if len(times) < 2:
        why = "one sample is no log: at least two, of different times, are needed"
        raise InputError(why, file=log.name)
    size = log.settings.machine_nodes or max(
        round(idle[time] + others.get(time, 0)) for time in times
    )
    step = median(map(int.__sub__, times[1:], times))
    seconds = f"{step / 1e9:g} s"
    why = f"nodes were counted every {seconds}: begin and end of an idle fragment are known to {seconds}, and shorter "
    log.note(why + "ones may be missed", 0, f"{len(times):,} samples")
    if not others and log.settings.machine_nodes is None:
        why = "only idle nodes are counted: the machine is taken to have as many nodes as were idle at once"
        log.note(why, 0, f"{size}; --machine-nodes states its size", loud=True)
    # How many nodes are taken from each time on; where samples are missing, all.
    changes = []
    for time, following in pairwise(times):
        changes.append((time, size - round(idle[time])))
        if following - time > MOST_PERIODS * step:
            changes.append((time + int(MOST_PERIODS * step), size))
    begun: list[int] = []  # of the node with each number, since when it is taken
    for time, count in [*changes, (times[-1], 0)]:
        wanted = min(max(count, 0), size)
        while len(begun) > wanted:
            node = f"node {len(begun)}"
            yield {
                "line": 1,
                "again": True,
                "id": node,
                "count": 1,
                "start": begun.pop(),
                "end": time,
            }
        begun.extend([time] * (wanted - len(begun)))
    log.observed, log.shown_until, log.machine_nodes = (
        (times[0], times[-1]),
        times[-1],
        size,
    )


FORMAT = LogFormat(
    "Prometheus: range query of numbers of nodes by state, JSON",
    read,
    r'\{"status":"success","data"',
)
