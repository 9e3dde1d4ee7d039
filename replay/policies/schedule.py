"""A schedule from a file: who holds which units, and when, as another program, a cluster or an earlier run had it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, Self

from bft.models import InputError, JobTable, read_table
from bft.models.cells import Rows
from bft.replay.engine.policy_api import Decision, State, Traits
from bft.replay.policies._constants import constant

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("job", "first_unit", "last_unit", "start", "end")
_TRAITS = {
    "migrating": Traits(migrates=True),
    "elastic": Traits(),
    "rigid": Traits(rigid=True),
}


@dataclass
class Schedule:
    """Give each job the units that a schedule names, at the instants that it names.

    A schedule has one row for each range of units that a job holds for some time: `job`, `first_unit`, `last_unit`
    (inclusive), `start` and `end` (UTC), the columns of a run's allocations.parquet. A job that is not in play gets
    nothing: rows before its submission and after its finish have no effect. Units that are not idle are left out, and
    more if the job does not run on as many as remain.

    Parameters
    ----------
    file
        A table with these columns; `of` takes a frame.
    charged_as
        The kind of policy whose changes these are. A migrating one may move jobs, and pays a restart overhead at each
        change; the jobs of a rigid one never change their units while they run.

    Examples
    --------
    >>> import pandas as pd
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import Replay, always_idle
    >>> curve = Curve([0, 4], [0, 40])
    >>> job = Job("a", 0, 1, 4, pmax=300.0, tcup_s=0.0, tcdw_s=0.0, scalability=curve, objective=curve)
    >>> rows = [("a", 0, 0, "1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z"),
    ...         ("a", 1, 2, "1970-01-01T00:00:30Z", "1970-01-01T00:01:00Z")]
    >>> policy = Schedule.of(pd.DataFrame(rows, columns=COLUMNS))
    >>> outcome = Replay(always_idle(4, 0, 60 * 10**9), JobTable((job,)), policy).run()
    >>> outcome.records[0].finish_ns / 10**9  # 10 s on one unit, then 10 s on two
    40.0
    """

    file: str = constant(
        "", "table of job, first_unit, last_unit, start, end, as in allocations.parquet"
    )
    charged_as: Literal["migrating", "elastic", "rigid"] = constant(
        "migrating",
        "what changes of units cost: as by a migrating, an elastic or a rigid policy",
    )
    name: str = field(default="schedule", init=False)
    traits: Traits = field(default=_TRAITS["migrating"], init=False)

    def __post_init__(self) -> None:
        self.traits = _TRAITS[self.charged_as]
        self._steps: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        self._changes: list[int] = []
        self._largest = -1
        if self.file:
            self._set(Rows(read_table(self.file), self.file, job="job"))

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        charged_as: Literal["migrating", "elastic", "rigid"] = "migrating",
    ) -> Self:
        """Make the policy from a frame with these columns.

        Raises
        ------
        InputError
            When a row is invalid, or two jobs hold a unit at once; names row and column.
        """
        made = cls(charged_as=charged_as)
        made._set(Rows(frame, job="job"))
        return made

    def prepare(self, jobs: JobTable) -> JobTable:
        """The jobs unchanged; raise if there is no schedule, or it names a job that is not in the table.

        Raises
        ------
        InputError
            Naming file and job.
        """
        if not self._steps:
            raise InputError(
                "policy 'schedule' needs a schedule",
                hint=f"--set file=FILE, a table with the columns {', '.join(COLUMNS)}",
            )
        known = {job.name for job in jobs}
        for name in self._steps:
            if name not in known:
                raise InputError(
                    "the schedule names a job that is not in the job table",
                    file=self.file or None,
                    column="job",
                    job=name,
                )
        return jobs

    def decide(self, state: State) -> Decision:
        """Give each job its units of this instant; ask to be called at the next change of the schedule."""
        machine = state.machine
        units_there = machine.nodes * machine.units_per_node
        if self._largest >= units_there:
            raise InputError(
                f"the schedule names unit {self._largest}; the machine has the units 0 to {units_there - 1}",
                file=self.file or None,
            )
        placement: dict[int, tuple[int, ...]] = {}
        for position, view in enumerate(state.jobs):
            steps = self._steps.get(view.job.name, [])
            step = bisect_right(steps, state.time_ns, key=itemgetter(0))
            planned = steps[step - 1][1] if step else ()
            units = tuple(unit for unit in planned if machine.is_idle(unit))
            after_a_leave = set(units) == set(view.held)
            if after_a_leave or len(units) < len(planned):
                units = units[: view.job.at_most(len(units))]
            if set(units) != set(view.held):
                placement[position] = units
        following = bisect_right(self._changes, state.time_ns)
        wake_ns = self._changes[following] if following < len(self._changes) else None
        return Decision.placed(placement, wake_ns=wake_ns)

    def _set(self, rows: Rows) -> None:
        """Turn rows into steps: from when on each job holds which units."""
        rows.require(COLUMNS)
        changes: list[tuple[int, bool, int]] = []  # instant, whether it begins, row
        names, ranges = [], []
        for row in rows:
            first = row.whole("first_unit", min=0)
            last = row.whole("last_unit", min=first)
            start, end = row.instant("start"), row.instant("end")
            if end <= start:
                raise row.error("end", "expected an instant after start")
            names.append(row.name("job"))
            ranges.append(range(first, last + 1))
            changes += [(start, True, row.index), (end, False, row.index)]
            self._largest = max(self._largest, last)
        changes.sort()  # at one instant units are given back before they are taken
        holder: dict[int, int] = {}  # the row that holds a unit
        held: defaultdict[str, set[int]] = defaultdict(set)
        for instant, together in groupby(changes, key=lambda change: change[0]):
            changed: dict[str, None] = {}
            for _, begins, index in together:
                name, units = names[index], ranges[index]
                changed[name] = None
                for unit in units:
                    other = holder.pop(unit, None)
                    if begins and other is not None:
                        what = f"expected free units, but job {names[other]} holds unit {unit} by row {other + 1}"
                        raise rows[index].error("first_unit", what)
                    if begins:
                        holder[unit] = index
                (held[name].update if begins else held[name].difference_update)(units)
            for name in changed:
                steps = self._steps.setdefault(name, [])
                steps.append((instant, tuple(sorted(held[name]))))
            self._changes.append(instant)
