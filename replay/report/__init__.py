"""Runs as one HTML page, and as figures for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bft.replay.report.chart import Chart
from bft.replay.report.page import check_page, page_of, write_report
from bft.replay.report.paper_form import FORMATS, plotted, write_chart, write_charts
from bft.replay.report.run_charts import charts_of_run
from bft.replay.report.study_charts import charts_of_comparison

__all__ = [
    "FORMATS",
    "charts_of",
    "charts_of_comparison",
    "charts_of_run",
    "check_page",
    "plotted",
    "write_chart",
    "write_charts",
    "write_report",
]


def charts_of(
    folders: Sequence[Path], *, different: bool = False, names: Sequence[str] = ()
) -> list[Chart]:
    """The charts of the page that `write_report` writes, with the same arguments and errors."""
    return page_of(folders, different=different, names=names)[1]
