"""Lucid: its rules for partners, its switch, its profiler, and its artifact; by hand: `tests/data/worlds`."""

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from rules.drawn import any_rules, traces
from worlds import SECOND as S
from worlds import known, pairs, replay, rigid

import bft
from bft.models import (
    DurationEstimator,
    Forecaster,
    Job,
    JobTable,
    PackingAnalyser,
    write_model,
)
from bft.replay import (
    Decision,
    JobView,
    NodeTrace,
    Outcome,
    Replay,
    Rules,
    State,
    Traits,
    always_idle,
)
from bft.replay.policies.lucid.orchestrator import Lucid
from bft.replay.policies.lucid.profiler import LucidProfiler, Profiled, profile_first
from bft.replay.policies.lucid.submissions import (
    NEVER,
    Expected,
    ForecastTable,
    LearntForecast,
    RecentSubmissions,
    read_forecast_table,
    sharing_at,
)
from bft.replay.policies.predictions import with_estimates, with_scores
from bft.replay.policies.qssf import QuasiShortestServiceFirst
from bft.replay.results.census import census_of
from bft.replay.results.metrics import longest_wait, without_units_s

END = 10**7 * S
# Nothing was measured of c beside c.
XI = known(
    {
        ("a", "a"): (1.5, 1.5),
        ("a", "b"): (1.25, 1.0),
        ("b", "b"): (1.0, 1.0),
        ("a", "c"): (1.2, 2.0),
        ("b", "c"): (1.0, 1.0),
    }
)


def job(
    name: str, units: int = 1, seconds: float = 100.0, submit: float = 0.0, **more: Any
) -> Job:
    """A rigid job whose profile is known."""
    usual = {"model": "a", "memory_gib": 1.0, "estimate_s": seconds}
    columns = {**usual, "sharing_score": 0, "profiled": True, **more}
    stated = {key: value for key, value in columns.items() if value is not None}
    return replace(rigid(name, units, seconds, **stated), tsub_ns=round(submit * S))


def busy(**options: Any) -> Lucid:
    """Lucid with its switch on: it expects many submissions after every one."""
    return Lucid(**{"interference": XI, "quiet_jobs": -1.0, **options})


def play(jobs: list[Job], policy: Any, nodes: int = 1) -> Outcome:
    trace = always_idle(nodes, 0, END, units_per_node=4)
    return replay(trace, jobs, policy, interference=XI)


def spans(outcome: Outcome) -> dict[str, tuple[float, float]]:
    """Start and finish of each job that has finished, s."""
    return {
        r.job.name: ((r.start_ns or 0) / S, r.finish_ns / S)
        for r in outcome.records
        if r.finish_ns is not None
    }


# --- pairs ------------------------------------------------------------------------------------------------------------


# What a running job and a newcomer state; whether they share, and without the packing analyser.
PARTNERS = """
| | yes | yes
units=4 | units=2 | no | no
sharing_score=1 | sharing_score=1 | yes | yes
sharing_score=2 | sharing_score=0 | yes | yes
sharing_score=2 | sharing_score=1 | no | yes
sharing_score=null | | no | yes
| sharing_score=null | no | yes
| profiled=null | no | no
memory_gib=10.0 | memory_gib=5.9 | yes | yes
memory_gib=10.0 | memory_gib=6.0 | no | no
memory_gib=null | | no | no
estimate_s=50.0 | estimate_s=100.0 | yes | yes
estimate_s=50.0 | estimate_s=101.0 | no | yes
model=c | model=c | no | no
"""


@pytest.mark.parametrize("row", PARTNERS.strip().splitlines())
def test_who_may_join_whom(row: str) -> None:
    """Without the packing analyser size and memory decide."""
    running, new, *shares = (each.split() for each in row.split("|"))
    first = job("first", **{"units": 4, **pairs(running)})
    second = job("second", submit=1.0, **{"units": 4, **pairs(new)})
    for options, (expected,) in zip(({}, {"packing": "no"}), shares, strict=True):
        outcome = play([first, second], busy(unit_memory_gib=16.0, **options))
        assert (spans(outcome)["second"][0] == 1) == (expected == "yes")


# --- any jobs at all --------------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """A policy with a check of every decision by Lucid's rules for partners, see tests/rules/README.md."""

    inner: Lucid
    name: str = "watched"
    traits: ClassVar[Traits] = Traits(rigid=True)
    known: set[str] = field(default_factory=set)  # models with a profile

    def decide(self, state: State) -> Decision:
        decision = self.inner.decide(state)
        placed = decision.placement or {}
        self.known |= {view.job.model for view in state.jobs if view.executed_s >= 200}
        after = {at: placed.get(at, view.held) for at, view in enumerate(state.jobs)}
        holders: dict[int, list[int]] = {}
        for at, units in after.items():
            for unit in units:
                holders.setdefault(unit, []).append(at)
        assert all(len(jobs) <= 2 for jobs in holders.values())
        for at, units in placed.items():
            view = state.jobs[at]
            assert (view.units, len(units)) == (0, view.job.request)
            others = {other for unit in units for other in holders[unit]} - {at}
            if others:
                (other,) = others
                assert {*units} == {*after[other]}
                self.check(view, state.jobs[other])
        return decision

    def check(self, a: JobView, b: JobView) -> None:
        """The newcomer and its partner."""
        new, old = a.job.extra, b.job.extra
        assert a.job.request == b.job.request <= self.inner.pair_units
        assert not b.partners
        assert new["sharing_score"] + old["sharing_score"] <= 2
        assert (a.job.memory_gib or 99) + (b.job.memory_gib or 99) < 16
        assert XI.xi(a.job, b.job) is not None
        # Of two that start together, either may be the newcomer.
        assert not b.units or new["estimate_s"] <= 2 * old["estimate_s"]
        for view in (a, b):
            assert view.job.extra.get("profiled") or view.job.model in self.known


@st.composite
def job_lists(draw: st.DrawFn) -> list[Job]:
    count = draw(st.integers(1, 14))
    return [
        job(
            f"j{index}",
            draw(st.sampled_from([1, 1, 2, 3, 4, 5, 8])),
            float(draw(st.integers(1, 900))),
            float(draw(st.sampled_from([0, 0, 1, 30, 100, 250, 400]))),
            model=draw(st.sampled_from("abc")),
            memory_gib=draw(st.sampled_from([1.0, 6.0, 9.0, None])),
            estimate_s=float(draw(st.integers(1, 900))),
            sharing_score=draw(st.sampled_from([0, 1, 2])),
            profiled=draw(st.sampled_from([True, True, None])),
        )
        for index in range(count)
    ]


@examples(80)
@given(jobs=job_lists(), nodes=st.integers(2, 3))
def test_partner_rules_hold_in_every_decision(jobs: list[Job], nodes: int) -> None:
    outcome = play(jobs, Watched(busy(unit_memory_gib=16.0, pair_units=4)), nodes=nodes)
    for record in outcome.records:
        least = record.job.pmax
        assert (record.work, record.starts) == (least, 1)
        # Nobody is slowed down by more than the worst ratio, nor is anybody faster than alone.
        assert least * (1 - 1e-9) <= record.run_seconds <= 2 * least * (1 + 1e-9)


@examples(80)
@given(jobs=job_lists(), nodes=st.integers(2, 3))
def test_without_sharing_it_is_exclusive_priority_order(
    jobs: list[Job], nodes: int
) -> None:
    policies = (Lucid(sharing=False), QuasiShortestServiceFirst())
    one, other = (play(jobs, policy, nodes=nodes) for policy in policies)
    assert one.allocations.equals(other.allocations)


@examples(40)
@given(traces(), job_lists(), any_rules)
def test_on_nodes_that_come_and_go_partners_keep_the_rules(
    trace: NodeTrace, jobs: list[Job], rules: Rules
) -> None:
    watched = Watched(busy(unit_memory_gib=16.0))
    jobs = [replace(one, tsub_ns=trace.start + one.tsub_ns // 10) for one in jobs]
    outcome = Replay(trace, JobTable(tuple(jobs)), watched, rules, XI).run()
    assert all(record.work <= record.job.pmax for record in outcome.records)


# --- the switch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "start"),
    [({}, 600), ({"switch_s": 700}, 700), ({"quiet_jobs": 3}, 1200)],
)
def test_no_sharing_while_few_submissions_are_expected(
    tmp_path: Path, options: dict[str, float], start: int
) -> None:
    """Second 0: the next 50 min bring 2 jobs per 10 min; from 600 s on it is 3."""
    rows = [
        f"1970-01-01T00:{minute:02}:00Z,{jobs},9"
        for minute, jobs in zip(range(0, 60, 10), (9, 2, 2, 2, 2, 2), strict=True)
    ]
    path = tmp_path / "forecast.csv"
    path.write_text("\n".join(["time,jobs,units", *rows, "1970-01-01T01:00:00Z,7,9\n"]))
    jobs = [job("runs", 4, 5000, model="b"), job("new", 4, 100, 10, model="b")]
    outcome = play(jobs, Lucid(interference=XI, forecast=str(path), **options))
    assert spans(outcome)["new"][0] == start


def test_beyond_the_forecast_sharing_is_on() -> None:
    table = ForecastTable(
        np.array([0, 600 * S]), np.array([1.0, 1.0]), np.array([1.0, 50.0])
    )
    assert table.expect(-1) == Expected(1.0, 25.5, 0)
    assert table.expect(0) == Expected(1.0, 50.0, 600 * S)
    assert table.expect(600 * S) == Expected(math.inf, 0.0, NEVER)


@given(
    steps=st.lists(st.integers(1, 900), min_size=1, max_size=8),
    jobs=st.lists(st.integers(0, 5), min_size=8, max_size=8),
    every=st.sampled_from([1, 7, 100, 1000]),
    now=st.integers(0, 5000),
)
def test_the_switch_does_not_turn_before_it_says(
    steps: list[int], jobs: list[int], every: int, now: int
) -> None:
    times = np.cumsum(steps).astype(np.int64) * S
    counts = np.array(jobs[: len(times)], dtype=float)
    table = ForecastTable(times, counts, counts, horizon_s=1000)
    is_on, turn = sharing_at(now * S, table.expect, every, 2)
    assert turn is None or (turn > now * S and turn % (every * S) == 0)
    until = now + 8000 if turn is None else turn // S
    for at in range(now, until, 13):
        assert sharing_at(at * S, table.expect, every, 2)[0] == is_on


@given(
    gaps=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 9)), max_size=25),
    horizon=st.sampled_from([600, 3000]),
    data=st.data(),
)
def test_recent_submissions_are_those_of_the_horizon(
    gaps: list[tuple[int, int]], horizon: int, data: st.DataObject
) -> None:
    recent, now = RecentSubmissions(horizon), 0
    views: list[JobView] = []
    all_jobs: list[Job] = []
    for index, (gap, units) in enumerate(gaps):
        now += gap
        all_jobs.append(job(f"j{index}", units, submit=now))
        views.append(JobView(all_jobs[-1], 0, 0.0))
        if data.draw(st.booleans()):
            recent.see(tuple(views))
            recent.see(tuple(views))
            # Some have finished.
            views = [view for view in views if data.draw(st.booleans())]
            state, recent = recent.state(), RecentSubmissions(horizon)
            recent.restore(json.loads(json.dumps(state)))
    recent.see(tuple(views))
    counted = [j for j in all_jobs if now - horizon < j.tsub_ns / S <= now]
    expected = recent.expect(now * S)
    sums = (len(counted), sum(j.request for j in counted))
    found = (expected.jobs * horizon / 600, expected.units * horizon / 600)
    assert found == pytest.approx(sums)


def test_a_saved_model_forecasts_from_what_has_been_submitted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    slots = pd.DataFrame({"time": np.arange(600) * 600.0, "jobs": rng.poisson(6, 600)})
    model = Forecaster.train(slots)
    learnt = LearntForecast(model)
    jobs = [job(f"j{index}", submit=10.0 * index) for index in range(300)]
    first = tuple(JobView(each, 0, 0.0) for each in jobs)
    learnt.see(first[:50])
    # No slot has ended.
    assert learnt.expect(500 * S) == RecentSubmissions.expect(learnt, 500 * S)
    learnt.see(first)
    expected = learnt.expect(3000 * S)
    seen = pd.DataFrame({"time": np.arange(5) * 600.0, "jobs": np.full(5, 60.0)})
    assert expected.jobs == pytest.approx(float(model.predict(seen)[-1]))
    assert expected.until_ns <= 3600 * S
    write_model(model, tmp_path / "model.json")
    two = [job("runs", 4, 5000, model="b"), job("new", 4, 100, 10, model="b")]
    policy = Lucid(interference=XI, forecast=str(tmp_path / "model.json"))
    assert len(spans(play(two, policy))) == 2


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("time,jobs\n1970-01-01,1\n", None),
        ("time,jobs,units\n", None),
        ("time,jobs,units\nsoon,1,1\n", "time"),
        ("time,jobs,units\n1970-01-02,1,1\n1970-01-01,1,1\n", "time"),
        ("time,jobs,units\n1970-01-01,1,1\n1970-01-01,1,1\n", "time"),
        ("time,jobs,units\n1970-01-01,many,1\n", "jobs"),
        ("time,jobs,units\n1970-01-01,1,\n", "units"),
    ],
)
def test_bad_forecasts_are_refused(
    tmp_path: Path, text: str, column: str | None
) -> None:
    path = tmp_path / "forecast.csv"
    path.write_text(text)
    error = refused("", read_forecast_table, path)
    assert (error.file, error.column) == (str(path), column)


# --- saved models -----------------------------------------------------------------------------------------------------


def test_sharing_scores_come_from_a_saved_analyser(tmp_path: Path) -> None:
    util = np.repeat([10.0, 60.0, 99.0], 20)
    profiles = pd.DataFrame(
        {"gpu_util": util, "gmem_util": util, "gmem": 2000.0, "amp": 0}
    )
    analyser = PackingAnalyser.train(profiles.assign(label=np.repeat([0, 1, 2], 20)))
    write_model(analyser, tmp_path / "packing.json")
    used = {"gpu_util": 99.0, "gmem_util": 99.0, "gmem": 2000.0, "amp": 0}
    stated = {
        "jumbo": used | {"sharing_score": None},
        "told": {},
        "bare": {"sharing_score": None},
    }
    jobs = JobTable(tuple(job(name, **columns) for name, columns in stated.items()))
    path = tmp_path / "packing.json"
    for scored in (with_scores(jobs, path), Lucid(packing=str(path)).prepare(jobs)):
        assert [j.extra.get("sharing_score") for j in scored] == [2, 0, None]


def test_estimates_come_from_a_saved_estimator(tmp_path: Path) -> None:
    past = pd.DataFrame(
        {
            "user": ["fast", "slow"] * 30,
            "gpu_num": 1,
            "submit_time": np.arange(60) * 10_000.0,
            "duration": [10.0, 5000.0] * 30,
        }
    )
    path = tmp_path / "durations.json"
    write_model(DurationEstimator.train(past), path)
    rows = (("fast", None), ("slow", None), ("told", 7.0))
    jobs = (job(of, submit=700_000, estimate_s=is_, user=of) for of, is_ in rows)
    table = JobTable(tuple(jobs))
    fast, slow, told = (j.extra["estimate_s"] for j in with_estimates(table, path))
    assert fast < 100 < slow
    assert told == 7.0
    refused("packing", with_scores, table, path)


# --- the profiler -----------------------------------------------------------------------------------------------------


def profiled(
    jobs: list[Job], profiler: LucidProfiler | None = None, **options: Any
) -> Profiled:
    size = {"nodes": 1, "units_per_node": 4, "start_ns": 0, "end_ns": END}
    table = JobTable(tuple(jobs))
    return profile_first(table, profiler or LucidProfiler(), **size | options)


def test_short_jobs_finish_in_the_profiler_and_others_are_charged_for_it() -> None:
    jobs = [
        job("short", 2, 150, profiled=None),
        job("exact", 2, 200, profiled=None),
        job("long", 4, 500, 10, profiled=None),
        job("wide", 5, 50, profiled=None),
    ]
    staged = profiled(jobs)
    after = {j.name: (j.tsub_ns / S, j.extra.get("profiled")) for j in staged.jobs}
    assert after == {"long": (400, True), "wide": (0, None)}
    joined = staged.joined(play(list(staged.jobs), Lucid(sharing=False), nodes=2))
    records, allocated = joined.records, joined.allocations
    assert [record.job for record in records] == jobs
    times = {"short": (0, 150), "exact": (0, 200), "long": (200, 900), "wide": (0, 50)}
    assert spans(joined) == times
    long = records[2]
    assert (long.run_seconds, long.unit_seconds, long.starts) == (700, 2800, 2)
    assert long.gained - long.lost == long.work == 500
    assert joined.used_unit_seconds == sum(record.unit_seconds for record in records)
    assert set(joined.steps["vc"].dropna()) == {"profiler"}
    units = allocated["last_unit"] - allocated["first_unit"] + 1
    seconds = (allocated["end_ns"] - allocated["start_ns"]) / S * units
    held = seconds.groupby(allocated["job"]).sum().tolist()
    assert held == [record.unit_seconds for record in records]


def test_as_the_artifact_profiling_is_free_and_jobs_last_a_second_longer() -> None:
    jobs = [job("short", 1, 150), job("long", 1, 500, 10), job("wide", 5, 50)]
    after = [(j.name, j.tsub_ns / S, j.pmax) for j in profiled(jobs, compat=True).jobs]
    assert after == [("long", 10, 501), ("wide", 0, 51)]


# Jobs, options, and who ends there when: when all do the profiler is all; who is still profiled at the end has not
# finished; least units first, and the head blocks.
PROFILED: list[tuple[list[Job], dict[str, Any], dict[str, tuple[float, float]]]] = [
    ([job("one", 1, 10), job("two", 1, 20)], {}, {"one": (0, 10), "two": (0, 20)}),
    (
        [job("one", 4, 150), job("two", 4, 150)],
        {"end_ns": 200 * S},
        {"one": (0, 150)},
    ),
    (
        [
            job(name, units, 100, at)
            for at, (name, units) in enumerate(
                (("runs", 2), ("four", 4), ("three", 3), ("two", 2))
            )
        ],
        {"profiler": LucidProfiler(spare_nodes=0)},
        {"runs": (0, 100), "two": (3, 103), "three": (103, 203), "four": (203, 303)},
    ),
]


@pytest.mark.parametrize(("jobs", "options", "expected"), PROFILED)
def test_who_ends_in_the_profiler(
    jobs: list[Job], options: Any, expected: dict[str, tuple[float, float]]
) -> None:
    staged = profiled(jobs, **options)
    assert not len(staged.jobs)
    assert spans(staged.joined(None)) == expected


def test_it_grows_when_jobs_pile_up_and_shrinks_when_it_is_quiet() -> None:
    jobs = [job(f"j{index:02}", 4, 100, 0.0) for index in range(12)]
    later = [job(name, 4, 100, 5000.0) for name in ("later", "last")]

    def ends(jobs: list[Job], **options: float) -> float:
        outcome = profiled(jobs, LucidProfiler(**options)).outcome
        return max(end for _, end in spans(outcome).values())

    # Two at a time until, after 400 s, only four wait; ten are not enough.
    assert (ends(jobs), ends(jobs[:11])) == (800, 1100)
    assert ends([*jobs, *later], quiet_units=40.0) == 5200  # has shrunk
    assert ends([*jobs, *later], quiet_units=-1.0) == 5100  # never quiet


def test_without_nodes_there_is_no_profiler() -> None:
    jobs = JobTable((job("one"),))
    during = {"start_ns": 0, "end_ns": END, "units_per_node": 4}
    assert Lucid(profiler_nodes=0).stage_before(jobs, **during) is None
    assert len(Lucid().stage_before(jobs, **during).outcome.records) == 1


def _waits_ns(stretches: list[tuple[int, int]], submit: int, finish: int) -> list[int]:
    """Lengths of what lies between the stretches in which a job held units, from its submission to its finish."""
    waits, reached = [], submit
    for start, end in [*sorted(stretches), (finish, finish)]:
        waits.append(max(min(start, finish) - reached, 0))
        reached = max(reached, end)
    return waits


@examples(40)
@given(jobs=job_lists(), compat=st.booleans())
def test_every_job_is_accounted_for_once(jobs: list[Job], compat: bool) -> None:
    staged = profiled(jobs, compat=compat)
    pools = play(list(staged.jobs), busy(), nodes=2) if len(staged.jobs) else None
    joined = staged.joined(pools)
    assert [record.job for record in joined.records] == jobs
    columns = joined.allocations[["job", "start_ns", "end_ns"]]
    stretches = [*columns.itertuples(index=False)]
    waits = []
    for index, record in enumerate(joined.records):
        assert record.job.tsub_ns <= record.start_ns < record.finish_ns
        assert record.gained - record.lost_to_preemption == pytest.approx(record.work)
        held = [(start, end) for of, start, end in stretches if of == index]
        waits.append(_waits_ns(held, record.job.tsub_ns, record.finish_ns))
        without = without_units_s(record, joined.end_ns)
        assert without == pytest.approx(sum(waits[-1]) / S)
    longest = longest_wait(joined, census_of(joined.records, joined.end_ns))[0]
    assert longest == max(map(max, waits)) / S
    unit_s = sum(record.unit_seconds for record in joined.records)
    assert joined.used_unit_seconds <= unit_s * (1 + 1e-9)
    # The window is that of all of it, and the partition and the pools offer their units throughout.
    assert joined.start_ns == min(record.job.tsub_ns for record in joined.records)
    finish = max(record.finish_ns for record in joined.records)
    assert joined.end_ns == (max(finish, staged.outcome.end_ns) if compat else finish)
    offered = len(joined.trace.nodes) * joined.trace.units_per_node * joined.duration_s
    assert joined.idle_unit_seconds == joined.offered_unit_seconds
    assert joined.idle_unit_seconds == pytest.approx(offered)


# --- the artifact -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "vcs", "agrees", "within"),
    [
        # Without the quota and the order of submission tiresias-l was 57 % off here, srtf 2.4 %.
        ("tiresias-l, compat", ["vcvGl"], 0.99, 0.001),
        ("srtf, compat", ["vcWoR"], 0.97, 0.001),
        ("fifo", ["vcvGl", "vcvlY"], 1.0, 0.001),
        ("lucid", ["vcvGl", "vcvlY"], None, 0.03),
    ],
)
def test_the_policies_of_the_artifact(
    name: str,
    vcs: list[str],
    agrees: float | None,
    within: float,
    reference: Path,
    here: Path,
    benchmark: Any,
) -> None:
    fidelity = benchmark("fidelity_lucid")
    case = fidelity.CASES[name]
    fidelity.write_inputs()
    run = bft.replay(dedicated=False, **case.options)
    jobs = run.jobs[run.jobs["vc"].isin(vcs)]
    if agrees is not None:
        assert fidelity.same_end(run, case.jobs)[jobs.index].mean() >= agrees
    ours = jobs.groupby("vc")["jct_s"].mean()
    assert ours.to_dict() == pytest.approx(
        fidelity.averages(case.column)[vcs].to_dict(), rel=within
    )


@pytest.mark.slow
@pytest.mark.reference
def test_each_figure_of_the_reproduction_is_one_command(
    reference: Path, here: Path, benchmark: Any, told: Any
) -> None:
    """benchmarks/README.md lists the commands; one small virtual cluster here, where the published ones have 15."""
    benchmark("lucid_venus").prepare(reference / "lucid", Path("venus"), ["vcvlY"])

    def compared(plan: str, args: str) -> list[dict[str, Any]]:
        common = "--workers 0 --no-u --out venus/study --json"
        stated = Path(f"venus/{plan}.args").read_text()
        said = told(f"compare {common} {args} {stated}")
        whole, _ = json.JSONDecoder().raw_decode(said, said.index("{"))
        rows: list[dict[str, Any]] = whole["variants"]
        return rows

    by_vc = compared("policies", "--split vc --png venus/policies")
    policies = ["fifo", "sjf", "qssf", "tiresias", "lucid"]
    assert [row["variant"] for row in by_vc] == policies
    golden = pd.read_csv(reference / "lucid" / "golden" / "avg_jct_by_vc.csv")
    of_vc = golden.set_index("vc").loc["vcvlY"]
    means = [row["jct_s.mean"] for row in by_vc[:3]]
    assert [*map(int, means[:2])] == [of_vc["fifo"], of_vc["sjf"]]
    assert means[2] == pytest.approx(of_vc["qssf_ebm"], rel=0.001)
    by_size = compared("ablations", "--split size:8 --png venus/ablations")
    without = [row["variant"] for row in by_size if row["size"] == "1-8"]
    parts = ("packing", "forecast")
    first = ["lucid", *(f"without {part}" for part in parts)]
    assert without == [*first, "always busy", "without estimator"]
    drawn = {str(path.relative_to("venus")) for path in Path("venus").glob("*/*.png")}
    names = ("policies/compared-times", "policies/compared-without-by-vc")
    assert {f"{of}.png" for of in (*names, "ablations/compared-means")} <= drawn
