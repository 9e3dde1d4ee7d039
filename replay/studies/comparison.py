"""Variants of a replay side by side: a table of their figures, differences, and intervals of these."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.tolerances import SAME_RESULT
from bft.models.writing import three_digits
from bft.replay.inputs.files import Files
from bft.replay.options.naming import (
    different_inputs,
    label_of,
    names_of_runs,
)
from bft.replay.policies.registry import policy_names, policy_type
from bft.replay.results.figures import FIGURES
from bft.replay.results.headlines import FEW_JOBS
from bft.replay.studies.carry_out import Onlooker, Workers, carry_out
from bft.replay.studies.run_files import (
    DAY_NS,
    RunFiles,
    lost,
    usually_idle,
    work_by_day,
)
from bft.replay.studies.study import Plan, Point, Study, key_of

# With fewer pairs an interval means nothing: 7 days show the spread of a week, 5 seeds a first idea of theirs.
MIN_DAYS, MIN_SEEDS = 7, 5
CONFIDENCE = 0.95
SEED = 0
# A relative difference above the first is said as a factor; one below the second is none.
MAX_SHARE, NONE_SHARE = 1.0, 5e-4
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
        found = bootstrap(
            (ours, theirs),
            statistic,
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            random_state=np.random.default_rng(SEED),
        ).confidence_interval
    if not np.isfinite([found.low, found.high]).all():
        return None
    return Interval(float(found.low), float(found.high), pairs)


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of a comparison: its label, and one run per seed."""

    label: str
    runs: tuple[RunFiles, ...]

    def mean(self, path: str) -> float | None:
        """The mean of a figure over the runs; None where one of them has none."""
        values = [FIGURES[path].of(run.metrics) for run in self.runs]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None


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

    @classmethod
    def of(
        cls,
        names: tuple[str, str],
        what: str,
        days: tuple[Array, Array],
        seeds: tuple[Array, Array],
        jobs: int | None = None,
    ) -> Difference:
        """Compare sums over days, of which there are intervals, and over seeds."""
        return cls(
            *names,
            what,
            relative(*days),
            interval(*days, MIN_DAYS),
            interval(*seeds, MIN_SEEDS),
            len(days[0]),
            len(seeds[0]),
            jobs,
        )

    def sentence(self) -> str:
        """The difference in words."""
        ours, theirs = self.variant, self.against
        if self.value is None:
            return f"{ours} and {theirs}: nothing to compare in {self.what}"
        is_outcome, link = self.what == "outcome", "as"
        change = "as much" if is_outcome else "as long"
        if self.value > MAX_SHARE:
            change = f"{three_digits(1 + self.value)} times {change}"
        elif abs(self.value) >= NONE_SHARE:
            more = "more" if self.value > 0 else "less"
            time = "" if is_outcome else " time"
            change, link = (
                f"{abs(self.value):.1%} {more}{time}".replace("%", " %"),
                "than",
            )
        head = f"{ours} yields {change} {link} {theirs}"
        if not is_outcome:
            head = f"the {self.jobs:,} jobs that both finish take {change} under {ours} {link} under {theirs}"
        parts = [head, self._spread(self.days, self.count_days, "days", MIN_DAYS)]
        if self.count_seeds > 1:
            parts.append(self._spread(self.seeds, self.count_seeds, "seeds", MIN_SEEDS))
        return "; ".join(parts)

    def _spread(self, found: Interval | None, count: int, what: str, least: int) -> str:
        """An interval over days or seeds in words."""
        if found is None:
            return f"too few of the {count} {what} have anything for an interval (at least {least})"
        value, ends = self.value or 0.0, (found.low, found.high)
        if value > MAX_SHARE:
            told = f"{' to '.join(three_digits(1 + end) for end in ends)} times"
        else:
            low, high = sorted(100 * end * (-1 if value < 0 else 1) for end in ends)
            unclear = ", which includes none" if low < 0 < high else ""
            told = f"{low:.1f} to {high:.1f} %{unclear}"
        return f"the {found.pairs} {what}' 95 % interval is {told}"


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
        return self.whole if self.split is None else by_group(self.variants, self.split)

    @cached_property
    def whole(self) -> pd.DataFrame:
        """Table with one row per variant: the figures (`bft.replay.results.figures`) that any has, means over seeds."""
        rows = [
            {
                "variant": variant.label,
                "seeds": len(variant.runs),
                **{path: variant.mean(path) for path in FIGURES},
                "jobs": variant.runs[0].metrics["jobs"],
            }
            for variant in self.variants
        ]
        table = pd.DataFrame(rows)
        return table.loc[:, (table.notna() & (table != 0)).any()]

    @property
    def longest(self) -> RunFiles:
        """The run that ends last: a run ends when its jobs are done, so that it shows most of the trace."""
        runs = [run for variant in self.variants for run in variant.runs]
        return max(runs, key=lambda run: run.window[1])

    @cached_property
    def jobs(self) -> dict[str, pd.DataFrame]:
        """Tables of jobs by label of variant, those of all its runs in one."""
        return {
            variant.label: pd.concat([run.jobs for run in variant.runs])
            for variant in self.variants
        }

    def best(self) -> dict[str, list[bool]]:
        """The best variants per column; none if all are equal, and none of U where the variants compare with others.

        U is relative to the same policy on dedicated nodes: a variant that does badly there too has a large U.
        """
        runs = [run for variant in self.variants for run in variant.runs]
        alone = {run.metrics.get("dedicated_outcome") for run in runs}
        marks = {}
        for path in FIGURES if self.split is None else ():
            if path not in self.whole or (path == "U" and len(alone) > 1):
                continue
            values = self.whole[path].astype(float)
            top = values.max() if FIGURES[path].more else values.min()
            found = np.isclose(values, top, rtol=SAME_RESULT, atol=0)
            marks[path] = (found & ~found.all()).tolist()
        return marks

    @cached_property
    def finishes(self) -> pd.DataFrame | None:
        """When each job finished (UTC) under each variant; None for more than 20 jobs, and of several seeds."""
        if any(len(variant.runs) > 1 for variant in self.variants):
            return None
        finish = {label: jobs["finish"] for label, jobs in self.jobs.items()}
        table = pd.DataFrame(finish)
        return table if len(table) <= FEW_JOBS else None

    def cautions(self) -> list[str]:
        """Return cautions for readers of the table: rigid jobs that ask for more than is usually idle."""
        usual = usually_idle(self.longest.steps)
        asked: dict[str, list[str]] = {}
        for variant in self.variants:
            text = _asks_too_much(variant.runs[0], usual)
            if text is not None:
                asked.setdefault(text, []).append(variant.label)
        return [f"{' and '.join(labels)}: {text}" for text, labels in asked.items()]

    def headline(self) -> str:
        """Say which variant trained most; or where all trained as much, under which jobs took least time."""
        table = self.whole.set_index("variant")
        outcomes = table["outcome"].sort_values(ascending=False, kind="stable")
        most, second, least = outcomes.iloc[0], outcomes.iloc[1], outcomes.iloc[-1]
        if most > second * (1 + NONE_SHARE):
            more = f"{most / second - 1:.1%} more" if second else "more"
            name, other = outcomes.index[:2]
            others = f", the next of {len(table)}" if len(table) > 2 else ""
            return f"{name} trained most: {most:,.0f} samples, {more} than {other}{others}."
        if most > least * (1 + NONE_SHARE):
            best = " and ".join(outcomes.index[:2])
            return f"{best} trained most, {most:,.0f} samples each."
        figure = FIGURES["jct_s.mean"]
        if figure.path not in table:
            return "All trained as much."
        times = table[figure.path].dropna().sort_values(kind="stable")
        best, worst = map(figure.text, times.iloc[[0, -1]])
        return (
            f"All trained as much; jobs took least time under {times.index[0]}: {best} in the mean, against {worst} "
            f"under {times.index[-1]}."
        )

    def differences(self) -> list[Difference]:
        """Table of each variant relative to the first: outcome, and completion times of jobs that both finish."""
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


def _asks_too_much(run: RunFiles, usual: int) -> str | None:
    """Say how many jobs of a rigid policy ask for more units than are usually idle; None where none do."""
    options = run.summary["options"]
    policy = options["policy"]
    rigid = policy in policy_names() and policy_type(policy).traits.rigid
    if options.get("cluster") is not None or not rigid:
        return None
    asked = run.jobs["units_asked"]
    large = asked[asked > usual]
    if large.empty:
        return None
    low, high = int(large.min()), int(large.max())
    sizes = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"{len(large):,} of {len(asked):,} jobs run on {sizes} units (Jreq) or not at all, but for half of the time no "
        f"more than {usual:,} are idle: the requests are compared too, not the policies alone; --cap-units "
        f"{max(usual, 1)} lets no job ask for more (docs/studies.md)"
    )


def _pairs(ours: Variant, theirs: Variant) -> Iterator[tuple[RunFiles, RunFiles]]:
    """Pairs of runs with the same seed; a variant with a single run is paired with each run of the other."""
    alone = len(ours.runs) == 1 or len(theirs.runs) == 1
    for a in ours.runs:
        for b in theirs.runs:
            if alone or a.summary["options"]["seed"] == b.summary["options"]["seed"]:
                yield a, b


def _of_outcome(variant: Variant, base: Variant, start: int, days: int) -> Difference:
    work = [
        [work_by_day(run.steps, start, days) for run in pair]
        for pair in _pairs(variant, base)
    ]
    ours, theirs = np.array(work).reshape(-1, 2, days).swapaxes(0, 1)
    of_days, of_seeds = (ours.sum(0), theirs.sum(0)), (ours.sum(1), theirs.sum(1))
    return Difference.of((variant.label, base.label), "outcome", of_days, of_seeds)


def _of_times(variant: Variant, base: Variant) -> Difference:
    tables = []
    for number, (a, b) in enumerate(_pairs(variant, base)):
        columns = {"ours": a.jobs["jct_s"], "theirs": b.jobs["jct_s"]}
        both = pd.DataFrame({**columns, "submit": a.jobs["submit"]}).dropna()
        tables.append(both.assign(seed=number, day=both["submit"].dt.floor("D")))
    whole = pd.concat(tables)

    def summed(by: str) -> tuple[Array, Array]:
        sums = whole.groupby(by)[["ours", "theirs"]].sum()
        return sums["ours"].to_numpy(float), sums["theirs"].to_numpy(float)

    names, count = (variant.label, base.label), whole.index.nunique()
    return Difference.of(names, "jct", summed("day"), summed("seed"), count)


# What a comparison is broken down by, and the column of the jobs that states it.
SPLITS = {"vc": "vc", "user": "user", "model": "model", "size": "units_asked"}
NONE = "(none)"


def split_of(text: str) -> tuple[str, list[int]]:
    """What `--split` asks for, and the upper bounds of sizes, if any.

    Raises
    ------
    InputError
        When it is none of `SPLITS`, or its bounds do not rise.

    Examples
    --------
    >>> split_of("size:8,64")
    ('size', [8, 64])
    """
    by, colon, stated = str(text).partition(":")
    parts = stated.split(",") if colon else []
    bounds = [int(part) if part.strip().isdecimal() else 0 for part in parts]
    rising = all(low < high for low, high in pairwise([0, *bounds]))
    if by not in SPLITS or (colon and by != "size") or not rising:
        raise InputError(
            f"--split: expected one of {', '.join(SPLITS)}, or sizes such as size:8,64, not {text!r}"
        )
    return by, bounds


def _groups(column: pd.Series, bounds: list[int]) -> pd.Series:
    """The group of each job by a column, as a category in order; sizes are put into classes up to bounds."""
    known = column[column.notna() & (column != "")]
    if column.name == "units_asked" and len(known):
        powers = [2**power for power in range((int(known.max()) - 1).bit_length() + 1)]
        edges = bounds or powers
        lows = [1, *(edge + 1 for edge in edges)]
        pairs = zip(lows, edges, strict=False)
        names = [f"{low}-{high}" if low < high else str(low) for low, high in pairs]
        order = [*names, f"over {edges[-1]}"]
        groups = pd.cut(known, [0, *edges, np.inf], labels=order).astype(object)
    else:
        groups = known.map(str)
        order = [str(value) for value in sorted(known.unique())]
    filled = groups.reindex(column.index).fillna(NONE)
    return pd.Series(pd.Categorical(filled, [*order, NONE]))


def by_group(variants: Sequence[Variant], split: str) -> pd.DataFrame:
    """Return a table with one row per variant and group, over the jobs of all its runs.

    Raises
    ------
    InputError
        When no job states what is asked for, or `split` is nothing that a comparison is broken down by.
    """
    by, bounds = split_of(split)
    tables = [
        run.jobs.join(run.waits).assign(variant=variant.label)
        for variant in variants
        for run in variant.runs
    ]
    jobs = pd.concat(tables, ignore_index=True)
    jobs[by] = _groups(jobs[SPLITS[by]], bounds)
    if (jobs[by] == NONE).all():
        raise InputError(f"--split {split}: no job states it")
    runs = {variant.label: len(variant.runs) for variant in variants}
    jobs["variant"] = pd.Categorical(jobs["variant"], list(runs))
    jobs["lost"] = lost(jobs)
    jobs["restarts"] = jobs["restarts"].where(jobs["start"].notna())
    # A mean is of the jobs that have the value: JCT of those that finished, queueing of those that started.
    table = jobs.groupby(["variant", by], observed=True).agg(
        **{
            "jobs": ("work", "size"),
            "jobs_finished": ("finish", "count"),
            "outcome": ("work", "sum"),
            "lost": ("lost", "sum"),
            "unit_hours": ("unit_seconds", "sum"),
            "jct_s.mean": ("jct_s", "mean"),
            "jct_s.p95": ("jct_s", lambda values: values.quantile(0.95)),
            "queueing_s.mean": ("queueing_s", "mean"),
            "without_units_s.mean": ("waiting_s", "mean"),
            "longest_wait_s": ("longest_wait_s", "max"),
            "restarts_per_job": ("restarts", "mean"),
        }
    )
    sums = ["jobs_finished", "outcome", "lost", "unit_hours"]
    count = table.index.get_level_values("variant").map(runs).astype(int)
    table[sums] = table[sums].div(count, axis=0)
    table["jobs"] //= count
    table["unit_hours"] /= 3600
    return table.reset_index().astype({"variant": str, by: str})


def table_of(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of a comparison for people; the best of each column has a star."""
    frame, best = comparison.frame, comparison.best()
    shown = [name for name in frame if name != "seeds" or frame["seeds"].max() > 1]
    titles, columns = [], []
    for name in map(str, shown):
        figure = FIGURES.get(name)
        titles.append("" if name == "variant" else figure.heading if figure else name)
        write = figure.text if figure else _plain
        marks = (
            [" *"[mark] for mark in best[name]] if name in best else [""] * len(frame)
        )
        cells = zip(frame[name], marks, strict=True)
        columns.append([f"{write(value)}{mark}" for value, mark in cells])
    return titles, [list(row) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else three_digits(value)


def finish_cells(table: pd.DataFrame) -> list[list[str]]:
    """The rows of a table of instants by job: a job's name, and when it was done under each variant."""
    told = table.apply(lambda column: column.dt.strftime("%Y-%m-%d %H:%M"))
    cells = told.fillna("not done").itertuples()
    return [[str(name), *instants] for name, *instants in cells]


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
        split_of(split)
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
    keys = [key_of(point.options, files) for point in plan.points]
    account = carry_out(
        study, plan, keys, workers, whole=True, again=again, onlooker=onlooker
    )
    made = []
    for label, points in groups.items():
        mine = [keys[point.index] for point in points]
        done = [study.run(key) for key in mine if study.summary(key)]
        if done:
            runs = tuple(map(RunFiles.read, done))
            made.append(Variant(label, runs))
    if len(made) < 2:
        failed = [f"{label}: {error}" for label, error in account.failures.items()]
        what = f"only {len(made)} of {len(groups)} variants could be replayed: "
        raise InputError(what + "; ".join(failed))
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
    runs = [RunFiles.read(folder) for folder in folders]
    summaries = [run.summary for run in runs]
    labels = names_of_runs(folders, summaries)
    phrases = different_inputs(labels, summaries)
    if phrases and not different:
        raise InputError(
            f"the runs have different inputs: {'; '.join(phrases)}",
            hint="replay them on the same trace and jobs; --different-inputs compares them all the same",
        )
    variants = [Variant(label, (run,)) for label, run in zip(labels, runs, strict=True)]
    return Comparison(tuple(variants), split=split, different=tuple(phrases))
