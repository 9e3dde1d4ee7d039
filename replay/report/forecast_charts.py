"""What came against what had been predicted."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from bft.replay.report.chart import Axis, Chart, Curve, Curves, FloatArray
from bft.replay.report.time_charts import TIME, stamps


def forecast_chart(
    ms: FloatArray, counts: Mapping[str, FloatArray], what: str
) -> Chart:
    """Counts over time.

    Parameters
    ----------
    ms
        Instants, ms since 1970: float64 of shape (slots,).
    counts
        What is drawn, by name, the first one as an area: float64 of shape (slots,).
    what
        Label of the axis of counts.
    """
    curves = tuple(
        Curve(name, ms, values, filled=number == 0)
        for number, (name, values) in enumerate(counts.items())
    )
    table = pd.DataFrame({"time": stamps(ms), **counts})
    return Chart(
        "forecast",
        "What came, and what was predicted",
        "",
        Curves(TIME, Axis(what), curves),
        table,
    )
