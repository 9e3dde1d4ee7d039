"""The figures of a run that people compare: name in summary.json, title, unit, and whether more is better."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A figure among the metrics of a run.

    - `path`: its name in summary.json; a part of a field stands behind a dot.
    - `title`, `unit`: for people; no unit for counts and shares. `size`: one of that unit, as summary.json
      has it.
    - `more`: whether more is better.

    Examples
    --------
    >>> FIGURES["jct_s.mean"].of({"jct_s": {"mean": 7200.0}}), FIGURES["U"].of({})
    (7200.0, None)
    """

    path: str
    title: str
    unit: str = ""
    size: float = 1.0
    more: bool = False

    @property
    def heading(self) -> str:
        """The title with the unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    def of(self, metrics: Mapping[str, Any]) -> float | None:
        """The value as it stands in summary.json; None where the run has none."""
        value: Any = metrics
        for name in self.path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else float(value)


_SAMPLES = ("10⁹ samples", 1e9)
_HOURS = ("h", 3600.0)
FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        figure.path: figure
        for figure in (
            Figure("outcome", "outcome", *_SAMPLES, more=True),
            Figure("share_of_bound", "share of the bound", more=True),
            Figure("U", "U", more=True),
            Figure("used_share", "used share", more=True),
            Figure("jobs_finished", "jobs finished", more=True),
            Figure("jct_s.mean", "mean JCT", *_HOURS),
            Figure("jct_s.p95", "p95 JCT", *_HOURS),
            Figure("queueing_s.mean", "mean queueing", *_HOURS),
            Figure("without_units_s.longest", "longest without units", *_HOURS),
            Figure("preemption_cost", "lost to preemption", *_SAMPLES),
            Figure("rescale_cost", "lost to rescaling", *_SAMPLES),
            Figure("stall_cost", "lost to stalls", *_SAMPLES),
            Figure("start_cost", "lost to first starts", *_SAMPLES),
            Figure("restart_cost", "lost to restarts", *_SAMPLES),
            Figure("preemptions", "preemptions"),
            Figure("rescales", "rescales"),
            Figure("host.delayed_share", "host starts that wait"),
            Figure("host.waiting_node_h", "host jobs wait", "node-h"),
            Figure("host.break_even_price", "break-even price", more=True),
        )
    }
)
"""By path, in the order in which they are shown."""
