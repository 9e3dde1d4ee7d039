"""Runs, or a node trace, as one HTML page, and as figures for a paper."""

from bft.replay.report.page import write_report, write_trace_page
from bft.replay.report.paper_form import FORMATS, write_figures, write_trace_figures

__all__ = ["FORMATS", "write_figures", "write_report", "write_trace_figures", "write_trace_page"]
