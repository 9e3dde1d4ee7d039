"""The charts of a page, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bft.replay.report import (
    job_charts,
    node_charts,
)
from bft.replay.report.chart import Chart
from bft.replay.report.run_files import RunFiles
from bft.replay.report.study_charts import compared
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_statistics import fragments, length_histogram


def _of_fragments(
    draw: Callable[[list[dict[str, float]], str], Chart | None], run: RunFiles
) -> Chart | None:
    with run.summary_used():
        what = "unit" if "units" in run.summary["inputs"]["trace"] else "node"
        return draw(run.summary["metrics"].get("fragments") or [], what)


# Charts of a run that come before those of host jobs.
BEFORE_HOST = ("idle", "held", "progress")
# In the order of the page. A chart is None if the run has no data for it.
OF_A_RUN: tuple[Callable[[RunFiles], Chart | None], ...] = (
    job_charts.idle_and_used,
    node_charts.who_held_what,
    job_charts.progress,
    partial(_of_fragments, node_charts.fragment_lengths),
    partial(_of_fragments, node_charts.survival),
    job_charts.times,
    *(partial(job_charts.by_group, column=column) for column in job_charts.GROUPS),
    job_charts.losses,
    job_charts.work_done,
    job_charts.decisions,
    job_charts.solve_times,
)


def charts_of(runs: Sequence[RunFiles]) -> list[Chart]:
    """The charts of a page, the most important first; of several runs those that compare them, then the first's."""
    own = [chart for draw in OF_A_RUN if (chart := draw(runs[0])) is not None]
    host = node_charts.host_jobs(runs)
    if len(runs) > 1:
        return [*compared(runs), *host, *own]
    before = [chart for chart in own if chart.key in BEFORE_HOST]
    after = [chart for chart in own if chart.key not in BEFORE_HOST]
    return [*before, *host, *after]


def charts_of_trace(trace: NodeTrace) -> list[Chart]:
    """The charts of a node trace alone."""
    pieces, what = fragments(trace), trace.turns_idle
    histogram = length_histogram(pieces.seconds)
    charts = (
        node_charts.idle_nodes(trace),
        node_charts.by_hour(trace),
        node_charts.fragment_lengths(histogram, what),
        node_charts.by_node(trace, pieces),
        node_charts.survival(histogram, what),
    )
    return [chart for chart in charts if chart is not None]
