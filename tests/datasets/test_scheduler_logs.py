"""Generated logs of the same jobs agree between the formats of all schedulers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bft
from bft.datasets import generate_log
from bft.models import InputError
from bft.replay import NodeTrace
from bft.replay.logs.hostlists import expand


def traced(scheduler: str, text: str, folder: Path, nodes: int, end: str) -> NodeTrace:
    """The trace of a log, until `end`."""
    file = folder / scheduler
    file.write_text(text, "utf-8")
    names = f"cn[{1:0{len(str(nodes))}}-{nodes}]"
    return bft.ingest(
        file,
        scheduler,
        nodes=names,
        tz="UTC",
        begin="2024-03-04",
        end=end,
        allow_few=True,
        uncertain="idle",
    )


@pytest.mark.parametrize("scheduler", ["pbs", "lsf", "sge", "cobalt", "flux"])
@given(nodes=st.integers(2, 20), days=st.floats(0.3, 1.5), seed=st.integers(0, 99))
def test_all_schedulers_log_the_same_jobs(
    tmp_path_factory: pytest.TempPathFactory,
    scheduler: str,
    nodes: int,
    days: float,
    seed: int,
) -> None:
    slurm = generate_log("slurm", nodes=nodes, days=days, seed=seed)
    rows = [line.split("|") for line in slurm.splitlines()[1:]]
    # Jobs that still run are not in all logs, and what is idle is known until the first of them starts.
    ended = [row for row in rows if row[6] == "COMPLETED"]
    still = min(
        (row[4] for row in rows if row[6] == "RUNNING"), default="2024-03-06T00:00:00"
    )
    if not any(row[5] < still for row in ended):
        return
    folder = tmp_path_factory.mktemp("logs")
    log = generate_log(scheduler, nodes=nodes, days=days, seed=seed)
    theirs, ours = (
        traced(scheduler, log, folder, nodes, still),
        traced("slurm", slurm, folder, nodes, still),
    )
    assert theirs.nodes == ours.nodes
    np.testing.assert_array_equal(theirs.times, ours.times)
    for event in range(len(ours)):
        np.testing.assert_array_equal(
            np.sort(theirs.joins(event)), np.sort(ours.joins(event))
        )
        np.testing.assert_array_equal(
            np.sort(theirs.leaves(event)), np.sort(ours.leaves(event))
        )


@given(
    nodes=st.integers(2, 12),
    per=st.integers(1, 8),
    days=st.floats(0.2, 1),
    seed=st.integers(0, 99),
)
def test_as_many_gpus_of_each_node_are_idle_as_its_jobs_leave(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: int,
    per: int,
    days: float,
    seed: int,
) -> None:
    text = generate_log("slurm", nodes=nodes, days=days, seed=seed, gpus_per_node=per)
    rows = [line.split("|") for line in text.splitlines()[1:]]
    if not rows:
        return
    end = datetime(2024, 3, 4, tzinfo=UTC).timestamp() + days * 86_400
    names = [f"cn{node:0{len(str(nodes))}}" for node in range(1, nodes + 1)]
    used: list[tuple[str, float, float, int]] = []
    for _, _, hosts, count, begin, finish, _, tres in rows:
        gpus, rest = divmod(int(tres.split("gres/gpu=")[1].split(",")[0]), int(count))
        assert not rest
        assert 1 <= gpus <= per
        assert gpus == per or int(count) == 1  # whole nodes, or a part of one
        last = (
            end
            if finish == "Unknown"
            else datetime.fromisoformat(f"{finish}Z").timestamp()
        )
        first = datetime.fromisoformat(f"{begin}Z").timestamp()
        used += [(host, first, last, gpus) for host in expand(hosts)]
    file = tmp_path_factory.mktemp("gpus") / "sacct"
    file.write_text(text, "utf-8")
    stop = str(int(end) + 60)
    trace = bft.ingest(file, "slurm", nodes=",".join(names), tz="UTC", begin="2024-03-04", end=stop, allow_few=True,
                       unit="gpu", units_per_node=per, min_gap_s=0,
                       uncertain="idle")  # fmt: skip
    idle = np.zeros(trace.slots, dtype=bool)
    for event, time_ns in enumerate(trace.times.tolist()):
        idle[trace.leaves(event)] = False
        idle[trace.joins(event)] = True
        now = time_ns / 1e9
        if now < end:
            taken = dict.fromkeys(names, 0)
            for host, first, last, gpus in used:
                taken[host] += gpus * (first <= now < last)
            assert idle.reshape(nodes, per).sum(axis=1).tolist() == [
                per - taken[name] for name in trace.nodes
            ]


def test_a_log_without_gpus_cannot_have_them() -> None:
    with pytest.raises(
        InputError, match="a log of pbs is made without GPUs; slurm has them"
    ):
        generate_log("pbs", gpus_per_node=4)


def test_no_node_has_two_jobs_at_a_time() -> None:
    busy: dict[str, int] = {}
    for line in generate_log("sge", nodes=8, days=2).splitlines():
        fields = line.split(":")
        host, start_s, end_s = fields[1], int(fields[9]), int(fields[10])
        assert datetime(2024, 3, 4, tzinfo=UTC).timestamp() <= start_s < end_s
        assert start_s > busy.get(host, 0)
        busy[host] = end_s


def test_an_unknown_scheduler_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'slurm'"):
        generate_log("slrum")
