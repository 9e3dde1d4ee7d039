"""Cost and worth of a replay: against sums over the recorded allocations, and where the user reads them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from rules.drawn import tables, traces
from worlds import cluster, make, replay

from bft.models import JobTable
from bft.replay import EqualShare, NodeTrace
from bft.replay.results.headlines import costs

HOUR_NS = 3600 * 10**9


@examples(60)
@given(
    traces(),
    tables(),
    st.floats(0, 500),
    st.floats(0, 2000),
    st.floats(0, 100),
    st.floats(0, 1000),
)
def test_figures_are_those_of_the_units_that_were_idle_and_held(
    trace: NodeTrace,
    jobs: JobTable,
    idle_w: float,
    more_w: float,
    price: float,
    grams: float,
) -> None:
    outcome = replay(trace, jobs.jobs, EqualShare())
    result = costs(
        outcome,
        node_watts=(idle_w, idle_w + more_w),
        price_per_node_hour=price,
        co2_per_kwh=grams,
    )
    instants = np.clip([*trace.times, trace.end], outcome.start_ns, outcome.end_ns)
    offered = float(np.dot(trace.idle_counts(), np.diff(instants))) / HOUR_NS
    held = outcome.allocations
    units = held["last_unit"] - held["first_unit"] + 1
    spans = (held["end_ns"] - held["start_ns"]) * units
    used = float(spans.sum()) / HOUR_NS / trace.units_per_node
    # What the nodes draw in all is what they would have drawn without jobs, and the additional energy.
    more_kwh = more_w * used / 1000
    kwh = idle_w * offered / 1000 + more_kwh
    expected = {
        "used_node_h": used,
        "unused_node_h": offered - used,
        "additional_kwh": more_kwh,
        "total_kwh": kwh,
        "total_co2_kg": kwh * grams / 1000,
        "value": price * offered,
    }
    result["value"] = result["value_used"] + result["value_unused"]
    found = {name: result[name] for name in expected}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_only_figures_defined_by_stated_values_are_derived() -> None:
    outcome = replay(cluster(1, 1, 60), [make()], EqualShare())
    hours = {"used_node_h", "unused_node_h"}
    energy = hours | {"additional_kwh", "total_kwh"}
    watts = {"node_watts": (1.0, 2.0)}
    for stated, expected in (
        ({}, set()),
        ({"price_per_node_hour": 1.0}, hours | {"value_used", "value_unused"}),
        (watts, energy),
        (
            {**watts, "co2_per_kwh": 400.0},
            energy | {"additional_co2_kg", "total_co2_kg"},
        ),
    ):
        assert costs(outcome, **stated).keys() == expected


LINE = "--policy fifo --no-u --out out --force"


@pytest.mark.usefixtures("here")
def test_the_summary_states_and_prints_what_the_user_asked_for(
    told: Callable[..., str],
) -> None:
    stated = "--node-watts 120,600 --co2-per-kwh 380 --price-per-node-hour 1.5"
    printed = told(f"{LINE} {stated}")
    figures = json.loads(Path("out/summary.json").read_text())["metrics"]["costs"]
    kwh, kg, more_kg, worth = (
        figures[name]
        for name in (
            "additional_kwh",
            "total_co2_kg",
            "additional_co2_kg",
            "value_used",
        )
    )
    assert kwh == pytest.approx(0.48 * figures["used_node_h"])
    told("report out -o stated.html")
    tiles = Path("stated.html").read_text().partition('<ul class="tiles">')[2]
    for text, shown in (
        (printed, f"{kwh:,.1f} kWh more than if the nodes had stayed idle"),
        (printed, f"{kg:,.1f} kg in total"),
        (printed, f"{worth:,.2f} used"),
        (
            tiles,
            f"<strong>{kwh:,.0f} kWh</strong><span>more than if the nodes had stayed",
        ),
        (tiles, f"<strong>{more_kg:,.0f} kg</strong><span>of CO2 more"),
        (tiles, f"<strong>{worth:,.0f}</strong><span>worth of the node-hours used"),
    ):
        assert shown in text.partition("</ul>")[0]
    said = told(LINE)
    assert not any(word in said for word in ("kWh", "CO2"))
    assert "costs" not in json.loads(Path("out/summary.json").read_text())["metrics"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--node-watts 600,120", "a busy one, which draws no less; not '600,120'"),
        ("--node-watts 600", "expected IDLE,BUSY"),
        ("--node-watts -1,5", "expected IDLE,BUSY"),
        ("--node-watts nan,5", "expected IDLE,BUSY"),
        ("--price-per-node-hour -1", "expected a finite number >= 0"),
        ("--co2-per-kwh 380", "--co2-per-kwh has no effect without --node-watts"),
    ],
)
def test_rates_that_cannot_be_meant_are_refused(
    options: str, message: str, told: Callable[..., str]
) -> None:
    told(f"{LINE} {options}", message, code=2)
    assert not Path("out").exists()
