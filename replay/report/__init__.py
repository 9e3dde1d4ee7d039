"""A run directory as one HTML page to show to others: no scripts, nothing loaded from elsewhere."""

from bft.replay.report.page import write_report

__all__ = ["write_report"]
