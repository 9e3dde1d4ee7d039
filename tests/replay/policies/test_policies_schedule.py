"""The policy that replays a schedule: against the runs that wrote one, by hand, and where a schedule is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bft
from bft.models import Curve, InputError, Job, JobTable, jobs_to_frame, write_parquet
from bft.replay import (
    EqualShare,
    Replay,
    Rules,
    always_idle,
    check_policy,
    from_changes,
    write_trace,
)
from bft.replay.engine.policy_api import PolicyError
from bft.replay.policies.checking import make_world
from bft.replay.policies.schedule import COLUMNS, Schedule
from bft.replay.results.outcome_tables import allocations_frames
from bft.replay.trace.node_trace import SECOND_NS


def table(*rows: tuple[str, int, int, int, int]) -> pd.DataFrame:
    """A schedule from job, first and last unit, and the seconds of start and end."""
    frame = pd.DataFrame(list(rows), columns=COLUMNS)
    for column in ("start", "end"):
        frame[column] = pd.to_datetime(frame[column], unit="s", utc=True)
    return frame


def job(name: str, seconds: float, *, most: int = 4, least: int = 1) -> Job:
    """A job that needs this many unit-seconds."""
    curve = Curve(np.array([0, most]), np.array([0.0, most]))
    return Job(name, 0, least, most, seconds, 0.0, 0.0, curve, curve)


def ends(frame: pd.DataFrame, *jobs: Job, units: int = 4) -> dict[str, float]:
    """When jobs finish, seconds."""
    trace = always_idle(units, 0, 10**4 * SECOND_NS)
    outcome = Replay(trace, JobTable(jobs), Schedule.of(frame), Rules(max_jobs=0)).run()
    return {
        record.job.name: record.finish_ns / SECOND_NS
        for record in outcome.records
        if record.finish_ns is not None
    }


def test_jobs_move_pause_and_swap_as_the_schedule_says() -> None:
    frame = table(
        ("a", 0, 1, 0, 10),  # 20 unit-seconds
        ("b", 2, 3, 0, 10),
        ("a", 2, 3, 10, 20),  # a and b change places
        ("b", 0, 0, 10, 20),
        ("a", 0, 0, 30, 99),
    )
    assert ends(frame, job("a", 45), job("b", 25)) == {"a": 35.0, "b": 15.0}


def test_the_order_of_rows_and_a_split_into_rows_do_not_matter() -> None:
    whole = table(("a", 0, 3, 5, 25))
    split = table(("a", 3, 3, 5, 25), ("a", 0, 2, 15, 25), ("a", 0, 2, 5, 15))
    assert ends(whole, job("a", 60)) == ends(split, job("a", 60)) == {"a": 20.0}


def test_units_that_have_left_are_missing_and_a_job_that_cannot_do_with_the_rest_waits() -> (
    None
):
    # Node 1 leaves at 10 s and is back at 20 s.
    trace = from_changes(
        ["n0", "n1"],
        np.array([0, 0, 10, 20]) * SECOND_NS,
        np.array([0, 1, 1, 1], dtype=np.int32),
        np.array([True, True, False, True]),
        end=100 * SECOND_NS,
    )
    for least, end in ((1, 25.0), (2, 30.0)):
        jobs = JobTable((job("a", 40, most=2, least=least),))
        policy = Schedule.of(table(("a", 0, 1, 0, 100)))
        assert Replay(trace, jobs, policy).run().records[0].finish_ns == end * SECOND_NS


def test_it_keeps_the_contract_of_policies() -> None:
    for seed in range(3):
        world = make_world(seed)
        outcome = Replay(world.trace, world.jobs, EqualShare(), world.rules).run()
        check_policy(
            Schedule.of(next(allocations_frames(outcome))), seed=seed, worlds=1
        )


def test_on_the_command_line_a_run_is_replayed_from_its_directory(
    here: Path, told: Callable[..., str]
) -> None:
    told("generate trace --nodes 12 --days 0.1 -o t.parquet")
    told("generate jobs --jobs 5 --first-submit 2021-02-10 -o j.csv")
    base = "-ndmap t.parquet --jobs j.csv"
    told(f"{base} --policy equal-share --out first")
    again = "--set file=first/allocations.parquet --set charged_as=elastic"
    none = "U is not computed for a schedule"
    told(f"{base} --policy schedule {again} --out again", none)
    for name in ("jobs.parquet", "allocations.parquet"):
        one, other = (pd.read_parquet(here / run / name) for run in ("first", "again"))
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("by", ["the command line", "Python"])
def test_a_schedule_that_is_a_pickle_is_opened_on_the_users_word_only(
    here: Path, told: Callable[..., str], by: str
) -> None:
    write_trace(always_idle(4, 0, 3600 * SECOND_NS), "t.parquet")
    write_parquet(jobs_to_frame(JobTable((job("a", 45),))), Path("j.parquet"))
    table(("a", 0, 1, 0, 100)).to_pickle("own.pkl")
    if by == "Python":
        inputs: dict[str, Any] = {"trace": "t.parquet", "jobs": "j.parquet"}
        inputs |= {"policy": "schedule", "policy_options": {"file": "own.pkl"}}
        with pytest.raises(InputError, match=r"own\.pkl: is a pickle"):
            bft.replay(**inputs)
        assert bft.replay(**inputs, trust_pickle=True).metrics["jobs_finished"] == 1
    else:
        line = "-ndmap t.parquet --jobs j.parquet --policy schedule --set file=own.pkl"
        told(line, "own.pkl: is a pickle", code=2)
        told(f"{line} --trust-pickle")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            "a,0,1,0,10\nb,1,2,5,15",
            "row 2, column first_unit, job b: expected free units, but job a holds unit 1",
        ),
        (
            "a,0,1,0,10\na,1,1,9,15",
            "row 2, column first_unit, job a: expected free units",
        ),
        (
            "a,2,1,0,10",
            "row 1, column last_unit, job a: expected a whole number >= 2, not 1",
        ),
        ("a,0,1,10,10", "row 1, column end, job a: expected an instant after start"),
        (
            "x,0,1,0,10",
            "column job, job x: the schedule names a job that is not in the job table",
        ),
        ("", "has no rows"),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_row(
    rows: str, why: str, here: Path, told: Callable[..., str]
) -> None:
    lines = []
    for line in rows.splitlines():
        name, first, last, start, end = line.split(",")
        stamps = [f"2024-01-01T00:00:{int(second):02}Z" for second in (start, end)]
        lines.append(",".join([name, first, last, *stamps]))
    Path("s.csv").write_text("\n".join([",".join(COLUMNS), *lines, ""]))
    Path("j.csv").write_text(
        "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"
        'a,1,2,60,2024-01-01T00:00:00Z,0,0,"[0,2]","[0,2]","[0,2]"\n'
        'b,1,2,60,2024-01-01T00:00:00Z,0,0,"[0,2]","[0,2]","[0,2]"\n'
    )
    line = "--cluster 4x1 --jobs j.csv --policy schedule --out o --set file=s.csv"
    told(line, "s.csv", why, code=2)
    assert not Path("o").exists()


def test_without_a_file_it_says_what_is_needed() -> None:
    with pytest.raises(InputError, match="--set file=FILE, a table with the columns"):
        Schedule().prepare(JobTable((job("a", 1.0),)))


def test_a_unit_that_the_machine_has_not_stops_the_replay_with_its_name() -> None:
    with pytest.raises(
        PolicyError, match="names unit 7; the machine has the units 0 to 3"
    ):
        ends(table(("a", 7, 7, 0, 10)), job("a", 5))
