"""Pollux: feasible answers of its search, exact counts against enumeration, and jobs that tune themselves."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pollux_by_arrays
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from toy_application import workload, write_application
from worlds import cluster, everything, instant, make, replay, resume, saved

from bft.models import Job
from bft.replay import JobView, Replay, Rules, State, always_idle
from bft.replay.engine.units import Holdings
from bft.replay.policies.pollux import Moment, Pollux, mean_term, restart_factor, search
from bft.replay.trace.node_trace import SECOND_NS


@pytest.fixture(scope="module")
def applications(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pollux") / "traces"
    write_application(folder / "toy")
    return folder


CLUSTER = Rules(max_jobs=0, start_overhead_s=30.0, restart_overhead=((1, 30.0),))


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    """Small questions: nodes of any room, jobs with bounds, speed-ups that grow or not, some of them running."""
    jobs, nodes = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    capacity = rng.integers(1, 5, nodes)
    most = rng.integers(1, capacity.sum() + 1, jobs)
    least = np.minimum(rng.integers(0, 4, jobs), most)
    speedup = np.zeros((jobs, 3, int(most.max()) + 1))
    speedup[:, 1:, 1:] = np.cumsum(rng.random((jobs, 2, int(most.max()))), axis=2)
    moment = Moment(
        np.zeros((jobs, nodes), dtype=np.int64), capacity, speedup, least, most, rng.random(jobs), 4,
        most_nodes=draw(st.integers(1, 6)), power=draw(st.sampled_from([-4.0, -1.0, 0.0, 1.0])),
        fits=draw(st.none() | st.just(np.tile(np.arange(int(most.max()) + 1) // 2 * 2, (jobs, 1)))),
        avoid=draw(st.booleans()),
    )  # fmt: skip
    running = rng.integers(0, 5, (1, jobs, nodes)).astype(np.int16)
    moment.repair(running, rng)
    moment.current[:] = running[0]
    return moment


@examples(60)
@given(moments(), st.integers(0, 2**32 - 1))
def test_every_candidate_is_feasible_and_the_best_no_worse_than_keeping(
    moment: Moment, seed: int
) -> None:
    start = np.zeros((0, *moment.current.shape), np.int16)
    states, fitness = search(
        moment, start, np.random.default_rng(seed), population=20, generations=8
    )
    assert (states >= 0).all()
    assert (states.sum(axis=1) <= moment.capacity).all()
    replicas, nodes = states.sum(axis=2), (states > 0).sum(axis=2)
    fits = (replicas >= moment.least) & (replicas <= moment.most)
    assert ((replicas == 0) | fits).all()
    assert moment.fits is None or (replicas % 2 == 0).all()  # pairs only
    assert (nodes <= moment.most_nodes).all()
    if moment.avoid:
        distributed = (states > 0) & (nodes > 1)[:, :, None]
        assert (distributed.sum(axis=1) <= 1).all()
    assert (np.diff(fitness) <= 0).all()
    assert fitness[0] >= moment.objectives(moment.current[None].astype(np.int16))[0, 0]
    values = moment.objectives(states)
    np.testing.assert_array_equal(fitness, values[:, 0])
    assert not pollux_by_arrays.ranks_of(values).any()  # none dominates another
    assert len({state.tobytes() for state in states}) == len(states)


@examples(30)
@given(moments(), st.integers(0, 2**32 - 1))
def test_compiled_loops_do_what_arrays_do(moment: Moment, seed: int) -> None:
    """To the bit, and with as many random numbers; also from a start that is not feasible."""
    rngs = [np.random.default_rng(seed) for _ in "ab"]
    start = (
        np.random.default_rng(seed + 1)
        .integers(0, 4, (3, *moment.current.shape))
        .astype(np.int16)
    )
    for _ in range(2):  # the second begins with a population
        ours = search(moment, start, rngs[0], population=15, generations=6)
        other = pollux_by_arrays.search(
            moment, start, rngs[1], population=15, generations=6
        )
        np.testing.assert_array_equal(ours[0], other[0])
        np.testing.assert_array_equal(ours[1], other[1])
        start = ours[0]
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_fitness_by_hand() -> None:
    """Two jobs on two nodes of two: speed-ups 2 and 1 of a node's worth, the second restarts."""
    speedup = np.tile(np.arange(5.0), (2, 3, 1))
    moment = Moment(
        np.array([[2, 0], [0, 0]]),
        np.array([2, 2]),
        speedup,
        np.zeros(2, int),
        np.full(2, 4),
        np.array([0.5, 0.8]),
        2,
    )
    state = np.array([[[2, 0], [0, 1]], [[0, 2], [1, 0]]], np.int16)
    first = (1 / (2 / 2 + 1e-3) + 1 / (1 * 0.8 / 2 + 1e-3)) / 2
    second = (1 / (2 * 0.5 / 2 + 1e-3) + 1 / (1 * 0.8 / 2 + 1e-3)) / 2
    # Two jobs' speed-ups of 2 and 1, on two nodes of two units.
    expected = [[-first, 3 / 4], [-second, 3 / 4]]
    np.testing.assert_allclose(moment.objectives(state), expected)


@pytest.mark.parametrize("power", [-2.0, -1.0, 0.0, 0.5])
def test_terms_rank_as_the_generalised_mean_does(power: float) -> None:
    values = np.random.default_rng(0).random((50, 4))
    with_floor = values + 1e-3
    mean = (
        np.exp(np.log(with_floor).mean(axis=1))
        if power == 0
        else (with_floor**power).mean(axis=1) ** (1 / power)
    )
    np.testing.assert_array_equal(
        np.argsort(mean_term(values, power).mean(axis=1)), np.argsort(mean)
    )


def test_search_finds_the_optimum_of_a_small_cluster() -> None:
    """Three jobs, 3 nodes of 2: against all placements."""
    rng = np.random.default_rng(1)
    capacity = np.array([2, 2, 2])
    speedup = np.zeros((3, 3, 7))
    speedup[:, 1, 1:] = np.arange(1, 7) ** 0.9
    speedup[:, 2, 1:] = np.array([[0.5], [0.7], [0.9]]) * np.arange(1, 7) ** 0.8
    moment = Moment(
        np.zeros((3, 3), int),
        capacity,
        speedup,
        np.zeros(3, int),
        np.full(3, 6),
        np.ones(3),
        2,
    )
    columns = [
        column for column in itertools.product(range(3), repeat=3) if sum(column) <= 2
    ]
    everything = (
        np.array(list(itertools.product(columns, repeat=3)), np.int16)
        .transpose(0, 2, 1)
        .copy()
    )
    feasible = everything.copy()
    moment.repair(feasible, rng)
    everything = everything[(feasible == everything).all(axis=(1, 2))]
    best = moment.objectives(everything)[:, 0].max()
    _, fitness = search(moment, np.zeros((0, 3, 3), np.int16), np.random.default_rng(2))
    assert fitness[0] == pytest.approx(best, rel=1e-12)


# --- a unit is a node


def curve_job(name: str, rates: list[float], **of: Any) -> Job:
    return make(name, [0.0, *rates], **{"pmax": 1e6, **of})


@examples(40)
@given(st.data())
def test_counts_on_whole_nodes_are_the_optimum(data: st.DataObject) -> None:
    """Against enumeration, by the speed-up of a scalability curve over the fair share."""
    units = data.draw(st.integers(1, 7))
    rates = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=4).map(
        lambda steps: list(np.cumsum(steps))
    )
    curves = data.draw(st.lists(rates, min_size=1, max_size=3))
    jobs = [
        curve_job(f"j{at}", curve, jmin=min(2, len(curve)))
        for at, curve in enumerate(curves)
    ]
    trace, policy = cluster(units, 1, 120), Pollux(interval_s=60)
    records = replay(trace, jobs, policy).records
    # From 60 s to 120 s.
    held = tuple(round(record.unit_seconds / 60) for record in records)
    fair = -(-units // len(jobs))

    def fitness(counts: tuple[int, ...]) -> float:
        """All of them start: age 60 s, delay 30 s."""
        reached = [
            job.rates[n] / job.scalability.at(fair)
            for job, n in zip(jobs, counts, strict=True)
        ]
        return float(sum(-1 / (np.array(reached) * (60 / 90) + 1e-3)))

    sizes = (sorted({0, *range(job.jmin, job.jmax + 1)}) for job in jobs)
    fitting = [c for c in itertools.product(*sizes) if sum(c) <= units]
    assert held in fitting
    assert fitness(held) == pytest.approx(max(map(fitness, fitting)), rel=1e-9)


def running(job: Job, units: int, **times: int) -> JobView:
    return JobView(job, units, 0.0, tuple(range(units)), **times)


@pytest.mark.parametrize(
    ("starts", "rescales", "age_s", "penalty"),
    [
        (0, 0, 600, 600 / 630),  # has not run: nothing is lost yet
        (1, 0, 600, 600 / 630),  # its first start is no restart
        (2, 0, 600, 570 / 630),  # came back once
        (1, 3, 600, 510 / 630),  # was rescaled three times
        (3, 4, 600, 420 / 630),
        (1, 25, 600, 0.0),  # more than its life
        (1, 0, 0, 0.0),
    ],
)
def test_what_pollux_makes_of_restarts(
    starts: int, rescales: int, age_s: int, penalty: float
) -> None:
    """(T - R S) / (T + S) with age T, S = 30 s: R counts further starts and rescales, but not the first start."""
    job = curve_job("a", [1.0, 2.0])
    view = running(job, 1 if starts else 0, starts=starts, rescales=rescales)
    now_ns = job.tsub_ns + age_s * SECOND_NS
    assert restart_factor(view, now_ns, 30.0) == pytest.approx(penalty)


@pytest.mark.parametrize(
    ("starts", "rescales", "grows"), [(1, 0, True), (1, 10, False), (11, 0, False)]
)
def test_pollux_leaves_a_job_alone_that_has_restarted_often(
    starts: int, rescales: int, grows: bool
) -> None:
    """Twice as fast on two units, less 30 s of each restart: 2 x 600 / 630 pays, 2 x 300 / 630 does not."""
    view = running(curve_job("a", [1.0, 2.0]), 1, starts=starts, rescales=rescales)
    state = State(instant(600), 2, (view,), Holdings(2))
    decision = Pollux(delay_s=30.0).decide(state)
    assert decision.counts_in(state) == ((2,) if grows else (1,))


# --- jobs that tune themselves


def test_a_replay_resumed_ends_as_it_would_have(applications: Path) -> None:
    jobs = workload(
        applications,
        "a,0,toy,2,64",
        "b,30,toy,4,128",
        "c,200,toy,1,64",
        "d,700,toy,1,64",
    )

    def made() -> Replay:
        trace = always_idle(4, 0, 3600 * SECOND_NS, units_per_node=4)
        return Replay(
            trace, jobs, Pollux(seed=1, population=20, generations=10), CLUSTER
        )

    whole, begun, rest = made(), made(), made()
    for _ in range(15):
        begun.step()
    resume(rest, saved(begun))
    assert everything(rest.run()) == everything(whole.run())


def test_replicas_double_at_most_from_what_was_profiled(applications: Path) -> None:
    """A job alone on 16 units goes 1, 2, 4, ... as its agent learns."""
    jobs = workload(applications, "a,0,toy,2,64")
    trace = always_idle(4, 0, 600 * SECOND_NS, units_per_node=4)
    sizes: list[int] = []

    class Watched(Pollux):
        def decide(self, state):  # type: ignore[no-untyped-def]
            decision = super().decide(state)
            sizes.append(decision.counts_in(state)[0])
            return decision

    Replay(trace, jobs, Watched(), CLUSTER).run()
    assert sizes[0] == 1
    grown = [size for size in sizes if size]
    assert all(after <= 2 * max(grown[: at + 1]) for at, after in enumerate(grown[1:]))
    assert max(grown) > 4
