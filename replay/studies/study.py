"""A study: its points in a fixed order, its folder of runs by the key of their configuration, and which is best."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from bft.models import InputError, write_parquet
from bft.models.checks import did_you_mean
from bft.models.files import drafted
from bft.replay.inputs.files import INPUTS, Files, input_digests
from bft.replay.options.naming import VARIANT, label_of
from bft.replay.options.options import FIELDS, Options
from bft.replay.results.figures import FIGURES
from bft.replay.results.run_directory import SUMMARY, plain
from bft.replay.run import versions
from bft.replay.trace.host_jobs import digest


@dataclass(frozen=True, slots=True)
class Point:
    """One fully specified replay.

    Parameters
    ----------
    index
        Position in the plan, from 0.
    options
        All options that determine the result.
    varied
        What distinguishes it from other points: stated values by flat option name; `variant` for the name of a
        variant, and `set NAME` for a constant of the policy.
    """

    index: int
    options: Options
    varied: dict[str, Any]

    @property
    def label(self) -> str:
        """Label of the point for users: its varied values."""
        return label_of(self.varied)


@dataclass(frozen=True, slots=True)
class Plan:
    """The points of a study, in order.

    Parameters
    ----------
    points
        Points; `index` is their position.

    Examples
    --------
    >>> plan = Plan.of({"policy": "fifo"}, {"tfwd_s": [30, 60], "max_jobs": [5, 0]})
    >>> [point.label for point in plan.points]
    ['-Tfwd 30, -maxJ 5', '-Tfwd 30, -maxJ 0', '-Tfwd 60, -maxJ 5', '-Tfwd 60, -maxJ 0']
    """

    points: tuple[Point, ...]

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any] | None = None,
        grid: Mapping[str, Sequence[Any]] | None = None,
        variants: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Plan:
        """Return all combinations of the grid's values, for each variant; the last option varies fastest.

        Parameters
        ----------
        options
            Options of all points, by flat name.
        grid
            Values by flat option name; `set NAME` for a constant of the policy.
        variants
            Named sets of options. They override `options`; the grid overrides both.

        Raises
        ------
        InputError
            When a value is not allowed or given twice, or a combination contradicts itself; names the point.
        """
        axes: dict[str, list[Any]] = {}
        for name, values in (grid or {}).items():
            option = f"${name}" if name in FIELDS else f"--{name}"
            if isinstance(values, str) or not isinstance(values, Iterable):
                what = f"{option}: expected a list of values, not {values!r}"
                raise InputError(what)
            if name not in FIELDS and not name.startswith("set "):
                raise InputError(f"unknown option {name!r}{did_you_mean(name, FIELDS)}")
            axes[name] = list(values)
            if not axes[name]:
                raise InputError(f"{option}: expected at least one value")
            twice = [each for each in axes[name] if axes[name].count(each) > 1]
            if twice:
                raise InputError(f"{option}: {twice[0]} is given twice")
        points: list[Point] = []
        named = variants or {"": {}}
        for (variant, own), *values in product(named.items(), *axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            varied = {VARIANT: variant} if variant else {}
            varied |= {name: each for name, each in chosen.items() if len(axes[name]) > 1}  # fmt: skip
            try:
                made = _absolute(Options(**_merged(options or {}, own, chosen)))
            except InputError as error:
                where = f"{label_of(varied)}: " if varied else ""
                raise InputError(f"{where}{error.what}", hint=error.hint) from None
            points.append(Point(len(points), made, varied))
        return cls(tuple(points))

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the options that vary."""
        return tuple(
            dict.fromkeys(name for point in self.points for name in point.varied)
        )


def _merged(*stated: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options by flat name, later ones override; constants of the policy are merged by name."""
    merged: dict[str, Any] = {}
    constants: dict[str, str] = {}
    for each in stated:
        for name, value in each.items():
            if name == "policy_options":
                constants |= dict(value)
            elif name.startswith("set "):
                constants[name.removeprefix("set ")] = value
            else:
                merged[name] = value
    return (
        {**merged, "policy_options": tuple(constants.items())} if constants else merged
    )


def _absolute(options: Options) -> Options:
    """Return options with absolute paths: a worker may run in another folder."""
    given = options.flat()
    for name in INPUTS:
        value = given[name]
        if isinstance(value, tuple):
            given[name] = tuple(str(Path(each).absolute()) for each in value)
        # A cluster may be a size, such as 8x8.
        elif value is not None and (name != "cluster" or Path(value).is_file()):
            given[name] = str(Path(value).absolute())
    return Options(**given)


def key_of(options: Options, files: Files) -> str:
    """The key of a replay's configuration: a digest of its options, the content of its inputs, and versions.

    The location of the inputs does not matter.
    """
    return _key(options.flat(), input_digests(options, files), versions())


def key_of_run(summary: Mapping[str, Any]) -> str:
    """The key of the replay that a summary is of."""
    digests = summary["inputs"]["digests_sha256"]
    return _key(summary["options"], digests, summary["versions"])


def _key(
    options: Mapping[str, Any], digests: Mapping[str, Any], of: Mapping[str, Any]
) -> str:
    stated = {name: value for name, value in options.items() if name not in digests}
    content = {"options": plain(stated), "inputs": digests, "versions": of}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


PLAN, RESULTS = "plan.json", "results.parquet"
RUNS, FAILED = "runs", "failed"
FORMAT, FORMAT_VERSION = "bft-replay plan", 1
DONE, FAILURE, MISSING = "done", "failed", "missing"


@dataclass(frozen=True, slots=True)
class Study:
    """A folder of runs: `runs/KEY` is the run directory of a configuration, `failed/KEY.json` records a failed one.

    Every entry is complete, and is reused by every study in this folder that asks for the same configuration.
    """

    folder: Path

    def run(self, key: str) -> Path:
        """The run directory of a configuration."""
        return self.folder / RUNS / key

    def summary(self, key: str) -> dict[str, Any] | None:
        """The summary of a finished run; None if there is none, or if the run is partial."""
        content = read_json(self.run(key) / SUMMARY) or {}
        metrics = content.get("metrics") or {"interrupted": True}
        partial = metrics.get("interrupted") or "policy_error" in metrics
        return None if partial else content

    def failure(self, key: str) -> str | None:
        """Why a run failed in its last attempt."""
        content = read_json(self.folder / FAILED / f"{key}.json")
        return None if content is None else str(content.get("error"))

    def record(self, key: str, error: str | None) -> None:
        """Record why a run failed; or None, that it did not."""
        file = self.folder / FAILED / f"{key}.json"
        if error is None:
            file.unlink(missing_ok=True)
        else:
            write_whole(file, json.dumps({"error": error}) + "\n")

    def keep(self, what: str, value: Any, write: Callable[[Any, Path], object]) -> Path:
        """Write an input that is in memory into the study, in a folder named by its content."""
        draft = self.folder / "inputs" / f".{what}"
        draft.mkdir(parents=True, exist_ok=True)
        file = draft / f"{what}.parquet"  # host jobs lie beside a trace
        write(value, file)
        folder = draft.with_name(f"{what}-{digest(file)[:16]}")
        if not folder.exists():
            draft.rename(folder)
        return folder / file.name

    def write_plan(self, plan: Plan) -> list[str]:
        """Write the plan and return the keys of its points.

        Raises
        ------
        InputError
            When an input is missing, or the folder cannot be written.
        """
        files = Files()
        keys = [key_of(point.options, files) for point in plan.points]
        points = [
            {
                "index": point.index,
                "key": key,
                "varied": point.varied,
                "options": point.options.flat(),
            }
            for point, key in zip(plan.points, keys, strict=True)
        ]
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "points": plain(points),
            "varied": list(plan.varied),
        }
        write_whole(
            self.folder / PLAN, json.dumps(content, indent=1, sort_keys=True) + "\n"
        )
        return keys

    def read_plan(self) -> tuple[Plan, list[str]]:
        """Return the plan, and the keys of its points at the time of planning.

        Raises
        ------
        InputError
            When there is no plan.
        """
        content = read_json(self.folder / PLAN)
        if content is None or content.get("format") != FORMAT:
            raise InputError(
                "no plan of a sweep; it is made of options to vary, as in `bft-replay sweep -Tfwd 10,30,60`",
                file=self.folder / PLAN,
            )
        points, keys = [], []
        for each in content["points"]:
            options = Options(**each["options"])
            values = {**each["varied"], **options.flat()}  # JSON has lists for tuples
            varied = {name: values[name] for name in each["varied"]}
            points.append(Point(each["index"], options, varied))
            keys.append(str(each["key"]))
        return Plan(tuple(points)), keys

    def frame(self, plan: Plan, keys: Sequence[str]) -> pd.DataFrame:
        """Results of the plan's points: `index`, `key`, `status` (done, failed, missing), `error`, options, metrics.

        One row per point, in order. A metric with the name of an option is called `metric.NAME`.
        """
        rows, metrics = [], []
        for point, key in zip(plan.points, keys, strict=True):
            summary = self.summary(key)
            error = None if summary is not None else self.failure(key)
            status = MISSING if error is None else FAILURE
            if summary is not None:
                status = DONE
            row = {"index": point.index, "key": key, "status": status, "error": error}
            options = point.options.flat()
            # Varied, but no options: the name of a variant, and constants of a policy.
            row |= {n: each for n, each in point.varied.items() if n not in options}
            for name, value in options.items():
                is_list = isinstance(value, tuple)
                row[name] = json.dumps(plain(value)) if is_list else value
            rows.append(row)
            metrics.append(dict(flat({} if summary is None else summary["metrics"])))
        frame, figures = pd.DataFrame(rows), pd.DataFrame(metrics)
        figures = figures.rename(columns={name: f"metric.{name}" for name in frame})
        whole = pd.concat([frame, figures.sort_index(axis=1)], axis=1)
        return whole.infer_objects()

    def collect(self, plan: Plan, keys: Sequence[str]) -> pd.DataFrame:
        """Write the frame to results.parquet, and return it."""
        frame = self.frame(plan, keys)
        with drafted(self.folder / RESULTS) as draft:
            write_parquet(frame, draft)
        return frame


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and texts of nested metrics by dotted name: `mean` in `jct_s` is `jct_s.mean`."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            yield prefix + name, value


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file does not exist."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_whole(path: Path, text: str) -> None:
    """Write a text in one step: readers see the old or the new version, also after a kill.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    with drafted(path) as draft:
        draft.write_text(text, encoding="utf-8")


def best(
    frame: pd.DataFrame,
    varied: Sequence[str],
    metric: str = "U",
    by: Sequence[str] = (),
) -> pd.DataFrame:
    """Say which values are best, over all other options that vary.

    Parameters
    ----------
    frame, varied
        Results of a sweep, and the names of its varied options.
    metric
        The figure to compare (`bft.replay.results.figures`).
    by
        Options whose combinations of values are the rows; by default all varied options except seeds.

    Returns
    -------
    DataFrame
        Best first: the values; `points`; `mean`, `low` and `high` of the metric over them (the spread); `wins`, the
        number of settings of all other options in which no other row was better.

    Raises
    ------
    InputError
        When there is no such metric, or an option does not vary.

    Examples
    --------
    >>> import pandas as pd
    >>> results = {"status": ["done"] * 4, "tfwd_s": [10, 10, 60, 60], "seed": [0, 1, 0, 1], "U": [0.6, 0.7, 0.8, 0.7]}
    >>> best(pd.DataFrame(results), ["tfwd_s", "seed"])[["tfwd_s", "points", "mean", "wins"]].round(2).values.tolist()
    [[60.0, 2.0, 0.75, 2.0], [10.0, 2.0, 0.65, 1.0]]
    """
    done = frame[frame["status"] == "done"]
    known = [name for name in FIGURES if name in done and done[name].notna().any()]
    if metric not in known:
        why = f"no point has a {metric}"
        if metric not in FIGURES:
            why = f"no metric {metric!r}{did_you_mean(metric, known)}"
        raise InputError(f"--best: {why}; there are {', '.join(known)}")
    for name in by:
        if name not in varied:
            raise InputError(
                f"--by: the sweep does not vary {name!r}; it varies {', '.join(varied) or 'nothing'}"
            )
    chosen = list(by) or [name for name in varied if name != "seed"] or list(varied)
    if not chosen:
        raise InputError("the sweep has one point: nothing was varied")
    less = not FIGURES[metric].more
    others = [name for name in varied if name not in chosen]
    valued = done[done[metric].notna()]
    table = valued.groupby(chosen, sort=False, dropna=False)[metric].agg(
        points="count", mean="mean", low="min", high="max"
    )
    by_all = valued.groupby([*chosen, *others], sort=False, dropna=False)[metric]
    means = by_all.mean().reset_index()
    alike = means.groupby(others or (lambda _: 0), dropna=False)[metric]
    means["won"] = means[metric] == alike.transform("min" if less else "max")
    wins = means.groupby(chosen, sort=False, dropna=False)["won"].sum()
    told = pd.DataFrame(table).assign(wins=wins.to_numpy()).reset_index()
    return told.sort_values("mean", ascending=less, kind="stable", ignore_index=True)
