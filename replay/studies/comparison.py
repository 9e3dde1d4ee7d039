"""Variants of a replay side by side: their runs, a table, differences, and their intervals."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models import InputError, JobTable, write_jobs
from bft.models.tolerances import SAME_RESULT
from bft.replay.inputs.files import Files
from bft.replay.options.naming import (
    different_inputs,
    is_rigid,
    label_of,
    names_of_runs,
)
from bft.replay.results.headlines import FEW_JOBS
from bft.replay.results.run_directory import STEPS, SUMMARY, damage_named, read_summary
from bft.replay.studies.carry_out import Onlooker, Workers, carry_out
from bft.replay.studies.run_tables import (
    DAY_NS,
    Split,
    by_group,
    history,
    jobs_of,
    p999,
    usually_idle,
    work_by_day,
)
from bft.replay.studies.study import Plan, Point, Study, key_of
from bft.replay.trace.host_jobs import digest
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import write_trace

# With fewer pairs an interval means nothing: 7 days show the spread of a week, 5 seeds a first idea of theirs.
MIN_DAYS, MIN_SEEDS = 7, 5
CONFIDENCE = 0.95
SEED = 0
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a relative difference, and the number of pairs behind it."""

    low: float
    high: float
    pairs: int


def relative(ours: Array, theirs: Array) -> float | None:
    """Sum of `ours` over sum of `theirs`, minus 1; None if the sum of `theirs` is 0."""
    base = float(theirs.sum())
    return float(ours.sum()) / base - 1 if base > 0 else None


def interval(ours: Array, theirs: Array, least: int) -> Interval | None:
    """Bootstrap interval (BCa, Efron 1987) of `relative`; pairs are drawn together.

    Parameters
    ----------
    ours, theirs
        One value per day, or seed, in the same order. Pairs of two zeros do not count.
    least
        The smallest number of pairs for an interval.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    some = (ours != 0) | (theirs != 0)
    ours, theirs = ours[some], theirs[some]
    pairs, difference = len(ours), relative(ours, theirs)
    if pairs < least or difference is None:
        return None
    if np.allclose(ours, theirs * (1 + difference), rtol=1e-12, atol=0):  # no variation
        return Interval(difference, difference, pairs)

    def statistic(a: Array, b: Array, axis: int = -1) -> Array:
        ratio: Array = a.sum(axis=axis) / b.sum(axis=axis) - 1
        return ratio

    # A draw whose `theirs` adds up to 0, or without variation, gives NaN: then there is no interval.
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(
            (ours, theirs),
            statistic,
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            random_state=np.random.default_rng(SEED),
        ).confidence_interval
    low, high = float(result.low), float(result.high)
    return (
        Interval(low, high, pairs) if np.isfinite(low) and np.isfinite(high) else None
    )


# A relative difference above this is said as a factor.
MAX_SHARE = 1.0
COSTS = ("preemption_cost", "rescale_cost", "stall_cost", "start_cost", "restart_cost")


@dataclass(frozen=True)
class Run:
    """A run of a variant."""

    folder: Path
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        """Seed of the run."""
        with damage_named(self.folder / SUMMARY):
            return int(self.summary["options"]["seed"])

    @property
    def window(self) -> tuple[int, int]:
        """The window of evaluation, in nanoseconds."""
        with damage_named(self.folder / SUMMARY):
            metrics = self.summary["metrics"]
            start, end = (
                np.datetime64(metrics[name].removesuffix("Z"), "ns")
                for name in ("window_start", "window_end")
            )
            return int(start.astype("int64")), int(end.astype("int64"))

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Table of the run's jobs, one row each; see `run_tables.jobs_of`."""
        return jobs_of(self.folder, self.window[1])

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Table of the run's decisions, one row each."""
        return history(self.folder, STEPS)

    def metric(self, *path: str) -> float | None:
        """Return a metric of the run, None where the run has no such number."""
        with damage_named(self.folder / SUMMARY):
            value: Any = self.summary["metrics"]
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            return None if value is None else float(value)

    def losses(self) -> float:
        """Samples lost, to whatever."""
        return math.fsum(self.metric(cost) or 0.0 for cost in COSTS)

    def waiting_p999_s(self) -> float | None:
        """The time without units that one in a thousand of the jobs submitted exceeds."""
        waits = self.jobs["waiting_s"].dropna()
        return float(p999(waits)) if len(waits) else None


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of the table: its name, its title, what it is of a run, and whether more is better.

    `always`: shown even where no run has it; the others are about what only some users state.
    """

    name: str
    title: str
    of: Callable[[Run], float | None]
    more: bool
    always: bool = True


def _metric(*path: str) -> Callable[[Run], float | None]:
    return lambda run: run.metric(*path)


COLUMNS = (
    Column("outcome", "outcome", _metric("outcome"), more=True),
    Column("share_of_bound", "of bound", _metric("share_of_bound"), more=True),
    Column("U", "U", _metric("U"), more=True),
    Column("jct_mean_s", "JCT mean", _metric("jct_s", "mean"), more=False),
    Column("jct_p95_s", "JCT p95", _metric("jct_s", "p95"), more=False),
    Column(
        "queueing_mean_s", "queueing mean", _metric("queueing_s", "mean"), more=False
    ),
    Column(
        "waiting_mean_s", "waiting mean", _metric("without_units_s", "mean"), more=False
    ),
    Column("waiting_p999_s", "p99.9", Run.waiting_p999_s, more=False),
    Column("jobs_finished", "finished", _metric("jobs_finished"), more=True),
    Column("makespan_s", "makespan", _metric("makespan_s"), more=False),
    Column("losses", "losses", Run.losses, more=False),
    Column("restarts_per_job", "restarts", _metric("restarts_per_job"), more=False),
    Column("longest_wait_s", "longest wait", _metric("longest_wait_s"), more=False),
    Column("fairness", "fairness", _metric("finish_time_fairness", "mean"), more=False),
    Column(
        "best_found",
        "best found",
        _metric("search", "best", "score"),
        more=True,
        always=False,
    ),
    Column(
        "stopped_share",
        "on stopped",
        _metric("search", "stopped_share"),
        more=False,
        always=False,
    ),
    Column(
        "additional_kwh",
        "kWh more",
        _metric("costs", "additional_kwh"),
        more=False,
        always=False,
    ),
    Column(
        "additional_co2_kg",
        "kg CO2 more",
        _metric("costs", "additional_co2_kg"),
        more=False,
        always=False,
    ),
    Column(
        "value_used",
        "worth used",
        _metric("costs", "value_used"),
        more=True,
        always=False,
    ),
    Column(
        "host_delayed_share",
        "host starts wait",
        _metric("host", "delayed_share"),
        more=False,
        always=False,
    ),
    Column(
        "host_waiting_node_h",
        "host node-h",
        _metric("host", "waiting_node_h"),
        more=False,
        always=False,
    ),
    Column(
        "host_break_even_price",
        "break-even",
        _metric("host", "break_even_price"),
        more=True,
        always=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a comparison: its label, and one run per seed."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The relative difference between two variants.

    Parameters
    ----------
    what
        `outcome`; or `jct`, over the jobs that both finish.
    value
        The relative difference; None if the other variant's value is 0.
    days, seeds
        Intervals over the days, and over the common seeds; None if there are too few.
    count_days, count_seeds
        Number of days and seeds.
    jobs
        For `jct`: the number of jobs that both finish.
    """

    variant: str
    against: str
    what: str
    value: float | None
    days: Interval | None
    seeds: Interval | None
    count_days: int
    count_seeds: int
    jobs: int | None = None

    def sentence(self) -> str:
        """The difference in words."""
        if self.value is None:
            return (
                f"{self.variant} and {self.against}: nothing to compare in {self.what}"
            )
        outcome = self.what == "outcome"
        if abs(self.value) < 5e-4:
            change = "as much as" if outcome else "as long {} as"
        elif self._in_times:
            change = (
                f"{_factor(self.value)} times as {'much' if outcome else 'long {}'} as"
            )
        else:
            way = "more" if self.value > 0 else "less"
            share = f"{abs(100 * self.value):.1f} % {way}"
            change = f"{share} than" if outcome else f"{share} time {{}} than"
        if outcome:
            head = f"{self.variant} yields {change} {self.against}"
        else:
            under = change.format(f"under {self.variant}")
            jobs = f"the {self.jobs:,} jobs that both finish"
            head = f"{jobs} take {under} under {self.against}"
        return f"{head}; {self._of_days()}{self._of_seeds()}"

    @property
    def _in_times(self) -> bool:
        """Whether it is said as a factor: more than 100 % more is hard to picture."""
        return self.value is not None and self.value > MAX_SHARE

    def _of_days(self) -> str:
        if self.days is None and self.count_days >= MIN_DAYS:
            return f"on too few of the {self.count_days} days there was anything for an interval"
        if self.days is None:
            days = f"{self.count_days} day{'s are' if self.count_days != 1 else ' is'}"
            return f"{days} too few for an interval (at least {MIN_DAYS})"
        return f"the {self.days.pairs} days' 95 % interval is {self._range(self.days)}"

    def _of_seeds(self) -> str:
        if self.seeds is not None:
            return f", that of {self.seeds.pairs} seeds {self._range(self.seeds)}"
        if self.count_seeds > 1:
            return (
                f"; {self.count_seeds} seeds are too few for one (at least {MIN_SEEDS})"
            )
        return ""

    def _range(self, found: Interval) -> str:
        if self._in_times:
            return f"{_factor(found.low)} to {_factor(found.high)} times"
        sign = -1 if (self.value or 0) < 0 else 1
        low, high = sorted((100 * sign * found.low, 100 * sign * found.high))
        unclear = ", which includes none" if low < 0 < high else ""
        return f"{low:.1f} to {high:.1f} %{unclear}"


def _factor(value: float) -> str:
    """A relative difference as a factor, with three digits: 125.272 is "126", 1.5 is "2.5"."""
    factor = 1 + value
    return f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"


@dataclass(frozen=True)
class Comparison:
    """Variants on the same trace and jobs; the first is the reference for the others.

    Parameters
    ----------
    variants
        In order.
    failures
        Errors of runs that failed, by label.
    notes
        Notes that runs reported, with the number of runs for each.
    degraded
        Labels of runs that used fallbacks or met invalid answers of a solver.
    split
        `vc`, `user`, `model`, `size` or `size:8` (up to 8 units, and more): break the table down.
    different
        Inputs in which the runs differ, where runs of different inputs are compared all the same.
    """

    variants: tuple[Variant, ...]
    failures: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    split: str | None = None
    different: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Table with one row per variant; with `split`, one per variant and group: means over the seeds."""
        return self.whole if self.split is None else by_group(self.jobs, self.split)

    @cached_property
    def whole(self) -> pd.DataFrame:
        """Table with one row per variant: means over the seeds."""
        rows = []
        for variant in self.variants:
            row: dict[str, Any] = {"variant": variant.label, "seeds": len(variant.runs)}
            for column in COLUMNS:
                row[column.name] = _mean([column.of(run) for run in variant.runs])
            jobs = variant.runs[0].metric("jobs")
            row["jobs"] = None if jobs is None else int(jobs)
            rows.append(row)
        table = pd.DataFrame(rows)
        unstated = [
            column.name
            for column in COLUMNS
            if not column.always and table[column.name].isna().all()
        ]
        return table.drop(columns=unstated)

    @cached_property
    def jobs(self) -> dict[str, list[pd.DataFrame]]:
        """Tables of jobs by label of variant, one table for each run (`run_tables.jobs_of`)."""
        return {
            variant.label: [run.jobs for run in variant.runs]
            for variant in self.variants
        }

    def best(self) -> dict[str, list[bool]]:
        """The best variants per column; none if all are equal, and none of U where the variants compare with others.

        U is relative to the same policy on dedicated nodes: a variant that does badly there too has a large U.
        """
        frame = self.frame
        marks = {}
        alone = {
            run.metric("dedicated_outcome")
            for variant in self.variants
            for run in variant.runs
        }
        for column in COLUMNS:
            if column.name == "U" and len(alone) > 1:
                continue
            if column.name in frame and self.split is None:
                values = frame[column.name].astype(float)
                top = values.max() if column.more else values.min()
                found = np.isclose(values, top, rtol=SAME_RESULT, atol=0).tolist()
                marks[column.name] = found if not all(found) else [False] * len(found)
        return marks

    @cached_property
    def finishes(self) -> pd.DataFrame | None:
        """When each job finished (UTC) under each variant; None for more than 20 jobs, and of several seeds."""
        runs = {variant.label: variant.runs for variant in self.variants}
        if any(len(each) > 1 for each in runs.values()):
            return None
        columns = {label: each[0].jobs["finish"] for label, each in runs.items()}
        table = pd.DataFrame(columns)
        return table if len(table) <= FEW_JOBS else None

    def cautions(self) -> list[str]:
        """Return cautions for readers of the table: rigid jobs that ask for more than is usually idle."""
        # A run ends when its jobs are done: the longest shows most of the trace.
        runs = [run for variant in self.variants for run in variant.runs]
        usual = usually_idle(max(runs, key=lambda run: run.window[1]).steps)
        asked: dict[str, list[str]] = {}
        for variant in self.variants:
            text = _asks_too_much(variant.runs[0], usual)
            if text is not None:
                asked.setdefault(text, []).append(variant.label)
        return [f"{' and '.join(labels)}: {text}" for text, labels in asked.items()]

    def differences(self) -> list[Difference]:
        """Table of each variant relative to the first: outcome, and completion times of jobs that both finish."""
        if len(self.variants) < 2:
            return []
        spans = [run.window for variant in self.variants for run in variant.runs]
        start = min(begin for begin, _ in spans)
        days = max(1, -(-(max(end for _, end in spans) - start) // DAY_NS))
        base = self.variants[0]
        return [
            each
            for variant in self.variants[1:]
            for each in (
                _of_outcome(variant, base, start, days),
                _of_times(variant, base),
            )
        ]

    def sentences(self) -> list[str]:
        """The differences in words."""
        return [difference.sentence() for difference in self.differences()]


def runs_of(
    folders: Sequence[Path], summaries: Sequence[dict[str, Any]]
) -> tuple[Run, ...]:
    """Runs of a variant, by their seeds.

    Raises
    ------
    InputError
        When one was replayed with --compat reference, which writes no results by day or job.
    """
    for folder, summary in zip(folders, summaries, strict=True):
        with damage_named(folder / SUMMARY):
            by_reference = "window_start" not in summary["metrics"]
        if by_reference:
            raise InputError(
                "was replayed with --compat reference, which leaves nothing to compare",
                file=folder,
            )
    return tuple(sorted(map(Run, folders, summaries), key=lambda run: run.seed))


def _asks_too_much(run: Run, usual: int) -> str | None:
    """Say how many jobs of a rigid policy ask for more units than are usually idle; None where none do."""
    options = run.summary["options"]
    if options.get("cluster") is not None or not is_rigid(options["policy"]):
        return None
    asked = run.jobs["units_asked"]
    large = asked[asked > usual]
    if large.empty:
        return None
    low, high = int(large.min()), int(large.max())
    sizes = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"{len(large):,} of {len(asked):,} jobs run on {sizes} units (Jreq) or not at all, but for half of the time no "
        f"more than {usual:,} are idle: the requests are compared too, not the policies alone (docs/studies.md)"
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) and known else None


def _pairs(ours: Variant, theirs: Variant) -> Iterator[tuple[Run, Run]]:
    """Pairs of runs with the same seed; a variant with a single run is paired with each run of the other."""
    if len(ours.runs) == 1 or len(theirs.runs) == 1:
        yield from ((a, b) for a in ours.runs for b in theirs.runs)
        return
    by_seed = {run.seed: run for run in theirs.runs}
    yield from ((run, by_seed[run.seed]) for run in ours.runs if run.seed in by_seed)


def _of_outcome(variant: Variant, base: Variant, start: int, days: int) -> Difference:
    pairs = list(_pairs(variant, base))
    ours, theirs = (
        np.array(
            [work_by_day(pair[side].steps, start, days) for pair in pairs]
        ).reshape(-1, days)
        for side in (0, 1)
    )
    return _difference(
        variant,
        base,
        "outcome",
        (ours.sum(axis=0), theirs.sum(axis=0)),
        (ours.sum(1), theirs.sum(1)),
    )


def _of_times(variant: Variant, base: Variant) -> Difference:
    by_day, by_seed, jobs = [], [], set[str]()
    for ours, theirs in _pairs(variant, base):
        jobs_of_ours, jobs_of_theirs = ours.jobs, theirs.jobs
        columns = {
            "ours": jobs_of_ours["jct_s"],
            "theirs": jobs_of_theirs["jct_s"],
            "submit": jobs_of_ours["submit"],
        }
        both = pd.DataFrame(columns).dropna()
        jobs |= set(both.index)
        by_seed.append(both[["ours", "theirs"]].sum())
        by_day.append(
            both.groupby(both["submit"].dt.floor("D"))[["ours", "theirs"]].sum()
        )
    days = pd.concat(by_day).groupby(level=0).sum()
    seeds = pd.DataFrame(by_seed)
    day_pair, seed_pair = (
        (table["ours"].to_numpy(), table["theirs"].to_numpy())
        for table in (days, seeds)
    )
    return _difference(variant, base, "jct", day_pair, seed_pair, len(jobs))


def _difference(
    variant: Variant,
    base: Variant,
    what: str,
    days: tuple[Array, Array],
    seeds: tuple[Array, Array],
    jobs: int | None = None,
) -> Difference:
    return Difference(
        variant.label,
        base.label,
        what,
        relative(*days),
        interval(*days, MIN_DAYS),
        interval(*seeds, MIN_SEEDS),
        len(days[0]),
        len(seeds[0]),
        jobs,
    )


def table_of(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of a comparison for people; the best of each column has a star."""
    frame = comparison.frame
    titles = {column.name: column.title for column in COLUMNS} | {
        "variant": "",
        "queueing_p95_s": "queueing p95",
        "unit_hours": "unit-hours",
    }
    best = comparison.best()
    shown = [name for name in frame if name != "seeds" or frame["seeds"].max() > 1]
    rows = []
    for place, row in enumerate(frame.to_dict("records")):
        marks = {name: "*" if marked[place] else "" for name, marked in best.items()}
        padded = {
            name: marks.get(str(name), "") or (" " if str(name) in best else "")
            for name in shown
        }
        rows.append([_cell(str(name), row[name]) + padded[name] for name in shown])
    return [titles.get(str(name), str(name)) for name in shown], rows


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return "-"
    if name.endswith("_s"):
        return _duration(value)
    if name in ("share_of_bound", "U", "stopped_share"):
        return f"{value:.1%}"
    if name in ("fairness", "restarts_per_job"):
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds:.1f} s"


def compared(
    study: Study,
    plan: Plan,
    workers: Workers,
    *,
    split: str | None = None,
    again: bool = False,
    onlooker: Onlooker | None = None,
) -> Comparison:
    """The comparison of a plan's points; points that differ only in their seed form one variant.

    Raises
    ------
    InputError
        When fewer than two variants could be replayed, or `split` is nothing that a comparison is broken down by.
    """
    if split is not None:
        Split.read(split)
    groups: dict[str, list[Point]] = {}
    for point in plan.points:
        varied = {name: each for name, each in point.varied.items() if name != "seed"}
        groups.setdefault(label_of(varied), []).append(point)
    if len(groups) < 2:
        raise InputError(
            "there is only one variant, so nothing to compare",
            hint="give several values: --policy milp,pollux",
        )
    files = Files()
    keys = {point.index: key_of(point.options, files) for point in plan.points}
    _refuse_equal(
        {
            label: tuple(keys[point.index] for point in points)
            for label, points in groups.items()
        }
    )
    account = carry_out(
        study,
        plan,
        list(keys.values()),
        workers,
        whole=True,
        again=again,
        onlooker=onlooker,
    )
    made = []
    for label, points in groups.items():
        done = [
            (study.run(keys[p.index]), study.summary(keys[p.index])) for p in points
        ]
        there = [(folder, summary) for folder, summary in done if summary is not None]
        if there:
            made.append(Variant(label, runs_of(*zip(*there, strict=True))))
    if len(made) < 2:
        errors = "; ".join(
            f"{label}: {error}" for label, error in account.failures.items()
        )
        raise InputError(
            f"only {len(made)} of {len(groups)} variants could be replayed: {errors}"
        )
    return Comparison(
        tuple(made), account.failures, account.notes, account.degraded, split
    )


def compared_runs(
    folders: Sequence[Path], *, split: str | None = None, different: bool = False
) -> Comparison:
    """The comparison of existing run directories, named by what differs, or by their folders.

    Parameters
    ----------
    folders
        The run directories.
    split
        What to break the table down by.
    different
        Compare runs of different traces or jobs too.

    Raises
    ------
    InputError
        When one is not a run directory, there is only one, or their inputs differ.
    """
    if len(folders) < 2:
        raise InputError(
            "one run alone cannot be compared; name at least two run directories"
        )
    for folder, count in Counter(folder.resolve() for folder in folders).items():
        if count > 1:
            raise InputError(
                "is named twice; name each run directory once", file=folder
            )
    summaries = [read_summary(folder) for folder in folders]
    for folder, summary in zip(folders, summaries, strict=True):
        with damage_named(folder / SUMMARY):  # each alone, so that its file is named
            different_inputs(names_of_runs([folder], [summary]), [summary])
    labels = names_of_runs(folders, summaries)
    phrases = different_inputs(labels, summaries)
    if phrases and not different:
        raise InputError(
            f"the runs have different inputs: {'; '.join(phrases)}",
            hint="replay them on the same trace and jobs; --different-inputs compares them all the same",
        )
    variants = [
        Variant(label, runs_of([folder], [summary]))
        for label, folder, summary in zip(labels, folders, summaries, strict=True)
    ]
    return Comparison(tuple(variants), split=split, different=tuple(phrases))


def _refuse_equal(keys: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse variants that are the same replays under two names."""
    first: dict[tuple[str, ...], str] = {}
    for label, those in keys.items():
        other = first.setdefault(those, label)
        if other != label:
            raise InputError(
                f"variants {other!r} and {label!r} have the same options: leave one of them out"
            )


def inputs(
    study: Study,
    trace: str | Path | NodeTrace | None,
    jobs: str | Path | JobTable | None,
) -> dict[str, str]:
    """Options for trace and jobs; inputs in memory are written to the study, named by their content."""
    stated: dict[str, str] = {}
    if isinstance(trace, NodeTrace):
        trace = _named(study, "trace", trace, write_trace)
    if isinstance(jobs, JobTable):
        jobs = _named(study, "jobs", jobs, write_jobs)
    if trace is not None:
        stated["node_trace"] = str(trace)
    if jobs is not None:
        stated["jobs"] = str(jobs)
    return stated


def _named(study: Study, what: str, value: Any, write: Any) -> Path:
    draft = study.folder / "inputs" / f".{what}"
    draft.mkdir(parents=True, exist_ok=True)
    file = draft / f"{what}.parquet"  # host jobs lie beside a trace
    write(value, file)
    folder = draft.with_name(f"{what}-{digest(file)[:16]}")
    if not folder.exists():
        draft.rename(folder)
    return folder / file.name
