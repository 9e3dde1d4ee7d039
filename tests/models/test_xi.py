"""ξ: from solo and co-run measurements, estimated for pairs that were not measured, and memory beside each other."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Curve, Job, XiEstimator
from bft.models.measure.xi_measurements import (
    mean_step_s,
    merged,
    read_measurements,
    xi_to_frame,
)
from bft.models.sharing.xi_table import (
    FLAGS,
    Measurement,
    UnitMemory,
    XiTable,
    fit_beside,
    xi_from_frame,
)

BATCHES = (16.0, 32.0, 64.0, 128.0)


def pair(
    xi_a: float,
    xi_b: float = 1.1,
    *,
    a: float = 32,
    b: float = 32,
    units: float | None = None,
) -> Measurement:
    return Measurement("a", "b", xi_a, xi_b, a, b, units)


def grid(law: float = 0.1) -> list[Measurement]:
    """Both batch sizes varied; the partner's raises ξ by `law` a doubling, one's own lowers it by half that."""
    return [
        pair(1.3 + law * math.log2(b / 16) - law / 2 * math.log2(a / 16), 1.1, a=a, b=b)
        for a, b in itertools.product(BATCHES, BATCHES)
    ]


def estimated(rows: list[Measurement], flag: str, *kind) -> float:
    found = XiEstimator(rows).estimate(*kind)
    assert found.flag == flag
    return found.xi_a


def test_trap_1_outside_the_measured_range() -> None:
    rows = [pair(1.6, a=a) for a in (16.0, 32.0)] + [pair(1.3, a=64.0)]
    # A line beyond the range says that sharing speeds up.
    assert 1.2 <= estimated(rows, "clamped", "a", "b", 256, 32) <= 1.6
    # A trend is believed for one doubling.
    far = [estimated(grid(), "clamped", "a", "b", 16, 2.0**k) for k in (20, 30)]
    assert far[0] == far[1]


def test_trap_2_several_coordinates_without_data_at_once() -> None:
    rows = [row for row in grid() if row.batch_a != 64 and row.batch_b != 64]
    assert estimated(rows, "interpolated", "a", "b", 64, 64) == pytest.approx(
        1.4, abs=0.06
    )
    with_units = [pair(1.2, a=16, b=16, units=1), pair(1.5, a=64, b=64, units=4)]
    assert 1.2 <= estimated(with_units, "clamped", "a", "b", 32, 32, 2) <= 1.5


def test_trap_3_extrapolation_with_slope_0_on_noisy_data() -> None:
    # ξ rises by 0.1 a doubling; the last measurement came out as low as the one before.
    truth = {8.0 * 2**k: 1.1 + 0.1 * k for k in range(6)}
    measured = {**truth, 128.0: truth[64.0] - 0.1}
    rows = [pair(measured[b], b=b) for b in list(truth)[:-1]]
    naive = measured[128.0]  # np.interp goes on with slope 0, at a value that is noise
    found = estimated(rows, "clamped", "a", "b", 32, 256)
    assert abs(found - truth[256.0]) < 0.75 * abs(naive - truth[256.0])
    assert found > naive + 0.05


@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("batch", [65, 128, 1024])
def test_trap_4_partner_batch_beyond_the_measured_maximum(
    noise: float, batch: float
) -> None:
    """A larger batch of the partner does not disturb less."""
    last = 1.5 - noise
    rows = [pair(xi, b=b) for b, xi in ((16.0, 1.2), (32.0, 1.35), (64.0, last))]
    assert estimated(rows, "clamped", "a", "b", 32, batch) >= max(1.0, last)


@pytest.mark.parametrize(
    ("units", "low", "high"), [(3, 1.2, 1.4), (5, 1.4, 1.8), (6, 1.4, 1.8), (7, 1.4, 1.8)]
)  # fmt: skip
def test_trap_5_odd_unit_counts(units: int, low: float, high: float) -> None:
    rows = [pair(xi, units=n) for n, xi in ((1, 1.1), (2, 1.2), (4, 1.4), (8, 1.8))]
    assert low <= estimated(rows, "interpolated", "a", "b", 32, 32, units) <= high


def test_trap_6_the_same_model_twice_with_batches_swapped() -> None:
    rows = [
        Measurement("a", "a", 1.2, 1.5, 16, 64),
        Measurement("a", "a", 1.3, 1.25, 64, 16),
        Measurement("a", "a", 1.4, 1.3, 32, 32),
    ]
    estimator = XiEstimator(rows)
    for one, other in itertools.product((8, 16, 24, 32, 64, 256, None), repeat=2):
        found, swapped = (estimator.estimate("a", "a", *each) for each in ((one, other), (other, one)))  # fmt: skip
        assert (found.xi_a, found.xi_b, found.flag) == (swapped.xi_b, swapped.xi_a, swapped.flag)  # fmt: skip
    alike = estimator.estimate("a", "a", 32, 32)
    assert alike.xi_a == alike.xi_b == pytest.approx(1.35)


def test_trap_7_an_axis_with_one_measured_value_only() -> None:
    others = [Measurement("c", "b", 1.2 + 0.1 * k, 1.1, 2.0 ** (4 + k), 32) for k in range(4)]  # fmt: skip
    # By its own point, with the slope that other models have; alone, nothing tells a slope.
    rows = [pair(1.3, a=32), *others]
    assert 1.3 < estimated(rows, "clamped", "a", "b", 64, 32) < 1.5
    alone = XiEstimator(rows[:1]).estimate("a", "b", 64, 32, 3)
    assert alone.xi_a == pytest.approx(1.3, abs=0.03)


def test_measured_answers_are_the_medians_of_repetitions() -> None:
    again = Measurement("b", "a", 1.1, 1.3, 32, 32)
    rows = [pair(1.2), pair(1.9), again, pair(0.8, a=64)]
    # Without a batch it is the largest that fits.
    for kind in (("a", "b", 32, 32), ("a", "b")):
        assert estimated(rows, "measured", *kind) == pytest.approx(1.3)
    assert XiEstimator(rows).estimate("a", "b", 64, 32).xi_a == 1.0


def test_models_that_never_met_are_guessed_and_unknown_ones_are_not() -> None:
    rows = [*grid(), Measurement("c", "b", 1.9, 1.1, 32, 32), Measurement("d", "c", 1.0, 1.0, 32, 32)]  # fmt: skip
    estimated(rows, "guessed", "a", "d", 32, 32)
    estimated(rows, "guessed", "a", "new", 32, 8)
    assert XiEstimator(rows).estimate("new", "newer") is None


MODELS = st.sampled_from(["a", "b", "c"])
MAYBE = st.none() | st.sampled_from([1.0, 3.0, 16.0, 32.0, 64.0, 1e6])
ROWS = st.lists(
    st.builds(
        Measurement,
        MODELS,
        MODELS,
        st.floats(0.5, 9.0),
        st.floats(0.5, 9.0),
        MAYBE,
        MAYBE,
        MAYBE,
    ),
    min_size=1,
    max_size=12,
)


@given(ROWS, MODELS, MODELS, MAYBE, MAYBE, MAYBE, st.randoms(use_true_random=False))
def test_answers_are_symmetric_at_least_1_bounded_flagged_and_of_no_order(
    rows: list[Measurement],
    model_a: str,
    model_b: str,
    batch_a: float | None,
    batch_b: float | None,
    units: float | None,
    random: object,
) -> None:
    estimator = XiEstimator(rows)
    found = estimator.estimate(model_a, model_b, batch_a, batch_b, units)
    known = {name for row in rows for name in (row.model_a, row.model_b)}
    assert (found is None) == (not known & {model_a, model_b})
    if found is None:
        return
    swapped = estimator.estimate(model_b, model_a, batch_b, batch_a, units)
    assert (swapped.xi_b, swapped.xi_a, swapped.flag) == (
        found.xi_a,
        found.xi_b,
        found.flag,
    )
    most = max(1.0, *(max(row.xi_a, row.xi_b) for row in rows))
    assert min(found.xi_a, found.xi_b) >= 1.0
    assert max(found.xi_a, found.xi_b) <= most * (1 + 1e-9)
    assert found.flag in FLAGS
    other = rows.copy()
    random.shuffle(other)
    turned = [row.swapped() if random.random() < 0.5 else row for row in other]
    assert (
        XiEstimator(turned).estimate(model_a, model_b, batch_a, batch_b, units) == found
    )


@given(ROWS)
def test_merged_rows_are_canonical_and_idempotent(rows: list[Measurement]) -> None:
    once = merged(rows)
    assert merged(once) == once
    assert merged([row.swapped() for row in reversed(rows)]) == once
    assert all(min(row.xi_a, row.xi_b) >= 1 for row in once)


def test_an_estimated_table_keeps_measurements_and_flags_estimates() -> None:
    measured = merged([*grid(), Measurement("c", "c", 1.5, 1.6, 32, 32)])
    estimator = XiEstimator(measured)
    kinds = [("a", 48.0), ("a", 32.0), ("b", 32.0), ("c", None)]
    filled = estimator.fill(kinds)
    table = xi_from_frame(xi_to_frame([*measured, *filled]))
    assert len(table.measurements) == len(measured) + len(filled)
    assert sum(table.estimated.values()) == len(filled)
    assert table.estimated.keys() == {"interpolated", "guessed"}
    assert {row.flag for row in estimator.fill(kinds, guess=False)} == {"interpolated"}
    assert XiTable(measured).estimated == {}
    assert [(row.model_a, row.model_b) for row in filled].count(("a", "b")) == 1, (
        "32 beside 32 was measured"
    )


@pytest.mark.slow
@pytest.mark.reference
def test_better_than_both_baselines_on_the_published_pairs(reference) -> None:
    frame = pd.read_csv(reference / "lucid" / "xi_pairs_from_colocate_info.csv")
    amp = {0: "", 1: "+amp"}
    rows = [
        Measurement(
            r.model1 + amp[r.amp1],
            r.model2 + amp[r.amp2],
            r.xi1,
            r.xi2,
            r.batchsize1,
            r.batchsize2,
        )
        for r in frame.itertuples()
    ]
    assert len(rows) == 1388
    configurations = sorted(
        {
            kind
            for row in rows
            for kind in ((row.model_a, row.batch_a), (row.model_b, row.batch_b))
        }
    )
    assert len(configurations) == 56
    whole = [
        [
            at
            for at, row in enumerate(rows)
            if kind in ((row.model_a, row.batch_a), (row.model_b, row.batch_b))
        ]
        for kind in configurations
    ]
    for folds in ([[at] for at in range(0, len(rows), 40)], whole):
        errors: list[tuple[float, float, float]] = []
        for fold in folds:
            rest = [row for at, row in enumerate(rows) if at not in {*fold}]
            sides = [side for row in rest for side in (row, row.swapped())]
            told = [(side.model_a, max(side.xi_a, 1.0)) for side in sides]
            means = pd.DataFrame(told).groupby(0)[1].mean()
            estimator = XiEstimator(rest)
            for side in (
                side for at in fold for side in (rows[at], rows[at].swapped())
            ):
                found = estimator.estimate(
                    side.model_a, side.model_b, side.batch_a, side.batch_b
                )
                truth = max(side.xi_a, 1.0)
                errors.append(
                    (found.xi_a - truth, 1.0 - truth, means[side.model_a] - truth)
                )
        all_of = np.abs(errors)
        for measure in (
            all_of.mean(axis=0),
            np.sqrt((all_of**2).mean(axis=0)),
            np.median(all_of, axis=0),
        ):
            assert measure[0] < 0.7 * measure[1:].min()


HEADER = "model_a,batch_a,model_b,batch_b,units,step_a_s,step_b_s\n"
SOLO = "bert,32,,,1,0.5,\nvgg,64,,,1,0.2,\n"
BERT, VGG = ("bert", 32), ("vgg", 64)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        # Time beside another over time alone, and not less than 1.
        ([HEADER + SOLO + "vgg,64,bert,32,1,0.3,0.6\n"], [(*BERT, *VGG, 1, 1.2, 1.5)]),
        ([HEADER + SOLO + "bert,32,vgg,64,1,0.45,0.19\n"], [(*BERT, *VGG, 1, 1.0, 1.0)]),
        # Repetitions count by their median, of solo runs and of two.
        ([HEADER + SOLO + "bert,32,,,1,0.7,\nbert,32,,,1,0.1,\n",
          HEADER + "".join(f"bert,32,vgg,64,1,{both},0.2\n" for both in (0.6, 5.0, 0.55))],
         [(*BERT, *VGG, 1, 1.2, 1.0)]),
        # A solo run of the same units before one that states none; of one configuration twice both are repetitions.
        ([HEADER + "bert,32,,,,0.9,\nbert,,,,,0.8,\nbert,32,,,2,0.5,\nbert,32,bert,32,2,0.6,0.75\n"
          "bert,32,bert,32,4,0.9,0.9\nbert,8,bert,8,4,0.8,1.6\n"],
         [(*BERT, *BERT, 2, 1.35, 1.35), (*BERT, *BERT, 4, 1.0, 1.0), ("bert", 8, "bert", 8, 4, 1.5, 1.5)]),
        # Ratios beside times; estimates are left out.
        (["model_a,model_b,xi_a,xi_b,flag\na,b,1.5,1.2,\na,c,3,3,guessed\n",
          HEADER + SOLO + "vgg,64,bert,32,1,0.3,0.6\n"],
         [("a", None, "b", None, None, 1.5, 1.2), (*BERT, *VGG, 1, 1.2, 1.5)]),
    ],
)  # fmt: skip
def test_what_comes_of_measurements(texts: list[str], expected, tmp_path) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    columns = ("model_a", "batch_a", "model_b", "batch_b", "units", "xi_a", "xi_b")
    rows = [[getattr(row, name) for name in columns] for row in merged(read_measurements(paths))]  # fmt: skip
    for row, told in zip(sorted(rows, key=str), sorted(expected, key=str), strict=True):
        assert row == [pytest.approx(each) for each in told]


def test_the_mean_sees_turns_that_a_median_hides_and_leaves_stalls_out() -> None:
    turns = [1.0, 1.0, 1.0, 5.0] * 20
    assert mean_step_s(turns) == pytest.approx(2.0)
    assert mean_step_s([*turns, 900.0]) == pytest.approx(2.0)


AFFINE = UnitMemory(("m", b, 2 + 0.1 * b) for b in (32.0, 64.0, 128.0))
LINE = Curve(np.array([0.0, 1.0]), np.array([0.0, 10.0]))


def job(model: str = "m", batch: float | None = 128, gib: float | None = None) -> Job:
    return Job(
        "j",
        0,
        1,
        1,
        1e5,
        0,
        0,
        LINE,
        LINE,
        model=model,
        batch_size=batch,
        memory_gib=gib,
    )


@pytest.mark.parametrize("batch", [1, 16, 32, 48, 100, 128, 512])
def test_affine_memory_is_met_exactly_everywhere(batch: float) -> None:
    assert AFFINE.bound_gib("m", batch) == pytest.approx(2 + 0.1 * batch)
    assert AFFINE.curves["m"].affine == (pytest.approx(2.0), pytest.approx(0.1))


@given(
    st.lists(
        st.tuples(st.integers(1, 512), st.floats(0.1, 80)), min_size=1, max_size=8
    ),
    st.integers(1, 2048),
    st.integers(1, 2048),
)
def test_the_bound_is_never_below_a_measurement_and_never_falls(
    points: list[tuple[int, float]], one: int, other: int
) -> None:
    table = UnitMemory(("m", float(batch), gib) for batch, gib in points)
    for batch, gib in points:
        assert (table.bound_gib("m", batch) or 0.0) >= gib
    low, high = (table.bound_gib("m", batch) for batch in sorted((one, other)))
    assert 0 <= low <= high * (1 + 1e-12)


def test_with_one_batch_size_the_memory_bound_is_the_worst_case() -> None:
    table = UnitMemory([("m", 32.0, 4.0)])
    assert [table.bound_gib("m", batch) for batch in (8, 32, 64)] == [4.0, 4.0, 8.0]
    assert table.bound_gib("other", 32) is None


@pytest.mark.parametrize(
    ("newcomer", "running", "unit_gib", "threshold", "parts"),
    [
        (job(), job(batch=32), 20.0, None, 1),  # 14.8 + 5.2
        (job(), job(batch=32), 11.0, 0.25, 4),  # 5.2, as the newcomer at 32; 3.6 at 16
        (job(), job(batch=32), 11.0, None, None),  # 0.25 < 0.5
        (job(), job(batch=32), 7.0, 0.01, None),  # memory that is fixed
        (job(batch=33), job(batch=32), 10.0, 0.01, None),  # an odd batch is not halved
        (job("new"), job(batch=32), 90.0, None, None),
        (job(), job("new"), 90.0, None, None),
        # What a job states counts, and the table tells what halving saves: 16 - 6.4.
        (job(gib=16.0), job(gib=4.0), 13.6, None, 2),
        (job(gib=16.0), job(gib=4.0), 13.5, None, None),
    ],
)  # fmt: skip
def test_a_newcomer_is_halved_until_it_fits(
    newcomer: Job, running: Job, unit_gib: float, threshold: float | None, parts: int | None
) -> None:  # fmt: skip
    more = {} if threshold is None else {"threshold": threshold}
    assert fit_beside(newcomer, running, unit_gib, memory=AFFINE, **more) == parts


def test_without_a_table_what_jobs_state_is_all() -> None:
    assert fit_beside(job(batch=None), job(batch=None), None) == 1
    assert fit_beside(job(gib=5), job(gib=5), 10.0) == 1
    assert fit_beside(job(gib=5), job(gib=5), 9.0) is None


@given(
    st.sampled_from([2.0, 12.0, 48.0, 64.0, 96.0, 128.0]),
    st.floats(1, 40),
    st.floats(0.05, 1),
)
def test_what_is_found_fits_is_large_and_keeps_its_goodput(
    batch: float, unit_gib: float, threshold: float
) -> None:
    newcomer, running = job(batch=batch), job(batch=32)
    found = fit_beside(newcomer, running, unit_gib, memory=AFFINE, threshold=threshold)
    good = [
        parts
        for parts in (1, 2, 4, 8, 16, 32, 64, 128)
        if (batch / parts).is_integer() and 1 / parts >= threshold
        if 2 + 0.1 * batch / parts + 5.2 <= unit_gib
    ]
    assert found == min(good, default=None)


@pytest.mark.reference
def test_published_memory_is_nearly_affine_and_adds_up(reference) -> None:
    solo = pd.read_csv(reference / "lucid" / "single_data.csv")
    solo["model"] = solo["model"] + solo["amp"].map({0: "", 1: "+amp"})
    frame = solo.assign(batch=solo["batchsize"], memory_gib=solo["gmem"] / 1024)[
        ["model", "batch", "memory_gib"]
    ]
    table = UnitMemory(frame.itertuples(index=False, name=None))
    errors = []
    for row in frame.itertuples():
        fixed, slope = table.curves[row.model].affine
        errors.append(abs(fixed + slope * row.batch - row.memory_gib))
        assert (table.bound_gib(row.model, row.batch) or 0.0) >= row.memory_gib
    assert np.mean(errors) < 0.1
    pairs = pd.read_csv(reference / "lucid" / "colocate_info.csv")
    amp = {0: "", 1: "+amp"}
    ratios = [
        row.gmem
        / 1024
        / sum(table.bound_gib(m + amp[a], b) or np.nan for m, a, b in sides)
        for row in pairs.itertuples()
        for sides in [
            (
                (row.model1, row.amp1, row.batchsize1),
                (row.model2, row.amp2, row.batchsize2),
            )
        ]
    ]
    assert np.median(ratios) == pytest.approx(1.0, abs=0.02)
    assert np.mean(np.array(ratios) > 1.2) < 0.03
