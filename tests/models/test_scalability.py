"""Scalability fits: laws are recovered from their points, extrapolations marked, invalid tables reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models.curves import OnlineCurve
from bft.models.speed.scalability import (
    KINDS,
    Kind,
    Throughputs,
    fit_scalability,
    read_throughputs,
)
from bft.models.speed.throughput import ThroughputParameters

SIZES = np.array([1.0, 2, 4, 8, 16])


def measured(
    units: list[float], throughput: list[float], batch: float | None = None
) -> Throughputs:
    n = np.array(units, dtype=np.float64)
    return Throughputs(
        "m",
        n,
        np.array(throughput, dtype=np.float64),
        None if batch is None else batch * n,
    )


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


@pytest.mark.parametrize("kind", KINDS)
def test_points_outside_the_measured_range_are_marked(kind: Kind) -> None:
    fit = fit_scalability(
        measured([2, 4, 8], [20, 35, 60], batch=32), kind, sizes=[1, 2, 4, 8, 9, 64]
    )
    assert fit.kind == kind
    assert fit.extrapolated.tolist() == [False, True, False, False, False, True, True]
    assert fit.beyond == [1, 9, 64]
    assert (fit.curve.ps[1:] > 0).all()


def test_beyond_its_last_size_a_piecewise_curve_does_not_grow() -> None:
    fit = fit_scalability(measured([2, 8], [20, 60]), sizes=[1, 8, 100])
    assert fit.curve.ps.tolist() == [0, 10, 60, 60]


def test_the_throughput_model_predicts_sizes_it_has_not_seen() -> None:
    truth = ThroughputParameters(0.05, 0.002, 0.08, 0.003, 0.02, 0.001, 1.5)
    n, m = np.repeat([1.0, 2, 4, 8, 16], 3), np.tile([32.0, 64, 128], 5)
    nodes = np.ceil(n / 4)
    step_s = truth.step_time(nodes, n, m)
    sync_s = step_s - truth.gradient_time(m)
    runs = Throughputs("m", n, n * m / step_s, n * m, None, sync_s)
    fit = fit_scalability(
        runs, "throughput", sizes=[3, 32], units_per_node=4, batch=1024
    )
    expected = truth.throughput([1, 8], [3, 32], [1024 / 3, 32])
    np.testing.assert_allclose(fit.curve.ps[1:], expected, rtol=0.03)
    assert np.median(fit.errors) < 0.01


def test_a_batch_size_that_never_changed_is_kept() -> None:
    n = np.array([1.0, 2, 4])
    runs = Throughputs("m", n, np.array([10.0, 18, 30]), np.full(3, 64.0))
    kept = fit_scalability(runs, "throughput", sizes=[8])
    assert (
        kept.curve.ps[1]
        == fit_scalability(runs, "throughput", sizes=[8], batch=64).curve.ps[1]
    )
    assert (
        kept.curve.ps[1]
        != fit_scalability(runs, "throughput", sizes=[8], batch=128).curve.ps[1]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_scale_of_measurements_do_not_matter(kind: Kind) -> None:
    units, rates = [1.0, 2, 2, 4, 8], [10.0, 19, 21, 36, 60]
    fit = fit_scalability(measured(units, rates, batch=64), kind, sizes=[1, 6, 16])
    back = fit_scalability(
        measured(units[::-1], rates[::-1], batch=64), kind, sizes=[1, 6, 16]
    )
    np.testing.assert_allclose(fit.curve.ps, back.curve.ps, rtol=2e-3)
    if kind != "throughput":
        tiny = fit_scalability(
            measured(units, [r * 1e-9 for r in rates], batch=64), kind, sizes=[1, 6, 16]
        )
        np.testing.assert_allclose(tiny.curve.ps * 1e9, fit.curve.ps, rtol=1e-9)


def test_a_model_that_needs_batch_sizes_says_so() -> None:
    refused(
        "column batch_size: m: the throughput model needs samples a step",
        fit_scalability,
        measured([1, 2], [1, 2]),
        "throughput",
    )


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


def test_unmeasured_placements_of_the_throughput_model_are_reported() -> None:
    assert (
        "synchronisation was seen at 2 units only"
        in fit_scalability(
            measured([2, 2], [20, 21], batch=32), "throughput", sizes=[2, 64]
        ).warnings[0]
    )


def test_the_peak_is_the_largest_of_the_best_sizes() -> None:
    assert fit_scalability(measured([1, 2, 4], [10, 19, 15])).peak == 2
    assert fit_scalability(measured([1, 2, 4], [10, 19, 19])).peak == 4
    assert fit_scalability(measured([1, 2], [10, 19]), sizes=[1, 64]).peak == 64, (
        "constant is not falling"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"units": [1.0, 1.5]},
            "row 2, column units: m: expected whole numbers >= 1, not 1.5",
        ),
        (
            {"throughput": [0.0, 1.0]},
            "row 1, column throughput: m: expected numbers > 0, not 0.0",
        ),
        (
            {"throughput": [1.0, np.nan]},
            "row 2, column throughput: m: expected numbers > 0, not nan",
        ),
        (
            {"throughput": [1.0]},
            r"column throughput: m: expected as many values as units \(2\)",
        ),
        ({"batch": [-1.0, 1.0]}, "column batch: m: expected numbers > 0, not -1.0"),
        ({"sync_s": [-1.0, 1.0]}, "column sync_s: m: expected numbers >= 0, not -1.0"),
    ],
)
def test_measurements_check_themselves(
    change: dict[str, list[float]], message: str
) -> None:
    given = {"units": [1.0, 2.0], "throughput": [10.0, 19.0]} | change
    refused(
        message,
        Throughputs,
        "m",
        **{name: np.array(values) for name, values in given.items()},
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def write(folder: Path, text: str) -> Path:
    path = folder / "runs.csv"
    path.write_text(text)
    return path


def test_tables_in_several_forms(tmp_path: Path) -> None:
    a, b = read_throughputs(
        write(tmp_path, "model,units,throughput,nodes\nb,1,10,1\na,4,30,2\nb,2,20,2\n")
    )
    assert (a.model, a.units.tolist(), a.throughput.tolist()) == ("b", [1, 2], [10, 20])
    assert b.nodes.tolist() == [2]
    (timed,) = read_throughputs(
        write(tmp_path, "job,units,step_time,batch_size,sync_time\nx,1,0.5,64,0\n")
    )
    assert (timed.model, timed.throughput.tolist()) == ("x", [128])
    assert (
        read_throughputs(write(tmp_path, "units,throughput\n1,10\n"))[0].model == "runs"
    )
    assert read_throughputs(tmp_path / "runs.csv", name="net")[0].model == "net"


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
    for size in range(online.largest, 129):
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


def test_a_job_that_changes_pace_is_followed() -> None:
    forgetful, faithful = OnlineCurve(half_life_s=60), OnlineCurve()
    for online in (forgetful, faithful):
        for rate in [100] * 60 + [50] * 10:
            online.observe(1, rate, 60)
    assert forgetful.rate(1) == pytest.approx(50, rel=0.01)
    assert faithful.rate(1) > 90


@pytest.mark.parametrize(
    "bad",
    [(0, 1, 1), (1, -1, 1), (1, 1, -1), (1, float("nan"), 1), (1, 1, float("inf"))],
)
def test_bad_observations_are_refused(bad: tuple[int, float, float]) -> None:
    refused("expected units >= 1", OnlineCurve().observe, *bad, error=ValueError)
