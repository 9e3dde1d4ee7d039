"""Measured applications: measurements are returned, values between are interpolated, invalid folders reported."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models import noise_scale
from bft.models.speed.applications import canonical, read_application

APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")


def step(nodes: int, replicas: int, atomic: int) -> float:
    """Linear, so that interpolation must be exact."""
    return 0.1 * nodes + 0.02 * replicas + 0.001 * atomic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["placement,local_bsz,step_time,sync_time"]
    for ring in ("1", "2", "3", "4", "11", "12", "22", "33", "44", "111", "222", "444"):
        nodes, replicas = len(ring), sum(map(int, ring))
        lines += [
            f"{ring},{m},{step(nodes, replicas, m)},{0.05 * nodes}" for m in (8, 16, 32)
        ]
    (tmp_path / "placements.csv").write_text("\n".join(lines) + "\n")
    for batch, factor in ((32, 1), (128, 3)):
        rows = [
            f"{100 * k + batch / 64},{100 * k * 32 // batch},1,{k},{factor * k}"
            for k in (1, 2, 3)
        ]
        text = "progress,iteration,metric,grad_sqr,grad_var\n" + "\n".join(rows) + "\n"
        (tmp_path / f"validation-{batch}.csv.gz").write_bytes(
            gzip.compress(text.encode())
        )
    return tmp_path


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any), st.integers(0, 5)
)
def test_rotations_and_empty_nodes_are_one_placement(
    ring: list[int], turn: int
) -> None:
    turn %= len(ring)
    assert (
        canonical(ring[turn:] + ring[:turn]) == canonical(ring) == canonical([*ring, 0])
    )
    assert sum(canonical(ring)) == sum(ring)
    assert canonical(ring) <= tuple(count for count in ring if count)


@pytest.mark.parametrize("ring", [[], [0, 0], [-1]])
def test_no_placement_is_refused(ring: list[int]) -> None:
    refused("at least one replica", canonical, ring, error=ValueError)


def test_step_times_measured_between_and_beyond(folder: Path) -> None:
    application = read_application(folder)
    measured = application.step_time([0, 2, 1], 16)
    assert measured == (step(2, 3, 16), 0.1, "measured")
    assert measured.gradient_s == pytest.approx(step(2, 3, 16) - 0.1)
    assert application.step_time([2, 1], 24).step_s == pytest.approx(step(2, 3, 24))
    between = application.step_time([1, 3, 1], 20)  # 113 was not measured
    assert between.source == "interpolated"
    assert between.step_s == pytest.approx(step(3, 5, 20))
    for ring, atomic in (([1, 2], 64), ([4] * 9, 16)):
        beyond = application.step_time(ring, atomic)
        assert beyond.source == "modelled"
        assert 0 < beyond.sync_s < beyond.step_s


def test_too_few_placements_to_interpolate_are_modelled(folder: Path) -> None:
    (folder / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,8,1,0\n2,8,1.1,0.1\n"
    )
    assert read_application(folder).step_time([1, 1], 8).source == "modelled"


def test_progress_and_noise(folder: Path) -> None:
    application = read_application(folder)
    assert application.limits.initial == 32
    assert application.epoch_ends.tolist() == [100.5, 200.5, 300.5]
    assert application.total_progress == 300.5
    assert [application.epoch_at(p) for p in (0, 100.4, 100.5, 300.5, 1e9)] == [
        0,
        0,
        1,
        3,
        3,
    ]
    assert application.gradient(150, 32) == (2, 2)
    assert application.gradient(150, 80) == (2, 4)  # half way between the batch sizes
    assert application.gradient(1e9, 1e9) == (3, 9)
    assert noise_scale(*application.gradient(150, 80), application.limits.initial) == 64
    assert application.samples(32) == 300 * 32
    assert application.samples(128) == 75 * 128


def test_a_curve_at_a_fixed_batch(folder: Path) -> None:
    application = read_application(folder)
    curve = application.curve(batch=64, max_units=100, units_per_node=4)
    assert curve.last == 8  # 64 / 8 samples at least
    assert curve.at(2) == pytest.approx(64 / step(1, 2, 32))
    assert curve.at(8) == pytest.approx(64 / step(2, 8, 8))
    # Two passes of 32 on one unit.
    assert curve.at(1) == pytest.approx(64 / (2 * step(1, 1, 32) - 0.05))


def test_missing_files_are_reported(folder: Path) -> None:
    for path in folder.glob("validation-*"):
        path.unlink()
    refused(r"no validation-M\.csv", read_application, folder)
    (folder / "placements.csv").unlink()
    refused(r"no placements\.csv", read_application, folder)
    refused("expected a folder", read_application, folder / "nowhere")


@pytest.mark.reference
@pytest.mark.parametrize("name", APPLICATIONS)
def test_published_applications(reference: Path, name: str) -> None:
    folder = reference / "pollux" / "traces" / name
    application = read_application(folder)
    frame = pd.read_csv(folder / "placements.csv.gz", dtype={"placement": str})
    for row in frame.iloc[:: max(len(frame) // 100, 1)].itertuples():
        found = application.step_time(
            [int(digit) for digit in str(row.placement)], row.local_bsz
        )
        assert found == (row.step_time, row.sync_time, "measured")
    # Every placement of 4 nodes × 4 units is a rotation of one that was measured.
    for ring in itertools.product(range(5), repeat=4):
        if any(ring):
            assert canonical(ring) in application.steps
    # Whole nodes up to the size of the published cluster were measured or lie between measured ones.
    least = application.limits.atomic_min
    assert {application.step_time([4] * n, least).source for n in range(1, 17)} <= {
        "measured",
        "interpolated",
    }
    half = application.gradient(
        application.total_progress / 2, application.limits.initial
    )
    assert np.isfinite(noise_scale(*half, application.limits.initial))
    assert application.epoch_at(application.total_progress) == len(
        application.epoch_ends
    )
