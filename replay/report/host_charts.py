"""Charts of the machine's own ("host") jobs: who waits, and what a reserve costs training (docs/host-jobs.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bft.replay.report.chart import Axis, Bars, Chart, Curve, Curves
from bft.replay.report.run_comparison import names_of
from bft.replay.report.run_files import RunFiles
from bft.replay.results.host import host_sentence

# What knowing the starts ahead would give, with the host's jobs known: the node-hours of waiting that it moves to
# training, the price by which the harvest follows from all waiting, and the starts that would still wait.
KNOWN = (
    "host.announced.waiting_node_h",
    "host.break_even_price",
    "host.announced.delayed_share",
)


def of_runs(runs: Sequence[RunFiles]) -> list[Chart]:
    """Return which starts wait and where the node-hours are, by size; nothing where no run states a return time."""
    found: dict[str, dict[str, Any]] = {}
    for name, run in zip(names_of(runs), runs, strict=True):
        with run.summary_used():
            host = run.summary["metrics"].get("host") or {}
            if host.get("starts") and "by_size" in host:
                found[name] = host
                _check(host)
    return _who_waits(found) if found else []


def _check(host: dict[str, Any]) -> None:
    """Use all values once, so that a damaged summary is named."""
    host_sentence(host)
    for row in host["by_size"]:
        (
            str(row["nodes"]),
            float(row["starts"]),
            float(row["delayed"]),
            float(row["waiting_node_h"]),
        )


def _who_waits(found: dict[str, dict[str, Any]]) -> list[Chart]:
    shares, hours, rows = {}, {}, []
    for name, host in found.items():
        starts, delayed, waiting = (
            np.array([row[key] for row in host["by_size"]], dtype=np.float64)
            for key in ("starts", "delayed", "waiting_node_h")
        )
        shares[_entry(name, host)] = delayed / np.maximum(starts, 1.0)
        hours[_entry(name, host)] = waiting
        rows += [{"run": name, **row} for row in host["by_size"]]
    first = next(iter(found.values()))
    sizes = tuple(f"{row['nodes']} ({row['starts']:,})" for row in first["by_size"])
    table = pd.DataFrame(rows).rename(
        columns={
            "mean_delay_s": "mean delay, s",
            "waiting_node_h": "node-hours waiting",
        }
    )
    table = table if len(found) > 1 else table.drop(columns="run")
    sentence = host_sentence(first)
    note = f"{sentence[0].upper()}{sentence[1:]}. By the nodes of a start; how many there were stands in brackets."
    other = "A reserve spares the many small starts; the few large ones hold most of the node-hours."
    waits = Bars(sizes, Axis("share of starts that wait", "share"), shares)
    costs = Bars(sizes, Axis("node-hours waiting"), hours)
    return [
        Chart("who-waits", "Which of your own jobs wait", note, waits, table.round(3)),
        Chart(
            "who-waits-hours",
            "Where their node-hours are",
            other,
            costs,
            table.round(3),
        ),
    ]


def _entry(name: str, host: dict[str, Any]) -> str:
    kept = f"{host['reserve']} nodes kept free" if host["reserve"] else "none kept free"
    return f"{name}: {kept}"


def front(table: pd.DataFrame) -> Chart | None:
    """Return starts that wait over the training given up, from a sweep over `reserve`; None for any other sweep."""
    columns = {"reserve", "host.delayed_share", "host.waiting_node_h"}
    if (
        not columns <= set(table)
        or table["reserve"].nunique() < 2
        or table["host.delayed_share"].isna().all()
    ):
        return None
    figures = [
        "outcome",
        "host.delayed_share",
        "host.waiting_node_h",
        *(set(KNOWN) & set(table)),
    ]
    means = table.groupby("reserve", sort=True)[figures].mean().reset_index()
    least = means.iloc[0]
    given_up = (1 - means["outcome"] / least["outcome"]).to_numpy(dtype=np.float64)
    waits = means["host.delayed_share"].to_numpy(dtype=np.float64)
    points = ", ".join(
        f"{row.reserve:g}: {wait:.0%} for {up:.1%}"
        for row, wait, up in zip(means.itertuples(), waits, given_up, strict=True)
    )
    note = f"Starts that wait, for the training given up against --reserve {least['reserve']:g}, "
    note += f"by nodes kept: {points}."
    curves = [Curve("nodes kept free", 100 * given_up, waits)]
    if set(KNOWN) <= set(table):
        spared, price, left = (float(least[column]) for column in KNOWN)
        given_back = spared / (price * least["host.waiting_node_h"]) if spared else 0.0
        known = "nothing kept, nodes given back for announced starts"
        curves.append(
            Curve(known, np.array([0.0, 100 * given_back]), np.array([waits[0], left]))
        )
    axes = Axis("training given up, %"), Axis("share of starts that wait", "share")
    shown = means.rename(
        columns={
            "host.delayed_share": "share that waits",
            "host.waiting_node_h": "node-hours waiting",
        }
    )
    shown = shown.assign(**{"training given up": given_up})
    return Chart(
        "front",
        "What sparing your own jobs costs training",
        note,
        Curves(*axes, tuple(curves)),
        shown.round(4),
    )
