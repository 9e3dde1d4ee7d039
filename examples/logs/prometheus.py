"""Prometheus: the answer to a range query over numbers of nodes by state, such as slurm_nodes_idle."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.replay.logs import Log, LogFormat, Row, Unusable, each_object
from bft.replay.logs.states import MOST_PERIODS, state_of

COMMAND = "curl 'http://HOST:9090/api/v1/query_range?query={__name__=~\"slurm_nodes_.*\"}&start=...&end=...&step=60'"


def read(log: Log) -> Iterator[Row]:
    """Read series of the numbers of nodes in a state, as jobs of one node each for the nodes that are not idle.

    The series of a state are added up. A value holds until the next, for 2.5 steps at the most; then all nodes count as
    taken. The machine has as many nodes as --machine-nodes says, else as all states have together; where only idle
    nodes are counted, as were idle at once. Of the nodes that are not idle those with the lowest numbers are.
    """
    samples: list[tuple[int, str, float]] = []
    partitions = set()

    def answer(entry: dict[str, Any], _: str, line: int) -> Iterator[Row]:
        if "error" in entry:
            raise Unusable("Prometheus reports an error", str(entry["error"])[:200])
        for one in entry["data"]["result"]:
            metric = one["metric"]
            name = re.fullmatch(r"\w*nodes?_([a-z]+)", metric.get("__name__", ""))
            word = metric.get("state") or metric.get("status") or (name and name[1])
            state = state_of("error" if word == "err" else word or "")
            if state is None:  # such as total
                log.note(
                    "a series counts no nodes in a state that is known: it was not read",
                    line,
                    ascii(str(metric)[:80]),
                )
                continue
            partitions.add(str(metric.get("partition", "")))
            for stamp, value in one["values"]:
                if not (0 < stamp < 9e9 and 0 <= float(value) < 1e7):
                    raise Unusable(
                        "a sample is no number of nodes", f"{value} at {stamp}"
                    )
                samples.append((round(stamp * 1000) * 10**6, state, float(value)))
        yield {"kind": "nothing"}

    yield from each_object(
        log,
        answer,
        keys=(),
        expected="answer of Prometheus: expected data.result with metric and values",
        command=COMMAND,
    )
    if len(partitions) > 1:
        raise InputError(
            f"counts the nodes of each partition ({', '.join(sorted(partitions))!a}): those of several would count "
            "in each",
            file=log.name,
            hint='query the series of all nodes, or those of one partition: {...,partition="NAME"}',
        )
    if samples:
        counts = pd.DataFrame(samples, columns=["ns", "state", "nodes"])
        yield from taken(log, counts.pivot_table("nodes", "ns", "state", "sum"))


def taken(log: Log, counts: pd.DataFrame) -> Iterator[Row]:
    """Yield since when and until when each node was not idle, by the numbers of nodes by time and state."""
    if "idle" not in counts or counts["idle"].count() < 2:
        raise InputError(
            "no series counts idle nodes at two times or more: one sample is no log",
            file=log.name,
        )
    counts = counts.dropna(subset="idle")
    times = counts.index.tolist()
    step = float(np.median(np.diff(times)))
    log.note(
        f"nodes were counted every {step / 1e9:g} s: begin and end of an idle fragment are known to {step / 1e9:g} s, "
        "and shorter ones may be missed",
        0,
        f"{len(times):,} samples",
    )
    size = log.settings.machine_nodes or round(counts.sum(axis=1).max())
    if len(counts.columns) == 1 and log.settings.machine_nodes is None:
        log.note(
            "only idle nodes are counted: the machine is taken to have as many nodes as were idle at once",
            0,
            f"{size}; --machine-nodes states its size",
            loud=True,
        )
    wanted = dict(
        zip(times, (size - counts["idle"].round()).astype(int).tolist(), strict=True)
    )
    for time, following in pairwise(times):
        if following - time > MOST_PERIODS * step:  # samples are missing
            wanted[time + int(MOST_PERIODS * step)] = size
    wanted[times[-1]] = 0
    begun: list[int] = []  # of the node with each number, since when it is taken
    for time in sorted(wanted):
        while begun and len(begun) > wanted[time]:
            node = {"line": 1, "again": True, "id": f"node {len(begun)}", "count": 1}
            yield {**node, "start": begun.pop(), "end": time}
        begun += [time] * (wanted[time] - len(begun))
    log.observed = times[0], times[-1]
    log.shown_until, log.machine_nodes = times[-1], size


FORMAT = LogFormat(
    "Prometheus: range query of numbers of nodes by state, JSON",
    read,
    r'\{"status":"success","data"',
)
