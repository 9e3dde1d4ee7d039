"""Compare: several policies, objectives, backends or options on the same trace and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bft.models import InputError, JobTable, write_jobs
from bft.replay.inputs.files import Files, digest
from bft.replay.options.naming import different_inputs, label_of, names_of_runs
from bft.replay.results.run_reading import read_summary
from bft.replay.studies.breakdown import Split
from bft.replay.studies.carry_out import Onlooker, carry_out
from bft.replay.studies.comparison import Comparison, Variant, runs_of
from bft.replay.studies.executors import Workers, local
from bft.replay.studies.points import Plan, Point, key_of
from bft.replay.studies.study import Study
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import write_trace


def compare(
    trace: str | Path | NodeTrace | None = None,
    jobs: str | Path | JobTable | None = None,
    variants: Mapping[str, Mapping[str, Any]] | Sequence[str] = (),
    *,
    options: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (),
    study: str | Path = "compare-study",
    workers: int | None = None,
    split: str | None = None,
) -> Comparison:
    """Replay the same trace and jobs in several ways, in parallel.

    Parameters
    ----------
    trace, jobs
        Files, or their content; the bundled ones by default.
    variants
        For each variant name, options by their flat names (as in summary.json); or names of policies.
    options
        Options of all variants.
    seeds
        Each variant is replayed with each of these.
    study
        Folder of the runs; existing runs are reused.
    workers
        Number of processes; by default the number of processors. 0 runs everything in this process.
    split
        Break the table down by `vc`, `user`, `model`, `size`, or sizes up to bounds as in `size:8,64`.

    Returns
    -------
    Comparison
        `.frame` is the table; `.differences()` and `.sentences()` compare the other variants with the first.

    Raises
    ------
    InputError
        When a value is not allowed, or fewer than two variants could be replayed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     found = compare(variants=["fifo", "srtf"], options={"dedicated": False}, study=folder, workers=0)
    ...     found.frame[["variant", "jobs_finished"]].to_dict("list")
    {'variant': ['fifo', 'srtf'], 'jobs_finished': [25.0, 31.0]}
    """
    place = Study(Path(study))
    common = {**inputs(place, trace, jobs), **(options or {})}
    named = (
        variants
        if isinstance(variants, Mapping)
        else {name: {"policy": name} for name in variants}
    )
    plan = Plan.of(common, {"seed": list(seeds)} if seeds else {}, named)
    return compared(place, plan, local(workers), split=split)


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
        groups.setdefault(_variant(point), []).append(point)
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


def _variant(point: Point) -> str:
    """Return the label of a point's variant: its varied values apart from the seed."""
    return label_of(
        {name: value for name, value in point.varied.items() if name != "seed"}
    )


def inputs(
    study: Study,
    trace: str | Path | NodeTrace | None,
    jobs: str | Path | JobTable | None,
) -> dict[str, Any]:
    """Options for trace and jobs; inputs in memory are written to the study, named by their content."""
    stated: dict[str, Any] = {}
    if trace is not None:
        stated["node_trace"] = (
            _named(study, "trace", trace, write_trace)
            if isinstance(trace, NodeTrace)
            else trace
        )
    if jobs is not None:
        stated["jobs"] = (
            _named(study, "jobs", jobs, write_jobs)
            if isinstance(jobs, JobTable)
            else jobs
        )
    return {name: str(value) for name, value in stated.items()}


def _named(study: Study, what: str, value: Any, write: Any) -> Path:
    folder = study.folder / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{what}.parquet"
    write(value, draft)
    return draft.rename(folder / f"{what}-{digest(draft)[:16]}.parquet")
