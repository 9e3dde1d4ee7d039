"""Memory by batch size, which jobs fit beside each other, and smaller batches for the second job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Curve, InputError, Job
from bft.models.sharing.xi_table import (
    UnitMemory,
    fit_beside,
    read_unit_memory,
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
    assert low is not None
    assert high is not None
    assert 0 <= low <= high * (1 + 1e-12)


def test_with_one_batch_size_the_memory_bound_is_the_worst_case() -> None:
    table = UnitMemory([("m", 32.0, 4.0)])
    assert [table.bound_gib("m", batch) for batch in (8, 32, 64)] == [4.0, 4.0, 8.0]
    assert table.bound_gib("other", 32) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model,batch\na,1\n", "missing column memory_gib"),
        ("model,batch,memory_gib\na,1,0\n", "row 1, column memory_gib"),
        ("model,batch,memory_gib\na,,3\n", "row 1, column batch"),
        ("model,batch,memory_gib\n", "has no rows"),
    ],
)
def test_an_invalid_memory_table_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "memory.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        read_unit_memory(tmp_path / "memory.csv")


def test_a_newcomer_that_fits_keeps_its_batch() -> None:
    assert fit_beside(job(), job(batch=32), 20.0, memory=AFFINE) == 1  # 14.8 + 5.2
    assert fit_beside(job(batch=None), job(batch=None), None) == 1, (
        "nobody looks at memory"
    )


def test_a_newcomer_is_halved_until_it_fits() -> None:
    beside = job(batch=32)  # 5.2, as the newcomer at 32; 3.6 at 16
    assert fit_beside(job(), beside, 11.0, memory=AFFINE, threshold=0.25) == 4
    assert fit_beside(job(), beside, 11.0, memory=AFFINE) is None, "0.25 < 0.5"
    assert fit_beside(job(), beside, 7.0, memory=AFFINE, threshold=0.01) is None, (
        "fixed memory"
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


def test_what_a_job_states_counts_and_the_table_tells_what_halving_saves() -> None:
    # 16 - 6.4 at half the batch.
    for gib, parts in ((13.6, 2), (13.5, None)):
        assert fit_beside(job(gib=16.0), job(gib=4.0), gib, memory=AFFINE) == parts


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
    cuts = [2**k for k in range(8) if (batch / 2**k).is_integer()]
    good = [
        k
        for k in cuts
        if 1 / k >= threshold and (2 + 0.1 * batch / k) + 5.2 <= unit_gib
    ]
    assert found == min(good, default=None)


@pytest.mark.reference
def test_published_memory_is_nearly_affine_and_adds_up(reference: Path) -> None:
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
