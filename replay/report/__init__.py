"""Runs, or a node trace, as one HTML page, and as figures for a paper."""

from bft.replay.report.job_charts import forecast_chart
from bft.replay.report.page import write_report, write_trace_page
from bft.replay.report.paper_form import (
    FORMATS,
    write_chart,
    write_charts,
    write_figures,
    write_trace_figures,
)
from bft.replay.report.study_charts import charts_of_comparison

__all__ = [
    "FORMATS",
    "charts_of_comparison",
    "forecast_chart",
    "write_chart",
    "write_charts",
    "write_figures",
    "write_report",
    "write_trace_figures",
    "write_trace_page",
]
