"""The one table of a run's figures (docs/results.md): name, title, unit, direction, jobs, and how each is written."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bft.models.writing import duration, three_digits
from bft.replay.results.census import COUNTED


class Figure(NamedTuple):
    """A figure among the metrics of a run.

    - `path`: its name in summary.json; a part of a field stands behind a dot.
    - `title`: for people. `unit`: in which summary.json has it: `s`, `share`, or a word for people.
    - `more`: whether more is better.
    - `main`: whether a sweep has a chart of it.

    Examples
    --------
    >>> mean = FIGURES["jct_s.mean"]
    >>> mean.text(mean.of({"jct_s": {"mean": 7200.0}})), mean.jobs, FIGURES["U"].of({})
    ('2 h', 'finished', None)
    """

    path: str
    title: str
    unit: str = ""
    more: bool = False
    main: bool = False

    @property
    def heading(self) -> str:
        """The title, with the unit where the values are written without it."""
        is_bare = self.unit not in ("", "s", "share")
        return f"{self.title}, {self.unit}" if is_bare else self.title

    @property
    def jobs(self) -> str:
        """The group of jobs (`bft.replay.results.census`) that it counts; empty where it is not about jobs."""
        return str(COUNTED.get(self.path, COUNTED.get(self.path.split(".")[0], "")))

    def of(self, metrics: Mapping[str, Any]) -> float | None:
        """The value as it stands in summary.json; None where the run has none."""
        value: Any = metrics
        for name in self.path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else float(value)

    def text(self, value: float | None) -> str:
        """A value for people; its unit stands in `heading` where it is neither time nor share."""
        if value is None or value != value:
            return "-"
        if self.unit == "s":
            return duration(value)
        return f"{value:.1%}" if self.unit == "share" else three_digits(value)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        figure.path: figure
        for figure in (
            Figure("outcome", "outcome", "samples", more=True, main=True),
            Figure("share_of_bound", "of the bound", "share", more=True, main=True),
            Figure("U", "U", "share", more=True, main=True),
            Figure("used_share", "idle time used", "share", more=True),
            Figure("jobs_finished", "finished", more=True),
            Figure("jct_s.mean", "JCT mean", "s", main=True),
            Figure("jct_s.p95", "JCT p95", "s"),
            Figure("jct_to_end_mean_s", "JCT to the end", "s", main=True),
            Figure("queueing_s.mean", "queueing mean", "s"),
            Figure("without_units_s.mean", "without units, mean", "s"),
            Figure("without_units_s.p99", "without units, p99", "s"),
            Figure("longest_wait_s", "longest stretch without", "s"),
            Figure("makespan_s", "makespan", "s"),
            Figure("restarts_per_job", "restarts a job"),
            Figure("finish_time_fairness.mean", "fairness"),
            Figure("deadlines.missed", "deadlines missed"),
            Figure("preemption_cost", "lost to preemption", "samples"),
            Figure("rescale_cost", "lost to rescaling", "samples"),
            Figure("stall_cost", "lost to stalls", "samples"),
            Figure("start_cost", "lost to first starts", "samples"),
            Figure("restart_cost", "lost to restarts", "samples"),
            Figure("preemptions", "preemptions"),
            Figure("rescales", "rescales"),
            Figure("search.best.score", "best found", more=True),
            Figure("search.stopped_share", "spent on stopped", "share"),
            Figure("costs.additional_kwh", "more energy", "kWh"),
            Figure("costs.additional_co2_kg", "more CO2", "kg"),
            Figure("costs.value_used", "worth used", more=True),
            Figure("host.delayed_share", "own starts that wait", "share", main=True),
            Figure("host.delay_s.mean", "delay of own starts", "s"),
            Figure("host.waiting_node_h", "own jobs wait", "node-h", main=True),
            Figure("host.break_even_price", "break-even price", more=True),
        )
    }
)
"""By path, in the order in which they are shown."""
