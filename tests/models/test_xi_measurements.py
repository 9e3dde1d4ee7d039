"""From solo and co-run measurements to ξ: step times, repetitions, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from bft.models.measure.xi_measurements import mean_step_s, merged, read_measurements

HEADER = "model_a,batch_a,model_b,batch_b,units,step_a_s,step_b_s\n"
SOLO = "bert,32,,,1,0.5,\nvgg,64,,,1,0.2,\n"


def table(folder: Path, text: str, name: str = "m.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_xi_is_shared_time_over_time_alone(tmp_path: Path) -> None:
    (row,) = merged(
        read_measurements(
            [table(tmp_path, HEADER + SOLO + "vgg,64,bert,32,1,0.3,0.6\n")]
        )
    )
    assert (row.model_a, row.batch_a, row.model_b, row.batch_b, row.units) == (
        "bert",
        32,
        "vgg",
        64,
        1,
    )
    assert (row.xi_a, row.xi_b) == (pytest.approx(1.2), pytest.approx(1.5))


def test_repetitions_of_solo_and_twin_runs_count_by_their_median(
    tmp_path: Path,
) -> None:
    solo = HEADER + SOLO + "bert,32,,,1,0.7,\nbert,32,,,1,0.1,\n"
    twins = "".join(f"bert,32,vgg,64,1,{shared},0.2\n" for shared in (0.6, 5.0, 0.55))
    measured = read_measurements(
        [table(tmp_path, solo), table(tmp_path, HEADER + twins, "twins.csv")]
    )
    assert len(measured) == 3
    assert merged(measured)[0].xi_a == pytest.approx(0.6 / 0.5)


def test_ratios_below_1_are_clipped(tmp_path: Path) -> None:
    measured = read_measurements(
        [table(tmp_path, HEADER + SOLO + "bert,32,vgg,64,1,0.45,0.19\n")]
    )
    (row,) = merged(measured)
    assert (row.xi_a, row.xi_b) == (1.0, 1.0)


def test_a_solo_run_of_the_same_units_counts_before_one_that_states_none(
    tmp_path: Path,
) -> None:
    solo = HEADER + "bert,32,,,,0.9,\nbert,,,,,0.8,\nbert,32,,,2,0.5,\n"
    twin = "bert,32,bert,32,2,0.6,0.75\nbert,32,bert,32,4,0.9,0.9\nbert,8,bert,8,4,0.8,1.6\n"
    found = {
        row.batch_a: row
        for row in merged(read_measurements([table(tmp_path, solo + twin)]))
        if row.units == 4
    }
    assert found[32].xi_a == pytest.approx(1.0)
    assert found[8].xi_a == found[8].xi_b == pytest.approx(1.5), (
        "one configuration twice: both ratios are repetitions"
    )


def test_ratios_and_times_may_come_from_several_tables_and_estimates_are_left_out(
    tmp_path: Path,
) -> None:
    xi = table(
        tmp_path,
        "model_a,model_b,xi_a,xi_b,flag\na,b,1.5,1.2,\na,c,3,3,guessed\n",
        "xi.csv",
    )
    times = table(tmp_path, HEADER + SOLO + "vgg,64,bert,32,1,0.3,0.6\n")
    found = merged(read_measurements([xi, times]))
    assert [(row.model_a, row.model_b) for row in found] == [
        ("a", "b"),
        ("bert", "vgg"),
    ]


def test_the_mean_sees_turns_that_a_median_hides_and_leaves_stalls_out() -> None:
    turns = [1.0, 1.0, 1.0, 5.0] * 20
    assert mean_step_s(turns) == pytest.approx(2.0)
    assert mean_step_s([*turns, 900.0]) == pytest.approx(2.0)
