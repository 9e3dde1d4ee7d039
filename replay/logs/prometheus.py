"""Prometheus: the answer to a range query over numbers of nodes by state, such as slurm_nodes_idle."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from bft.models import InputError
from bft.models.cells import read_number
from bft.replay.logs.node_states import MOST_PERIODS, State, state_of
from bft.replay.logs.reading import (
    MOST_EPOCH_S,
    JobRan,
    MachineStated,
    Observed,
    Reading,
    Record,
    RowUsed,
    Unusable,
    WrittenUntil,
    each_object,
)
from bft.replay.trace.node_trace import SECOND_NS, TimeArray

COMMAND = "curl 'http://HOST:9090/api/v1/query_range?query={__name__=~\"slurm_nodes_.*\"}&start=...&end=...&step=60'"
# slurm_nodes_idle; or the state as a label.
_NAME = re.compile(r"\w*nodes?_([a-z]+)", re.ASCII)
_LABELS = ("state", "status")
_SHORT = {"err": "error", "maint": "maint", "mix": "mix", "resv": "resv"}
# Sums over all states, and what nodes are counted beside a state.
_TOTALS = frozenset({"total", "count", "all"})
_MOST_NODES = 10**7


def read(reading: Reading) -> Iterator[Record]:
    """Read series of the numbers of nodes in a state; see `LogFormat` for errors.

    The series of a state are added up. A value holds until the next, for 2.5 steps at the most; then all nodes count as
    taken. The machine has as many nodes as `Settings.machine_nodes` says, else as all states have together; where
    only idle nodes are counted, as were idle at once. Of the nodes that are not idle those with the lowest numbers are.
    """
    counts = _Counts(reading)
    expected = "answer of Prometheus: expected data.result with metric and values"
    yield from each_object(
        reading, counts.answer, keys=(), expected=expected, command=COMMAND
    )
    yield from counts.jobs()


class _Counts:
    """Counts of nodes by state that one file states."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.file = reading, reading.file
        self.idle: dict[int, float] = defaultdict(float)
        self.others: dict[int, float] = defaultdict(float)
        self.states: set[str] = set()
        self.samples = 0

    def answer(self, entry: dict[str, Any], _: str, line: int) -> Iterator[Record]:
        """One answer: used when a series in it counts idle nodes."""
        if entry.get("status", "success") != "success":
            raise Unusable("Prometheus reports an error", str(entry.get("error"))[:200])
        series = entry["data"]["result"]
        self._refuse_partitions(series)
        used = 0
        for one in series:
            word, state = _state(one["metric"])
            if state is None:
                why = (
                    "a series counts no nodes in a state that is known: it was not read"
                )
                self.reading.note(why, line, ascii(str(one["metric"])[:80]))
                continue
            into = self.idle if state == "idle" else self.others
            for stamp, value in one["values"]:
                time_ns, number = _sample(stamp, value)
                into[time_ns] += number
                self.samples += 1
            if self.samples > self.reading.into.max_fragments:
                raise InputError(
                    "holds more samples than --max-fragments allows", file=self.file
                )
            self.states.add(word)
            used += state == "idle"
        if not used:
            raise Unusable("no series counts idle nodes", f"{len(series)} series")
        yield RowUsed(line)

    def _refuse_partitions(self, series: list[dict[str, Any]]) -> None:
        """Refuse series of several partitions: a node may belong to several, and would count in each."""
        counted = [
            one["metric"] for one in series if _state(one["metric"])[1] is not None
        ]
        names = {
            str(metric["partition"]) for metric in counted if "partition" in metric
        }
        if len(names) > 1:
            some = ", ".join(sorted(names)[:4])
            raise InputError(
                f"counts the nodes of each partition ({ascii(some)[:80]}): those of several would count in each",
                file=self.file,
                hint='query the series of all nodes, or those of one partition: {...,partition="NAME"}',
            )

    def jobs(self) -> Iterator[Record]:
        """Yield jobs of one node each for the nodes that are not idle."""
        times = np.array(sorted(self.idle), dtype=np.int64)
        if len(times) < 2:
            if self.idle:
                raise InputError(
                    "one sample is no log: at least two, of different times, are needed",
                    file=self.file,
                )
            return
        idle = np.array(
            [round(self.idle[time]) for time in times.tolist()], dtype=np.int64
        )
        total = np.array(
            [
                round(self.idle[time] + self.others.get(time, 0))
                for time in times.tolist()
            ],
            dtype=np.int64,
        )
        size = self.reading.settings.machine_nodes or int(total.max())
        if size > _MOST_NODES:
            raise InputError(f"counts {size:,} nodes", file=self.file)
        step = float(np.median(np.diff(times)))
        self._say(times, step, size, stated=bool(self.others))
        # How many nodes are taken from each time on; where samples are missing, all.
        longest = int(MOST_PERIODS * step)
        since = np.append(times[:-1], times[:-1][np.diff(times) > longest] + longest)
        taken = np.append(size - idle[:-1], np.full(len(since) - len(times) + 1, size))
        order = np.argsort(since, kind="stable")
        until = int(times[-1])
        begun: list[int] = []  # of the node with each number, since when it is taken
        for time, count in zip(
            since[order].tolist(), np.clip(taken[order], 0, size).tolist(), strict=True
        ):
            while len(begun) > count:
                yield _job(len(begun), begun.pop(), time)
            begun.extend([time] * (count - len(begun)))
        while begun:
            yield _job(len(begun), begun.pop(), until)
        yield Observed(int(times[0]), until)
        yield WrittenUntil(until)
        yield MachineStated(nodes=size)

    def _say(self, times: TimeArray, step: float, size: int, *, stated: bool) -> None:
        seconds = step / SECOND_NS
        why = (
            f"nodes were counted every {seconds:g} s: begin and end of an idle fragment are known to {seconds:g} s, "
            "and shorter ones may be missed"
        )
        self.reading.note(
            why,
            0,
            f"{len(times):,} samples; states {', '.join(sorted(self.states))}",
        )
        if not stated and self.reading.settings.machine_nodes is None:
            why = "only idle nodes are counted: the machine is taken to have as many nodes as were idle at once"
            self.reading.note(
                why, 0, f"{size}; --machine-nodes states its size", loud=True
            )


def _job(number: int, start_ns: int, end_ns: int) -> JobRan:
    return JobRan(1, ("prometheus", number), 1, start_ns, end_ns, same_row=True)


def _state(metric: dict[str, Any]) -> tuple[str, State | None]:
    """Word for the state whose nodes a series counts, and the state; None when it is none."""
    name = _NAME.fullmatch(str(metric.get("__name__", "")))
    label = next((str(metric[label]) for label in _LABELS if label in metric), "")
    word = label.lower() or (name[1] if name else "")
    if (not name and not label) or word in _TOTALS:
        return word, None
    return word, state_of(_SHORT.get(word, word))


def _sample(stamp: object, value: object) -> tuple[int, float]:
    """UTC nanoseconds and number of a sample."""
    if (
        isinstance(stamp, bool)
        or not isinstance(stamp, int | float)
        or not 0 < stamp < MOST_EPOCH_S
    ):
        raise Unusable("a sample has no time in seconds since 1970", repr(stamp)[:40])
    number = read_number(str(value))
    if math.isnan(number) or not 0 <= number <= _MOST_NODES:
        raise Unusable("a sample is no number of nodes", repr(value)[:40])
    return round(stamp * 1000) * (SECOND_NS // 1000), number
