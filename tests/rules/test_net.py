"""Properties that hold of any replay, whatever its options: all of them are drawn together (`drawn.cases`)."""

import json
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import assume, example, given
from hypothesis import strategies as st
from rules.drawn import ALONE, KINDS, OF_KINDS, START, Case, Options, cases, words
from rules.world import SECOND

import bft
from bft import milp
from bft.models import Curve, Job, JobTable, Standing, deadline_weight
from bft.replay import (
    Decision,
    MilpPolicy,
    MilpSharingPolicy,
    NodeTrace,
    Policy,
    State,
    Traits,
    always_idle,
)
from bft.replay.cli.main import run
from bft.replay.policies import policy_type
from bft.replay.trace.node_trace import from_fragments

pytestmark = pytest.mark.filterwarnings("error")
Tables = dict[str, pd.DataFrame]


@contextmanager
def written(case: Case) -> Iterator[Options]:
    """The options of a replay, in a folder with its files."""
    with TemporaryDirectory() as folder, chdir(folder):
        yield case.write(Path(folder))


def metrics(name: str) -> dict[str, Any]:
    """The metrics of a run in a folder."""
    return dict(json.loads(Path(name, "summary.json").read_text())["metrics"])


def tables(name: str) -> Tables:
    """All tables of a run in a folder."""
    return {path.stem: pd.read_parquet(path) for path in Path(name).glob("*.parquet")}


def replayed(options: Options, name: str = "run", **changes: Any) -> Tables:
    """The tables of a replay, whose run directory gets this name."""
    bft.replay(out=name, force=True, **{**options, **changes})
    return tables(name)


def assert_same(one: Tables, other: Tables, *, but: tuple[str, ...] = ()) -> None:
    """The same tables to the last digit, whatever is in some of their columns."""
    assert one.keys() == other.keys()
    for name in one:
        frames = [
            each[name].drop(columns=list(but), errors="ignore") for each in (one, other)
        ]
        pd.testing.assert_frame_equal(*frames, check_exact=True, obj=name)


def job(name: str, rates: list[float], **stated: Any) -> Job:
    """A job of 40 samples that runs on one unit or more, at these rates."""
    curve = Curve(range(len(rates) + 1), [0.0, *rates])
    usual = {"tsub_ns": START, "jmin": 1, "jmax": len(rates), "pmax": 40.0}
    costs = {"tcup_s": 2.0, "tcdw_s": 2.0, "scalability": curve, "objective": curve}
    return Job(name=name, **{**usual, **costs, **stated})


def made(
    trace: NodeTrace, *jobs: Job, kinds: tuple[str, ...] = (), **options: Any
) -> Case:
    """A case written down."""
    usual = {"policy": "milp", "oversized": "skip", "dedicated": False}
    return Case(trace, JobTable(jobs), {**usual, **options}, kinds=kinds)


STEADY = always_idle(2, START, START + 100 * SECOND)
# The replay ends at 20 s. Node b comes back after that, and c has left before.
RETURNS = from_fragments(
    ["a", "b", "c"],
    *np.array([[0, 0, 90], [1, 0, 50], [1, 70, 90], [2, 0, 10]]).T
    * np.array([[1], [SECOND], [SECOND]])
    + np.array([[0], [START], [START]]),
    START,
    START + 90 * SECOND,
)


@examples(24)
@given(cases())
def test_python_and_the_command_line_give_the_same_bytes(case: Case) -> None:
    with written(case) as options:
        bft.replay(out="python", **options)
        assert run([*words(options), "--out", "line", "--quiet"]) in (0, 3)
        files = {path.name: path.read_bytes() for path in Path("python").iterdir()}
        for path in Path("line").iterdir():
            same = files.pop(path.name) == path.read_bytes()
            assert same or path.name == "timing.json", path.name
        assert not files


@examples(24)
@given(cases())
@example(made(RETURNS, job("a", [2.0]), policy="equal-share", return_time=30.0))
def test_held_and_unused_units_are_the_idle_ones(case: Case) -> None:
    with written(case) as options:
        found, figures = replayed(options), metrics("run")
    trace, per = case.trace, case.trace.units_per_node
    window = [
        pd.Timestamp(figures[f"window_{side}"]).value for side in ("start", "end")
    ]
    covered = {}
    for name in ("allocations", "unused"):
        table = found[name]
        covered[name] = [
            (range(first, last + 1), start.value, end.value)
            for first, last, start, end in zip(
                *(table[of] for of in ("first_unit", "last_unit", "start", "end")),
                strict=True,
            )
        ]
    instants = {*window, *trace.times.tolist()}
    instants |= {at for rows in covered.values() for _, *span in rows for at in span}
    idle: set[int] = set()
    used_s = idle_s = 0.0
    for at, after in pairwise(sorted(instants)):
        event = np.flatnonzero(trace.times == at)
        if len(event):
            idle -= set(trace.leaves(event[0]).tolist())
            idle |= set(trace.joins(event[0]).tolist())
        held, unused = (
            [unit for units, start, end in rows if start <= at < end for unit in units]
            for rows in covered.values()
        )
        if not window[0] <= at < window[1]:
            assert not held
            assert not unused
            continue
        assert len(set(unused)) == len(unused)
        there = {*held, *unused}
        assert len(there) == len(set(held)) + len(unused) == len(idle) * per
        # Nodes of the log may exchange their places (docs/host-jobs.md).
        if not {"return_time", "reserve"} & case.options.keys() or not case.options.get(
            "free_first", True
        ):
            assert {unit // per for unit in there} == idle
        used_s += len(set(held)) * (after - at) / 1e9
        idle_s += len(there) * (after - at) / 1e9
    assert figures["used_unit_s"] == pytest.approx(used_s, rel=1e-9)
    assert figures["resource_integral_unit_s"] == pytest.approx(idle_s, rel=1e-9)


@examples(24)
@given(cases())
def test_names_do_not_matter(case: Case) -> None:
    """Of nodes and jobs; their order stays, and that of the names is another one."""
    nodes = tuple(f"x{-k % 100:02}" for k in range(len(case.trace.nodes)))
    names = {job.name: f"y{-k % 100:02}" for k, job in enumerate(case.jobs)}
    jobs = tuple(replace(job, name=names[job.name]) for job in case.jobs)
    other = replace(case, trace=replace(case.trace, nodes=nodes), jobs=JobTable(jobs))
    with written(case) as options:
        usual = replayed(options)
    with written(other) as options:
        renamed = replayed(options)
    assert_same(usual, renamed, but=("name", "job", "place", "node"))


@examples(24)
@given(cases())
def test_the_order_of_the_table_does_not_matter_where_jobs_come_one_by_one(
    case: Case,
) -> None:
    jobs = tuple(
        replace(job, tsub_ns=job.tsub_ns + k, deadline_ns=None)
        for k, job in enumerate(case.jobs)
    )
    assume(not {"shuffle_submits"} & case.options.keys())
    found = []
    for order in (jobs, jobs[::-1]):
        with written(replace(case, jobs=JobTable(order))) as options:
            found.append((replayed(options), metrics("run")))
    for of in (tables for tables, _ in found):
        of["jobs"] = of["jobs"].sort_values("name", ignore_index=True)
        held = of["allocations"].astype({"job": str})
        of["allocations"] = held.sort_values(list(held), ignore_index=True)
    assert_same(found[0][0], found[1][0])
    one, other = (
        # Of jobs that waited equally long the first of the table is named.
        pd.json_normalize(figures).filter(regex="^(?!longest_wait_job)")
        for _, figures in found
    )
    pd.testing.assert_frame_equal(one, other, rtol=1e-12)


@examples(24)
@given(cases())
def test_as_many_jobs_in_play_as_there_are_is_no_limit(case: Case) -> None:
    with written(case) as options:
        assert_same(*(replayed(options, max_jobs=most) for most in (0, 1000)))


@examples(24)
@given(cases(kinds=False), st.sampled_from([1.0, 30.0]))
def test_a_return_time_changes_no_decision(case: Case, seconds: float) -> None:
    plain = {
        name: value for name, value in case.options.items() if name != "return_time"
    }
    if not plain.get("reserve"):
        plain |= {"reserve": 0, "free_first": False}
    with written(replace(case, options=plain)) as options:
        priced = replayed(options, return_time=seconds)
        priced.pop("returns")
        if not plain["reserve"]:
            del options["reserve"], options["free_first"]
        assert_same(priced, replayed(options))


@examples(24)
@given(cases())
def test_no_policy_beats_a_bound(case: Case) -> None:
    with written(case) as options:
        found, figures = replayed(options), metrics("run")
    bounds = figures["bounds"]
    for reached, bound in (
        (figures["outcome"], figures["bound"]),
        (bounds["jct_mean_s"], figures["jct_to_end_mean_s"]),
        (bounds["makespan_s"], figures["makespan_s"]),
    ):
        if reached is not None and bound is not None:
            assert reached <= bound * (1 + 1e-9)
    steps = found["steps"].dropna(subset=["bound"])
    slack = 1e-9 * steps["bound"].abs()
    assert (steps["objective"] <= steps["bound"] + slack).all()


@pytest.mark.parametrize("backend", ["exact", "cbc", "highs"])
@examples(24)
@given(case=cases(OF_KINDS, kinds=True))
@example(
    case=made(
        STEADY,
        job("a", [2.0, 3.0], tcup_s=70.0, tcdw_s=80.0),
        job("b", [2.0, 3.0], tsub_ns=START + SECOND),
        kinds=KINDS,
        tfwd=60.0,
    )
)
def test_one_kind_of_units_is_like_none(backend: str, case: Case) -> None:
    case = replace(case.but(backend=backend), kinds=("one",) * len(case.kinds))
    with written(case) as options:
        of_one = replayed(options)
        del options["kinds"]
        assert_same(of_one, replayed(options))


@pytest.mark.parametrize("backend", ["cbc", "highs"])
@examples(24)
@given(case=cases(OF_KINDS))
def test_the_result_is_that_of_the_exact_programme_with_every_backend(
    backend: str, case: Case
) -> None:
    with written(case) as options:
        found = [replayed(options, backend=name) for name in ("exact", backend)]
    assert_same(*found, but=("backend",))


@examples(24)
@given(cases(tuple(ALONE), kinds=False))
@example(
    made(
        STEADY,
        job("never runs", [1.0, 2.0, 3.0], jreq=3),
        job("runs", [1.0]),
        policy="srtf",
        max_jobs=1,
    )
)
def test_a_schedule_repeats_its_run(case: Case) -> None:
    # A policy's timers and changes of a schedule would meet an interval between decisions at different instants.
    case = replace(
        case,
        options={
            name: value
            for name, value in case.options.items()
            if name != "min_interval"
        },
    )
    traits = Traits.of(policy_type(case.options["policy"]).factory)
    charged_as = (
        "migrating" if traits.migrates else "rigid" if traits.rigid else "elastic"
    )
    with written(case) as options:
        first = replayed(options, "first")
        assume(len(first["allocations"]))
        schedule = {"file": "first/allocations.parquet", "charged_as": charged_as}
        again = replayed(options, policy="schedule", policy_options=schedule)
    for name in ("jobs", "allocations", "unused"):
        assert_same({name: first[name]}, {name: again[name]})


@examples(24)
@given(cases(("milp-sharing",)))
def test_sharing_is_worth_what_running_alone_is_or_more(case: Case) -> None:
    """At decisions at which nobody shares yet: what the exact programme finds without pairs is possible then."""

    @dataclass
    class Compared(MilpSharingPolicy):
        name: str = field(default="compared", init=False)

        def decide(self, state: State) -> Decision:
            decision = super().decide(state)
            if not any(view.partners for view in state.jobs):
                alone = replace(MilpPolicy.problem(self, state), pairs=(), alike=())
                least = bft.solve(alone, backend="exact").objective
                assert decision.solution is not None
                assert decision.solution.objective >= least - 1e-6 * abs(least)
            return decision

    case.options.pop("curves", None)
    with written(case) as options:
        replayed(options, policy=Compared)


@dataclass
class Watched(MilpPolicy):
    """milp; each of its decisions is also posed by the page (docs/model.md)."""

    name: str = field(default="watched", init=False)
    seen: ClassVar[list[tuple[milp.Problem, Decision]]] = []

    def decide(self, state: State) -> Decision:
        decision = super().decide(state)
        self.seen.append((self.by_the_page(state), decision))
        return decision

    def by_the_page(self, state: State) -> milp.Problem:
        """The decision as an allocation problem."""
        idle = state.machine.idle_by_kind()
        jobs, current = [], []
        for view in state.jobs:
            job, weight = view.job, view.job.weight
            if self.deadline_boost > 1:
                weight = deadline_weight(
                    job,
                    state.time_ns,
                    horizon_s=self.deadline_horizon_s,
                    boost=self.deadline_boost,
                )
            left = view.remaining / job.pmax if self.objective.uses_left else 1.0
            weight *= self.objective.factor(
                Standing(left, (state.time_ns - job.tsub_ns) / 1e9)
            )
            curves = {"": self.objective.curve(job)}
            if idle:
                curves = {kind: self.objective.curve_on(job, kind) for kind in idle}
            costs = (job.tcup_s, job.tcdw_s, weight, job.sizes)
            on = {
                kind: milp.Job(job.name, job.jmin, job.jmax, of.ns, of.ps, *costs)
                for kind, of in curves.items()
            }
            jobs.append(on)
            current.append(
                (state.machine.kind_of(view.held[0]), view.units)
                if view.units
                else None
            )
        if idle:
            return milp.Problem.of_kinds(
                idle, self.tfwd_s, jobs, current, self.cost_model
            )
        alone = tuple(on[""] for on in jobs)
        held = tuple(now[1] if now else 0 for now in current)
        return milp.Problem(state.idle, self.tfwd_s, alone, held, self.cost_model)


def decisions(case: Case) -> list[tuple[milp.Problem, Decision]]:
    """The decisions of milp in a replay, each with its problem."""
    Watched.seen.clear()
    with written(case) as options:
        replayed(options, policy=Watched)
    return list(Watched.seen)


MILP = cases(("milp",)).filter(
    lambda case: "curves" not in case.options and "policy_options" not in case.options
)


@examples(24)
@given(MILP)
def test_a_decision_is_the_optimum_of_its_problem_alone(case: Case) -> None:
    """What a policy or a solver keeps from one decision to the next changes none."""
    for problem, decision in decisions(case):
        alone = bft.solve(problem, backend="exact")
        assert decision.counts == alone.counts
        assert decision.solution is not None
        assert decision.solution.kinds == alone.kinds
        assert decision.solution.objective == pytest.approx(
            alone.objective, rel=1e-9, abs=1e-9
        )


def afresh(made: type[Policy]) -> type[Policy]:
    """A policy of which another object makes each decision, from the state of the one before alone."""

    @dataclass
    class Afresh(made):  # type: ignore[misc,valid-type]
        name: str = field(default="afresh", init=False)

        def decide(self, state: State) -> Decision:
            other = replace(self)
            if hasattr(self, "state"):
                other.restore(json.loads(json.dumps(self.state())))
            decision = super(Afresh, other).decide(state)
            if hasattr(self, "state"):
                self.restore(json.loads(json.dumps(other.state())))
            return decision

    return Afresh


@examples(24)
@given(cases())
def test_nothing_but_its_state_passes_from_one_decision_of_a_policy_to_the_next(
    case: Case,
) -> None:
    with written(case) as options:
        usual = replayed(options)
        made = policy_type(options["policy"]).factory
        assert_same(usual, replayed(options, policy=afresh(made)))
