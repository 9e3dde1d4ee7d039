"""Fits of speed: scalability laws, step times, goodput and its best batch, against second formulations."""

import math
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models import Curve
from bft.models.curves import OnlineCurve
from bft.models.speed.goodput import (
    BatchLimits,
    Goodput,
    Observations,
    ThroughputParameters,
    _Objective,
    adascale_gain,
    fit_throughput,
    goodput_table,
    noise_scale,
    replica_cap,
    speedup_table,
)
from bft.models.speed.scalability import (
    SIZES_NEEDED,
    Kind,
    Throughputs,
    fit_scalability,
    read_throughputs,
)

TRUTH = ThroughputParameters(0.05, 0.002, 0.08, 0.003, 0.02, 0.001, 1.5)
LIMITS = BatchLimits(initial=64, most=4096, atomic_min=16, atomic_max=256)


def grid(nodes: list[int], per_node: list[int], atomic: list[int]) -> Observations:
    """Noise-free steps of TRUTH."""
    n, r, m = (np.array(axis, dtype=float) for axis in zip(
        *[(n, n * k, m) for n in nodes for k in per_node for m in atomic], strict=True
    ))  # fmt: skip
    return Observations(n, r, m, TRUTH.step_time(n, r, m), TRUTH.gradient_time(m))


def objective(parameters: ThroughputParameters, observed: Observations) -> float:
    return _Objective(observed)(np.array(astuple(parameters)))[0]


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


SEEN = Observations(*np.array([[1, 1], [1, 2], [8, 8], [1, 1], [1, 0.5]], dtype=float))
MEASURED = Throughputs("m", np.array([1.0, 2.0]), np.array([10.0, 19.0]))


@pytest.mark.parametrize(
    ("good", "wrong", "message"),
    [
        (LIMITS, {"atomic_min": 0}, "atomic_min"),
        (LIMITS, {"atomic_min": 65}, "atomic_min"),
        (LIMITS, {"most": 63}, "most"),
        (LIMITS, {"atomic_max": 8}, "atomic_min"),
        (SEEN, {"step_s": [1.0, -1.0]}, "step_s: expected numbers > 0, but entry 2 is -1.0"),
        (SEEN, {"nodes": [1.0, 3.0]}, "but entry 2 has 2 replicas on 3 nodes"),
        (SEEN, {"atomic": [1.0]}, "atomic: expected 2 values"),
        (SEEN, {"gradient_s": [math.nan, 1]}, "gradient_s: expected numbers > 0, but entry 1 is nan"),
        (MEASURED, {"units": [1.0, 1.5]}, "units: expected whole numbers"),
        (MEASURED, {"units": [1.0, -1.0]}, "units: expected numbers > 0, but entry 2 is -1.0"),
        (MEASURED, {"throughput": [0.0, 1.0]}, "throughput: expected numbers > 0, but entry 1"),
        (MEASURED, {"throughput": [1.0, math.nan]}, "expected numbers > 0, but entry 2 is nan"),
        (MEASURED, {"throughput": [1.0]}, "throughput: expected 2 values"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(
    good: Any, wrong: dict[str, Any], message: str
) -> None:
    change = {name: np.array(value) if isinstance(value, list) else value for name, value in wrong.items()}  # fmt: skip
    refused(message, replace, good, **change, error=ValueError)


# --- fits -------------------------------------------------------------------------------------------------------------


@examples(30)
@given(st.integers(0, 2**32 - 1))
def test_the_gradient_is_that_of_the_objective(seed: int) -> None:
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

    def rmse(a: np.ndarray, b: np.ndarray) -> float:
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


SIZES = np.array([1.0, 2, 4, 8, 16])


def measured(units: list[float], throughput: list[float]) -> Throughputs:
    return Throughputs("m", np.array(units), np.array(throughput))


# --- fits -------------------------------------------------------------------------------------------------------------


@given(st.floats(1e-3, 1e6), st.floats(0, 1), st.sampled_from([0.0, 1e-4, 0.01]))
def test_laws_come_back_from_their_points(
    p1: float, sigma: float, kappa: float
) -> None:
    rates = p1 * SIZES / (1 + sigma * (SIZES - 1) + kappa * SIZES * (SIZES - 1))
    fit = fit_scalability(
        measured(SIZES.tolist(), rates.tolist()),
        "usl" if kappa else "amdahl",
        sizes=[1, 3, 64],
    )
    assert fit.errors.max() < 1e-6
    n = np.array([1.0, 3, 64])
    expected = p1 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
    np.testing.assert_allclose(fit.curve.ps[1:], expected, rtol=1e-4)
    assert fit.parameters["P1"] == pytest.approx(p1, rel=1e-4)
    assert fit.parameters["sigma"] == pytest.approx(sigma, abs=1e-4)


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=8))
def test_no_serial_fraction_does_better_than_the_fitted_one(rates: list[float]) -> None:
    n, p = np.arange(1.0, len(rates) + 1), np.array(rates)
    fit = fit_scalability(measured(n.tolist(), rates), "amdahl")

    def loss(p1: float, sigma: float) -> float:
        return float((((p * (1 + sigma * (n - 1)) / (p1 * n)) - 1) ** 2).sum())

    best = loss(fit.parameters["P1"], fit.parameters["sigma"])
    for sigma in np.linspace(0, 1, 21):
        shape = p * (1 + sigma * (n - 1)) / n
        assert (
            best
            <= loss(float((shape**2).sum() / shape.sum()), float(sigma)) * (1 + 1e-9)
            + 1e-12
        )


def test_the_piecewise_curve_goes_through_the_medians() -> None:
    fit = fit_scalability(measured([4, 1, 1, 1, 2], [30, 10, 11, 500, 19]))
    assert fit.curve.ns.tolist() == [0, 1, 2, 4]
    assert fit.curve.ps.tolist() == [0, 11, 19, 30]
    np.testing.assert_allclose(fit.errors, [0, 0.1, 0, 1 - 11 / 500, 0])
    np.testing.assert_allclose(fit.efficiency(), [1, 19 / 22, 30 / 44])


@pytest.mark.parametrize("kind", SIZES_NEEDED)
def test_points_outside_the_measured_range_are_marked(kind: Kind) -> None:
    fit = fit_scalability(
        measured([2, 4, 8], [20, 35, 60]), kind, sizes=[1, 2, 4, 8, 9, 64]
    )
    assert fit.kind == kind
    assert fit.extrapolated.tolist() == [False, True, False, False, False, True, True]
    assert fit.beyond == [1, 9, 64]
    assert (fit.curve.ps[1:] > 0).all()


def test_beyond_its_last_size_a_piecewise_curve_does_not_grow() -> None:
    fit = fit_scalability(measured([2, 8], [20, 60]), sizes=[1, 8, 100])
    assert fit.curve.ps.tolist() == [0, 10, 60, 60]


@pytest.mark.parametrize("kind", SIZES_NEEDED)
def test_order_and_scale_of_measurements_do_not_matter(kind: Kind) -> None:
    units, rates = [1.0, 2, 2, 4, 8], [10.0, 19, 21, 36, 60]
    fit = fit_scalability(measured(units, rates), kind, sizes=[1, 6, 16])
    back = fit_scalability(measured(units[::-1], rates[::-1]), kind, sizes=[1, 6, 16])
    np.testing.assert_allclose(fit.curve.ps, back.curve.ps, rtol=2e-3)
    tiny = measured(units, [r * 1e-9 for r in rates])
    small = fit_scalability(tiny, kind, sizes=[1, 6, 16])
    np.testing.assert_allclose(small.curve.ps * 1e9, fit.curve.ps, rtol=1e-9)


@pytest.mark.parametrize(
    ("units", "rates", "warning"),
    [
        ([1, 2, 4], [10, 19, 15], "not monotone: 4 units give 15 samples/s, 2 give 19"),
        (
            [1, 1, 2],
            [10, 12, 20],
            "noisy: repetitions at 1 units spread over 18% of their median",
        ),
        ([1, 2], [10, 22], "superlinear: a unit of 2 gives 10% more than one of 1"),
        ([4], [10], "one size only (4): nothing is known of scaling"),
        ([1, 1, 2], [10, 10.5, 19], None),
    ],
)
def test_doubtful_measurements_are_reported(
    units: list[float], rates: list[float], warning: str | None
) -> None:
    assert fit_scalability(measured(units, rates)).warnings == (
        () if warning is None else (warning,)
    )


@pytest.mark.parametrize(("kind", "needed"), [("amdahl", 2), ("usl", 3)])
@given(st.lists(st.floats(1, 1e4), min_size=3, max_size=3))
def test_fits_with_fewer_sizes_than_parameters_fall_back_to_piecewise(
    kind: Kind, needed: int, gains: list[float]
) -> None:
    rates = np.cumsum(sorted(gains, reverse=True)).tolist()
    units = [1.0, 2.0, 4.0]
    for count in range(1, needed):
        runs = measured(units[:count] * 2, rates[:count] * 2)
        fit = fit_scalability(runs, kind, sizes=[1, 64])
        assert fit.kind == "piecewise"
        assert fit.parameters == {}
        assert fit.curve.ps[-1] == rates[count - 1], "no more than was measured"
        assert (
            f"{kind} takes {needed} sizes to be determined, and {count}"
            in fit.warnings[0]
        )
    just = fit_scalability(measured(units[:needed], rates[:needed]), kind)
    assert just.kind == kind
    assert f"{kind} goes through any {needed} sizes" in just.warnings[0]


def test_the_peak_is_the_largest_of_the_best_sizes() -> None:
    assert fit_scalability(measured([1, 2, 4], [10, 19, 15])).peak == 2
    assert fit_scalability(measured([1, 2, 4], [10, 19, 19])).peak == 4
    assert fit_scalability(measured([1, 2], [10, 19]), sizes=[1, 64]).peak == 64, (
        "constant is not falling"
    )


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("model,units,throughput\nb,1,10\na,4,30\nb,2,20\n", "", [("b", [1, 2], [10, 20]), ("a", [4], [30])]),
        ("job,units,step_time,batch_size\nx,1,0.5,64\n", "", [("x", [1], [128])]),
        ("units,throughput\n1,10\n", "", [("runs", [1], [10])]),
        ("units,throughput\n1,10\n", "net", [("net", [1], [10])]),
    ],
)  # fmt: skip
def test_tables_in_several_forms(
    text: str, name: str, told: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    (tmp_path / "runs.csv").write_text(text)
    found = read_throughputs(tmp_path / "runs.csv", **{"name": name} if name else {})
    read = [(each.model, each.units.tolist(), each.throughput.tolist()) for each in found]  # fmt: skip
    assert read == told


# --- learning while running -------------------------------------------------------------------------------------------

concave = st.tuples(st.floats(1, 1e4), st.floats(0, 0.5))


def law(p1: float, sigma: float, n: float) -> float:
    return p1 * n / (1 + sigma * (n - 1))


@given(concave, st.lists(st.integers(1, 64), min_size=1, max_size=20))
def test_an_optimistic_curve_never_underestimates_unseen_sizes(
    truth: tuple[float, float], sizes: list[int]
) -> None:
    online = OnlineCurve()
    for size in sizes:
        online.observe(size, law(*truth, size), 60.0)
    estimate = online.estimate(128)
    for size in sizes:
        assert estimate.at(size) == pytest.approx(law(*truth, size))
    for size in range(max(online.sizes), 129):
        assert estimate.at(size) >= law(*truth, size) * (1 - 1e-12)


@given(concave, st.integers(1, 64))
def test_following_the_hope_finds_the_truth(
    truth: tuple[float, float], most: int
) -> None:
    """A scheduler that always tries the most promising size knows, in the end, the rate of the size it stays at."""
    online = OnlineCurve()
    online.observe(1, law(*truth, 1), 1.0)
    for _ in range(64):
        tried = int(np.argmax(online.estimate(most).table(most)))
        online.observe(tried, law(*truth, tried), 1.0)
    assert online.estimate(most).at(tried) == pytest.approx(law(*truth, tried))
    assert law(*truth, tried) == pytest.approx(
        max(law(*truth, n) for n in range(1, most + 1))
    )


def test_longer_observations_count_more() -> None:
    online = OnlineCurve()
    online.observe(2, 10, 30)
    online.observe(2, 20, 10)
    online.observe(2, 1e9, 0)
    assert online.rate(2) == 12.5
    assert online.sizes == [2]
