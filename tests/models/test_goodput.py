"""Goodput: the fit against its gradient, known parameters and published traces; batch choice against plain loops."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models import Curve
from bft.models.speed.goodput import (
    BatchLimits,
    Goodput,
    adascale_gain,
    goodput_table,
    noise_scale,
    replica_cap,
    speedup_table,
)
from bft.models.speed.throughput import (
    Observations,
    ThroughputParameters,
    fit_throughput,
    objective,
)

TRUTH = ThroughputParameters(0.05, 0.002, 0.08, 0.003, 0.02, 0.001, 1.5)
LIMITS = BatchLimits(initial=64, most=4096, atomic_min=16, atomic_max=256)


def grid(nodes: list[int], per_node: list[int], atomic: list[int]) -> Observations:
    """Noise-free steps of TRUTH."""
    n, r, m = (np.array(axis, dtype=float) for axis in zip(
        *[(n, n * k, m) for n in nodes for k in per_node for m in atomic], strict=True
    ))  # fmt: skip
    return Observations(n, r, m, TRUTH.step_time(n, r, m), TRUTH.gradient_time(m))


# --- step times -------------------------------------------------------------------------------------------------------

times = st.floats(1e-6, 10)
parameters = st.builds(
    ThroughputParameters, times, times, times, times, times, times, st.floats(1, 10)
)


@given(
    parameters,
    st.integers(1, 8),
    st.integers(0, 24),
    st.integers(1, 512),
    st.integers(0, 5),
)
def test_step_times_by_the_letter(
    p: ThroughputParameters, nodes: int, more: int, m: int, s: int
) -> None:
    replicas = nodes + more
    grad = p.alpha_c + p.beta_c * m
    if replicas == 1:
        sync = 0.0
    elif nodes == 1:
        sync = p.alpha_r + p.beta_r * (replicas - 2)
    else:
        sync = p.alpha_n + p.beta_n * (replicas - 2)
    high = max(grad, sync)
    step = s * grad + high * ((grad / high) ** p.gamma + (sync / high) ** p.gamma) ** (
        1 / p.gamma
    )
    assert p.step_time(nodes, replicas, m, s) == pytest.approx(step, rel=1e-9)
    assert p.throughput(nodes, replicas, m, s) == pytest.approx(
        replicas * m * (s + 1) / step, rel=1e-9
    )


@pytest.mark.parametrize("gamma", [1.0, 10.0])
def test_tiny_times_do_not_underflow(gamma: float) -> None:
    p = ThroughputParameters(1e-40, 0, 1e-40, 0, 1e-40, 0, gamma)
    assert p.step_time(1, 2, 1) == pytest.approx(1e-40 * 2 ** (1 / gamma))


@pytest.mark.parametrize(
    "change",
    [
        {"alpha_c": -1},
        {"gamma": 0.5},
        {"beta_n": math.nan},
        {"alpha_c": 0, "beta_c": 0},
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, float]) -> None:
    refused(next(iter(change)), replace, TRUTH, **change, error=ValueError)


# --- fits -------------------------------------------------------------------------------------------------------------


@examples(30)
@given(st.integers(0, 2**32 - 1))
def test_the_gradient_is_that_of_the_objective(seed: int) -> None:
    from bft.models.speed.throughput import _Objective

    rng = np.random.default_rng(seed)
    observed = grid([1, 2, 3], [1, 2, 4], [16, 64])
    at = np.r_[rng.uniform(0.01, 1, 6), rng.uniform(1.1, 9)]
    value = _Objective(observed)
    _, slope = value(at)
    for k in range(7):
        step = np.eye(7)[k] * 1e-6 * at[k]
        numeric = (value(at + step)[0] - value(at - step)[0]) / (2 * step[k])
        assert slope[k] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_the_objective_is_the_published_one() -> None:
    observed = grid([1, 2], [1, 4], [16, 64])
    p = ThroughputParameters(0.06, 0.001, 0.05, 0.002, 0.03, 0.003, 2.0)
    predicted = p.step_time(observed.nodes, observed.replicas, observed.atomic)
    gradient = p.gradient_time(observed.atomic)

    def rmse(a: np.ndarray, b: np.ndarray | None) -> float:
        assert b is not None
        return float(np.sqrt(np.mean((np.log(a) - np.log(b)) ** 2)))

    expected = rmse(gradient, observed.gradient_s) + rmse(predicted, observed.step_s)
    expected += 1e-3 * 1.0 + 1e-2 * ((0.002 / 0.05) ** 2 + (0.003 / 0.03) ** 2)
    assert objective(p, observed) == pytest.approx(expected, rel=1e-9)


def test_noise_free_steps_give_their_parameters_back() -> None:
    fitted = fit_throughput(grid([1, 2, 4], [1, 2, 3, 4], [16, 64, 256]))
    held = grid([3, 8], [1, 4], [32, 128])
    predicted = fitted.step_time(held.nodes, held.replicas, held.atomic)
    np.testing.assert_allclose(predicted, held.step_s, rtol=0.02)
    assert fitted.gamma == pytest.approx(TRUTH.gamma, abs=0.05)


def test_no_random_parameters_do_better() -> None:
    rng = np.random.default_rng(0)
    exact = grid([1, 2, 4], [1, 2, 4], [16, 64])
    observed = replace(exact, step_s=exact.step_s * rng.lognormal(0, 0.1, len(exact)))
    fitted = fit_throughput(observed)
    best = objective(fitted, observed)
    for _ in range(300):
        factor = rng.lognormal(0, rng.choice([0.01, 0.1, 1]), 7)
        other = np.array(astuple(fitted)) * factor
        other[6] = np.clip(other[6], 1, 10)
        assert (
            objective(ThroughputParameters(*map(float, other)), observed) >= best - 1e-6
        )


def test_what_was_not_observed_is_hoped_for() -> None:
    alone = fit_throughput(grid([1], [1], [64]))
    assert alone.alpha_c == pytest.approx(
        TRUTH.gradient_time(64) / 2
    )  # one batch size: half the mean
    assert alone.step_time(1, 1, 64) == pytest.approx(
        TRUTH.step_time(1, 1, 64), rel=1e-3
    )
    assert (alone.alpha_r, alone.beta_r, alone.beta_n) == (
        1e-8,
        1e-8,
        pytest.approx(1.1e-8),
    )
    # Then any number of replicas is as fast as one: the scheduler will try.
    assert alone.throughput(4, 16, 64) == pytest.approx(
        16 * alone.throughput(1, 1, 64), rel=1e-3
    )

    pair = fit_throughput(grid([1], [1, 2], [16, 64]))
    assert pair.beta_r == 1e-8
    assert pair.alpha_n == pytest.approx(1.1 * pair.alpha_r)

    local = fit_throughput(grid([1], [1, 2, 4], [16, 64]))
    assert local.alpha_n == pytest.approx(1.1 * local.alpha_r)
    assert local.beta_n == pytest.approx(1.1 * local.beta_r)

    across = fit_throughput(grid([2], [1], [16, 64]))
    assert (across.alpha_r, across.beta_r, across.beta_n) == (1e-8, 1e-8, 1e-8)


def test_whole_steps_alone_suffice() -> None:
    full = grid([1, 2, 4], [1, 2, 4], [16, 64, 256])
    fitted = fit_throughput(replace(full, gradient_s=None))
    predicted = fitted.step_time(full.nodes, full.replicas, full.atomic)
    np.testing.assert_allclose(predicted, full.step_s, rtol=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_s": [1.0, -1.0]}, "step_s: expected numbers > 0, but entry 2 is -1.0"),
        ({"nodes": [1.0, 3.0]}, "but entry 2 has 2 replicas on 3 nodes"),
        ({"atomic": [1.0]}, "atomic: expected as many values as nodes"),
        (
            {"gradient_s": [math.nan, 1]},
            "gradient_s: expected numbers > 0, but entry 1 is nan",
        ),
    ],
)
def test_bad_observations_are_reported(
    change: dict[str, list[float]], message: str
) -> None:
    good = {
        "nodes": [1.0, 1.0],
        "replicas": [1.0, 2.0],
        "atomic": [8.0, 8.0],
        "step_s": [1.0, 1.0],
    }
    refused(
        message,
        Observations,
        **{name: np.array(values) for name, values in {**good, **change}.items()},
        error=ValueError,
    )


# --- goodput ----------------------------------------------------------------------------------------------------------

limits = st.tuples(
    st.integers(1, 64),
    st.integers(0, 200),
    st.integers(0, 400),
    st.integers(0, 4000),
    st.booleans(),
).map(lambda t: BatchLimits(t[0] + t[1], t[0] + t[1] + t[3], t[0], t[0] + t[2]))


def best_by_loops(goodput: Goodput, nodes: int, replicas: int) -> float:
    """The best goodput over the 50 batches, one at a time."""
    lim, p, best = goodput.limits, goodput.parameters, 0.0
    least = max(lim.initial, lim.atomic_min * replicas)
    if least > lim.most:
        return 0.0
    for k in range(50):
        local = least * (lim.most / least) ** (k / 49) / replicas
        passes = math.ceil(local / lim.atomic_max - 1e-8)
        if replicas == 1 and local > lim.initial + 1e-8:
            passes = max(passes, 2)
        m = min(math.ceil(local / passes - 1e-8), lim.most // (replicas * passes))
        if lim.atomic_min <= m <= lim.atomic_max:
            batch = max(m * passes * replicas, lim.initial)
            efficiency = (goodput.pgns + lim.initial) / (goodput.pgns + batch)
            rate = (
                replicas
                * m
                * passes
                / float(p.step_time(nodes, replicas, m, passes - 1))
            )
            best = max(best, rate * efficiency)
    return best


@given(parameters, limits, st.floats(0, 1e6), st.integers(1, 8), st.integers(0, 60))
def test_the_best_batch_by_plain_loops(
    p: ThroughputParameters, lim: BatchLimits, pgns: float, n: int, more: int
) -> None:
    goodput = Goodput(p, pgns, lim)
    found, m, s = goodput.best_batch(n, n + more)
    assert float(found) == pytest.approx(best_by_loops(goodput, n, n + more), rel=1e-9)
    if found > 0:
        assert lim.atomic_min <= m <= lim.atomic_max
        assert (n + more) * m * (s + 1) <= lim.most
        assert float(found) == pytest.approx(
            float(goodput.at(n, n + more, m, s)), rel=1e-12
        )
    else:
        assert (m, s) == (0, 0)


@given(st.floats(1e-6, 1e3), st.floats(0, 1e3), st.floats(1, 1e3))
def test_adascale_gain_is_the_scale_times_the_efficiency(
    sqr: float, var: float, scale: float
) -> None:
    """Two formulas, of two papers: a step of AdaScale is worth what goodput counts it."""
    gain = adascale_gain(sqr, var, scale)
    goodput = Goodput(TRUTH, noise_scale(sqr, var, LIMITS.initial), LIMITS)
    assert gain == pytest.approx(
        scale * float(goodput.efficiency(scale * LIMITS.initial)), rel=1e-9
    )
    assert 1 - 1e-12 <= gain <= scale * (1 + 1e-12)


def test_noise_scales_and_gains_at_their_ends() -> None:
    # No noise: a larger batch is worth one step; all noise: as many as it is larger; nothing is known.
    ends = [(1.0, 0.0), (0.0, 1.0), (-1.0, 2.0)]
    assert [adascale_gain(*each, 8.0) for each in ends] == [1, 8, 1]
    assert noise_scale(2.0, 6.0, 64) == 192
    assert noise_scale(0.0, 6.0, 64) == noise_scale(-1e-9, 6.0, 64) == math.inf
    assert Goodput(TRUTH, math.inf, LIMITS).efficiency([64, 4096]).tolist() == [1, 1]
    refused("pgns", Goodput, TRUTH, math.nan, LIMITS, error=ValueError)


@pytest.mark.parametrize(("change", "name"), [({"atomic_min": 0}, "atomic_min"), ({"atomic_min": 65}, "atomic_min"),
                                              ({"most": 63}, "most"), ({"atomic_max": 8}, "atomic_min")])  # fmt: skip
def test_impossible_limits_are_refused(change: dict[str, int], name: str) -> None:
    refused(name, replace, LIMITS, **change, error=ValueError)


def test_a_single_replica_beyond_the_first_batch_accumulates() -> None:
    _, m, s = Goodput(TRUTH, math.inf, replace(LIMITS, most=256)).best_batch(1, 1)
    assert (int(m), int(s)) == (128, 1)


def test_replicas_worth_trying() -> None:
    assert [replica_cap(profiled, LIMITS) for profiled in (0, 1, 3, 100)] == [
        1,
        2,
        6,
        64,
    ]
    assert replica_cap(100, replace(LIMITS, most=160)) == 10


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_holds_what_each_placement_gives() -> None:
    goodput = Goodput(TRUTH, 500.0, LIMITS)
    table = goodput_table(goodput, 3, 12)
    assert table.shape == (4, 13)
    for n in range(4):
        for r in range(13):
            expected = float(goodput.best_batch(n, r)[0]) if 1 <= n <= r else 0.0
            assert table[n, r] == pytest.approx(expected, rel=1e-12)
    assert goodput_table(Goodput(TRUTH, 500.0, LIMITS), 3, 12) is table  # kept by value
    with pytest.raises(ValueError, match="read-only"):
        table[1, 1] = 0


def test_a_curve_is_its_own_goodput() -> None:
    curve = Curve(np.array([0.0, 2, 4]), np.array([0.0, 20, 30]))
    table = speedup_table(curve, 2, 5, 1, 2)
    np.testing.assert_allclose(table[1], [0, 0.5, 1, 1.25, 1.5, 1.5])
    np.testing.assert_allclose(table[2], [0, 0, 1, 1.25, 1.5, 1.5])
    assert not table[0].any()


@given(parameters, st.floats(0, 1e5), st.integers(1, 4), st.integers(0, 12))
def test_the_fair_share_has_speed_up_one(
    p: ThroughputParameters, pgns: float, nodes: int, more: int
) -> None:
    table = speedup_table(Goodput(p, pgns, LIMITS), 4, 16, nodes, nodes + more)
    if nodes + more <= 16:
        assert table[nodes, nodes + more] == pytest.approx(1)
    assert np.isfinite(table).all()
    assert (table >= 0).all()


def test_a_share_too_large_or_too_small_still_compares() -> None:
    few = Goodput(TRUTH, 500.0, replace(LIMITS, most=64))  # at most four replicas
    assert speedup_table(few, 2, 8, 2, 8)[2, 4] == pytest.approx(1)
    late = Curve(
        np.array([0.0, 3, 4, 8]), np.array([0.0, 0, 40, 80])
    )  # nothing below four units
    assert speedup_table(late, 1, 8, 1, 2)[1, [2, 4, 8]].tolist() == pytest.approx(
        [0, 2, 4]
    )
    dead = Curve(np.array([0.0, 4]), np.array([0.0, 0]))
    assert not speedup_table(dead, 1, 4, 1, 2).any()
    refused("fair", speedup_table, None, 1, 4, 2, 1, error=ValueError)


# --- published traces -------------------------------------------------------------------------------------------------


@pytest.mark.reference
@pytest.mark.parametrize(
    "name", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
)
def test_placements_not_seen_are_predicted_within_ten_percent(
    reference: Path, name: str
) -> None:
    from bft.models.speed.applications import read_application

    application = read_application(reference / "pollux" / "traces" / name)
    observed = application.observations
    ring = np.repeat(
        np.arange(len(application.steps)),
        [len(rows) for rows in application.steps.values()],
    )
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(3):
        held = np.isin(
            ring,
            rng.choice(
                len(application.steps), len(application.steps) // 5, replace=False
            ),
        )
        fitted, test = fit_throughput(observed[~held]), observed[held]
        errors.append(
            np.abs(
                fitted.step_time(test.nodes, test.replicas, test.atomic) / test.step_s
                - 1
            )
        )
    assert np.median(np.concatenate(errors)) <= 0.10
