"""Generated logs of the same jobs agree between the formats of all schedulers."""

import math
from datetime import UTC, datetime

import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from synthetic_logs import read_texts, taken

from bft.datasets import generate_log
from bft.replay.logs import Ingested, expand_hosts

DAY_S = 86_400
MONDAY_S = datetime(2024, 3, 4, tzinfo=UTC).timestamp()


def traced(
    scheduler: str, text: str, nodes: int, end: str, **options: object
) -> Ingested:
    """What a log says until `end`."""
    names = f"cn[{1:0{len(str(nodes))}}-{nodes}]"
    window = {"begin": "2024-03-04", "end": end, "window": None}
    return read_texts(scheduler, text, nodes=[names], **window, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheduler", ["pbs", "lsf", "sge", "cobalt", "flux"])
@examples(100, quick=6)
@given(nodes=st.integers(2, 20), days=st.floats(0.3, 1.5), seed=st.integers(0, 99))
def test_all_schedulers_log_the_same_jobs(
    scheduler: str, nodes: int, days: float, seed: int
) -> None:
    slurm, theirs = (
        generate_log(each, nodes=nodes, days=days, seed=seed)
        for each in ("slurm", scheduler)
    )
    rows = [line.split("|") for line in slurm.splitlines()[1:]]
    # Jobs that still run are not in all logs, and what is idle is known until the first of them starts.
    still = min(
        (row[4] for row in rows if row[6] == "RUNNING"), default="2024-03-06T00:00:00"
    )
    if any(row[6] == "COMPLETED" and row[5] < still for row in rows):
        one, other = (
            traced(*each, nodes, still).trace
            for each in (("slurm", slurm), (scheduler, theirs))
        )
        assert one.nodes == other.nodes
        assert taken(one) == taken(other)


def second(stamp: str) -> float:
    return math.inf if stamp == "Unknown" else datetime.fromisoformat(f"{stamp}Z").timestamp()  # fmt: skip


@given(
    nodes=st.integers(2, 12),
    per=st.integers(1, 8),
    days=st.floats(0.2, 1),
    seed=st.integers(0, 99),
)
def test_as_many_gpus_are_idle_as_jobs_leave(
    nodes: int, per: int, days: float, seed: int
) -> None:
    text = generate_log("slurm", nodes=nodes, days=days, seed=seed, gpus_per_node=per)
    end_s = MONDAY_S + round(days * DAY_S)
    held_s = 0.0
    for line in text.splitlines()[1:]:
        _, _, hosts, count, begin, finish, *_, tres = line.split("|")
        gpus, rest = divmod(int(tres.split("gres/gpu=")[1].split(",")[0]), int(count))
        assert rest == 0
        assert 1 <= gpus <= per
        assert gpus == per or int(count) == 1  # whole nodes, or a part of one
        began_s, last_s = map(second, (begin, finish))
        held_s += gpus * len(expand_hosts(hosts)) * (min(last_s, end_s) - began_s)
    if held_s:
        units = {"unit": "gpu", "units_per_node": per}
        made = traced("slurm", text, nodes, str(int(end_s)), **units)
        free_s = nodes * per * (end_s - MONDAY_S) - held_s
        assert made.trace.idle_unit_seconds() == free_s


@pytest.mark.parametrize(
    ("scheduler", "gpus", "why"),
    [
        ("pbs", 4, "a log of pbs is made without GPUs; slurm has them"),
        ("slrum", 0, "expected slurm or pbs"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    scheduler: str, gpus: int, why: str
) -> None:
    refused(why, generate_log, scheduler, gpus_per_node=gpus)


def test_no_node_has_two_jobs_at_a_time() -> None:
    busy: dict[str, int] = {}
    for line in generate_log("sge", nodes=8, days=2).splitlines():
        fields = line.split(":")
        host, start_s, end_s = fields[1], int(fields[9]), int(fields[10])
        assert MONDAY_S <= start_s < end_s
        assert start_s > busy.get(host, 0)
        busy[host] = end_s
