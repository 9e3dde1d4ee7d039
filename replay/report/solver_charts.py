"""Charts of the time that decisions take."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.replay.report.chart import Axis, Chart, Curve, Curves
from bft.replay.report.run_files import RunFiles
from bft.replay.results.run_directory import TIMING
from bft.replay.results.run_reading import HINT


def solve_times(run: RunFiles) -> Chart | None:
    """Distribution of the policy's time per decision; None if it is not known."""
    try:
        quantiles = run.decision_s.get("quantiles", {})
        shares = np.array([float(share) for share in quantiles])
        seconds = np.array([float(value) for value in quantiles.values()])
        if not len(shares):
            return None
        total, count = float(run.decision_s["sum"]), int(run.decision_s["count"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "damaged: decision_s", file=run.folder / TIMING, hint=HINT
        ) from error
    order = np.argsort(shares)
    shares, seconds = shares[order], np.maximum(seconds[order], 1e-6)
    table = pd.DataFrame({"share of decisions": [f"{share:.1%}" for share in shares],
                          "milliseconds": (seconds * 1000).round(3)})  # fmt: skip
    note = f"{count:,} decisions took {total:,.1f} s of wall-clock time on the machine that replayed: "
    note += (
        "the only figures on this page that another replay of the same input changes."
    )
    curve = Curve("decisions", seconds * 1000, shares)
    axes = Axis("milliseconds", "log"), Axis("share of decisions", "share")
    return Chart(
        "solving", "What a decision takes", note, Curves(*axes, (curve,)), table
    )
