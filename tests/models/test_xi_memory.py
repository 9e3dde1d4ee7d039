"""Memory by batch size, which jobs fit beside each other, and smaller batches for the second job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models import Curve, Job
from bft.models.sharing.unit_memory import (
    UnitMemory,
    fit_beside,
    unit_memory_from_frame,
)

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


POINTS = st.lists(
    st.tuples(st.integers(1, 512), st.floats(0.1, 80)), min_size=1, max_size=8
)


@given(POINTS, st.integers(1, 2048), st.integers(1, 2048))
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
    refused("batch size > 0", table.bound_gib, "m", 0, error=ValueError)


def test_a_newcomer_that_fits_keeps_its_batch() -> None:
    found = fit_beside(job(), job(batch=32), 20.0, memory=AFFINE)  # 14.8 + 5.2
    assert (found.batch, found.accumulation, found.goodput_share) == (128, 1, 1.0)
    assert fit_beside(job(batch=None), job(batch=None), None) is not None, (
        "nobody looks at memory"
    )


def test_a_newcomer_is_halved_until_it_fits_with_the_same_effective_batch() -> None:
    def rate(batch: float) -> float:  # a step takes 1 + 0.1 b
        return batch / (1 + 0.1 * batch)

    found = fit_beside(
        job(), job(batch=32), 11.0, memory=AFFINE, rate=rate
    )  # 3.6 at 16, 5.2 at 32, + 5.2
    assert (found.batch, found.accumulation) == (32, 4)
    assert found.batch * found.accumulation == 128
    assert found.memory_gib == pytest.approx(5.2)
    assert found.goodput_share == pytest.approx(rate(32) / rate(128))
    assert (
        fit_beside(job(), job(batch=32), 11.0, memory=AFFINE, rate=rate, threshold=0.9)
        is None
    )
    assert (
        fit_beside(job(), job(batch=32), 7.0, memory=AFFINE, rate=rate, threshold=0.01)
        is None
    ), "fixed memory"
    assert fit_beside(job(), job(batch=32), 11.0, memory=AFFINE) is None, (
        "a rate not known halves: 0.25 < 0.5"
    )


def test_odd_batches_are_not_halved_and_unknown_memory_never_fits() -> None:
    assert (
        fit_beside(job(batch=33), job(batch=32), 10.0, memory=AFFINE, threshold=0.01)
        is None
    )
    assert fit_beside(job("new"), job(batch=32), 90.0, memory=AFFINE) is None
    assert fit_beside(job(), job("new"), 90.0, memory=AFFINE) is None
    assert fit_beside(job(gib=5), job(gib=5), 10.0) is not None, (
        "stated memory needs no table"
    )
    assert fit_beside(job(gib=5), job(gib=5), 9.0) is None
    refused("threshold", fit_beside, job(), job(), 9.0, threshold=0, error=ValueError)
    refused(
        "rate",
        fit_beside,
        job(),
        job(),
        9.0,
        memory=AFFINE,
        rate=lambda _: 0.0,
        error=ValueError,
    )


def test_what_a_job_states_counts_and_the_table_tells_what_halving_saves() -> None:
    found = fit_beside(job(gib=16.0), job(gib=4.0), 14.0, memory=AFFINE)
    assert (found.batch, found.memory_gib) == (64, pytest.approx(16.0 - 6.4))


@given(
    st.sampled_from([2.0, 12.0, 48.0, 64.0, 96.0, 128.0]),
    st.floats(1, 40),
    st.floats(0.05, 1),
    st.floats(0, 5),
)
def test_what_is_found_fits_is_large_and_keeps_its_goodput(
    batch: float, unit_gib: float, threshold: float, start_up: float
) -> None:
    def rate(b: float) -> float:
        return b / (start_up + b)

    newcomer, running = job(batch=batch), job(batch=32)
    found = fit_beside(
        newcomer, running, unit_gib, memory=AFFINE, rate=rate, threshold=threshold
    )
    sizes = [batch / 2**k for k in range(8) if (batch / 2**k).is_integer()]
    good = [
        b
        for b in sizes
        if rate(b) / rate(batch) >= threshold and (2 + 0.1 * b) + 5.2 <= unit_gib
    ]
    assert (found.batch if found else None) == pytest.approx(max(good, default=None))
    if found:
        own = replace(newcomer, memory_gib=AFFINE.bound_gib("m", batch))
        assert (
            fit_beside(
                own, running, unit_gib, memory=AFFINE, rate=rate, threshold=threshold
            )
            is not None
        )


@pytest.mark.reference
def test_published_memory_is_nearly_affine_and_adds_up(reference: Path) -> None:
    solo = pd.read_csv(reference / "lucid" / "single_data.csv")
    solo["model"] = solo["model"] + solo["amp"].map({0: "", 1: "+amp"})
    frame = solo.assign(batch=solo["batchsize"], memory_gib=solo["gmem"] / 1024)[
        ["model", "batch", "memory_gib"]
    ]
    table = unit_memory_from_frame(frame)
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
