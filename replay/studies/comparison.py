"""Variants of a replay side by side: a table of their figures, differences, and intervals of these."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
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
from bft.replay.results.host import SIZES, size_names
from bft.replay.studies.carry_out import Onlooker, Workers, carry_out
from bft.replay.studies.run_files import (
    DAY_NS,
    RunFiles,
    lost,
    read_run,
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


def interval(ours: Array, theirs: Array, *, least: int) -> Interval | None:
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

    def sentence(self) -> str:
        """The difference in words."""
        ours, theirs, value = self.variant, self.against, self.value
        if value is None:
            return f"{ours} and {theirs}: nothing to compare in {self.what}"
        much, time = ("much", "") if self.jobs is None else ("long", " time")
        if value > MAX_SHARE:
            change = f"{three_digits(1 + value)} times as {much}{{}} as"
        elif abs(value) < NONE_SHARE:
            change = f"as {much}{{}} as"
        else:
            more = "more" if value > 0 else "less"
            change = f"{100 * abs(value):.1f} % {more}{time}{{}} than"
        head = f"{ours} yields {change.format('')} {theirs}"
        if self.jobs is not None:
            under = change.format(f" under {ours}")
            head = f"the {self.jobs:,} jobs that both finish take {under} under {theirs}"  # fmt: skip
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
        `vc`, `user`, `model` or `size`: break the table down.
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
        some = (table.notna() & (table != 0)).any()
        return table.loc[:, some | (table.columns == "outcome")]

    @property
    def longest(self) -> RunFiles:
        """The run that ends last: a run ends when its jobs are done, so that it shows most of the trace."""
        runs = [run for variant in self.variants for run in variant.runs]
        return max(runs, key=lambda run: run.window[1])

    def best(self) -> dict[str, list[bool]]:
        """The best variants per column; none if all are equal, and none of U.

        U is relative to the same policy on dedicated nodes: a variant that does badly there too has a large U.
        """
        marks = {}
        for path in FIGURES if self.split is None else ():
            if path not in self.whole or path == "U":
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
        finish = {each.label: each.runs[0].jobs["finish"] for each in self.variants}
        table = pd.DataFrame(finish)
        return table if len(table) <= FEW_JOBS else None

    def cautions(self) -> list[str]:
        """Return cautions for readers of the table: rigid jobs that ask for more than is usually idle."""
        usual = usually_idle(self.longest.steps)
        labels: dict[str, list[str]] = {}
        for variant in self.variants:
            run, options = variant.runs[0], variant.runs[0].summary["options"]
            policy = options["policy"]
            rigid = policy in policy_names() and policy_type(policy).traits.rigid
            if options.get("cluster") is not None or not rigid:
                continue
            asked = run.jobs["units_asked"]
            large = asked[asked > usual]
            sizes = " to ".join(f"{size:,}" for size in sorted({large.min(), large.max()}))  # fmt: skip
            text = (
                f"{len(large):,} of {len(asked):,} jobs run on {sizes} units (Jreq) or not at all, but for half of the "
                f"time no more than {usual:,} are idle: the requests are compared too, not the policies alone; "
                f"--cap-units {max(usual, 1)} lets no job ask for more (docs/studies.md)"
            )
            if len(large):
                labels.setdefault(text, []).append(variant.label)
        return [f"{' and '.join(each)}: {text}" for text, each in labels.items()]

    def headline(self) -> str:
        """Say which variant trained most; or where all trained as much, under which jobs took least time."""
        table = self.whole.set_index("variant")
        outcomes = table["outcome"].sort_values(ascending=False, kind="stable")
        most, second, least = outcomes.iloc[[0, 1, -1]]
        name, other = outcomes.index[:2]
        if most > second * (1 + NONE_SHARE):
            more = f"{most / second - 1:.1%} more" if second else "more"
            others = f", the next of {len(table)}" if len(table) > 2 else ""
            return f"{name} trained most: {most:,.0f} samples, {more} than {other}{others}."
        if most > least * (1 + NONE_SHARE):
            return f"{name} and {other} trained most, {most:,.0f} samples each."
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
        base, *others = self.variants
        return [each for variant in others for each in _differences(variant, base, start, days)]  # fmt: skip

    def sentences(self) -> list[str]:
        """The differences in words."""
        return [difference.sentence() for difference in self.differences()]


def _differences(
    ours: Variant, theirs: Variant, start: int, days: int
) -> Iterator[Difference]:
    """Yield the differences in outcome and in times, over pairs of runs with the same seed.

    A variant with a single run is paired with each run of the other.
    """
    alone = len(ours.runs) == 1 or len(theirs.runs) == 1
    pairs = [
        (a, b)
        for a, b in product(ours.runs, theirs.runs)
        if alone or a.summary["options"]["seed"] == b.summary["options"]["seed"]
    ]
    work = [[work_by_day(run.steps, start, days) for run in pair] for pair in pairs]
    per_day, per_seed = np.sum(work, axis=0), np.sum(work, axis=2).T
    tables = []
    for number, (a, b) in enumerate(pairs):
        columns = {"ours": a.jobs["jct_s"], "theirs": b.jobs["jct_s"]}
        both = pd.DataFrame({**columns, "submit": a.jobs["submit"]}).dropna()
        tables.append(both.assign(seed=number, day=both["submit"].dt.floor("D")))
    times = pd.concat(tables)
    sums = [times.groupby(by)[["ours", "theirs"]].sum().to_numpy(float).T for by in ("day", "seed")]  # fmt: skip
    for what, (of_days, of_seeds), jobs in (
        ("outcome", (per_day, per_seed), None),
        ("jct", sums, times.index.nunique()),
    ):
        yield Difference(
            ours.label,
            theirs.label,
            what,
            relative(*of_days),
            interval(*of_days, least=MIN_DAYS),
            interval(*of_seeds, least=MIN_SEEDS),
            of_days.shape[1],
            of_seeds.shape[1],
            jobs,
        )


# What a comparison is broken down by, and the column of the jobs that states it.
SPLITS = {"vc": "vc", "user": "user", "model": "model", "size": "units_asked"}
NONE = "(none)"


def _split_of(split: str) -> tuple[str, list[int]]:
    """What to break down by, and the upper ends of the classes of sizes."""
    by, _, stated = str(split).partition(":")
    ends = [int(end) if end.isdecimal() else 0 for end in stated.split(",") if stated]
    rising = all(low < high for low, high in pairwise([0, *ends]))
    if by not in SPLITS or not rising or (ends and by != "size"):
        what = f"expected one of {', '.join(SPLITS)}, or sizes up to some as in size:8,64, not {split!r}"
        raise InputError(f"--split: {what}")
    return by, ends or [*SIZES]


def by_group(variants: Sequence[Variant], split: str) -> pd.DataFrame:
    """Return a table with one row per variant and group, over the jobs of all its runs.

    Raises
    ------
    InputError
        When no job states what is asked for.
    """
    tables = [
        run.jobs.assign(variant=variant.label)
        for variant in variants
        for run in variant.runs
    ]
    jobs = pd.concat(tables, ignore_index=True)
    by, ends = _split_of(split)
    known = jobs[SPLITS[by]].replace("", np.nan)
    if known.isna().all():
        raise InputError(f"--split {by}: no job states it")
    groups = known.fillna(NONE).map(str).tolist()
    order = sorted({*groups} - {NONE})
    if by == "size":
        order = size_names(ends)
        groups = [order[number] for number in np.searchsorted(ends, known)]
    jobs[by] = pd.Categorical(groups, [*order, NONE])
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
            "without_units_s.mean": ("without_units_s", "mean"),
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


def finish_cells(table: pd.DataFrame, zone: str) -> list[list[str]]:
    """The rows of a table of instants by job: a job's name, and when it was done under each variant, in a time zone."""
    local = table.apply(lambda column: column.dt.tz_convert(zone))
    told = local.apply(lambda column: column.dt.strftime("%Y-%m-%d %H:%M"))
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
        _split_of(split)
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
            runs = tuple(map(read_run, done))
            made.append(Variant(label, runs))
    if len(made) < 2:
        failed = [f"{label}: {error}" for label, error in account.failures.items()]
        what = f"only {len(made)} of {len(groups)} variants could be replayed: "
        raise InputError(what + "; ".join(failed))
    return Comparison(
        tuple(made), account.failures, account.notes, account.degraded, split
    )


def compared_runs(
    folders: Sequence[Path],
    *,
    split: str | None = None,
    different: bool = False,
    names: Sequence[str] = (),
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
    names
        What the runs are called instead.

    Raises
    ------
    InputError
        When one is not a run directory, there is only one, their inputs differ, or not each has a name of its own.
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
    if split is not None:
        _split_of(split)
    runs = [read_run(folder) for folder in folders]
    summaries = [run.summary for run in runs]
    labels = list(names) or names_of_runs(folders, summaries)
    if not len({*labels}) == len(labels) == len(folders):
        what = f"--name: expected {len(folders)} different names, one for each run"
        raise InputError(what)
    phrases = different_inputs(labels, summaries)
    if phrases and not different:
        raise InputError(
            f"the runs have different inputs: {'; '.join(phrases)}",
            hint="replay them on the same trace and jobs; --different-inputs compares them all the same",
        )
    variants = [Variant(label, (run,)) for label, run in zip(labels, runs, strict=True)]
    return Comparison(tuple(variants), split=split, different=tuple(phrases))
