"""Compare: several policies, objectives, backends or options on the same trace and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bft.models import InputError, JobTable, write_jobs
from bft.replay.inputs.files import Files, digest
from bft.replay.options.naming import different_inputs, label_of, names_of_runs
from bft.replay.results.run_directory import SUMMARY
from bft.replay.results.run_reading import damage_named, read_summary
from bft.replay.studies.carry_out import Onlooker, carry_out
from bft.replay.studies.comparison import Comparison, Variant, runs_of
from bft.replay.studies.executors import Workers
from bft.replay.studies.points import Plan, Point, key_of
from bft.replay.studies.run_tables import Split
from bft.replay.studies.study import Study
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import write_trace


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


def _variant(point: Point) -> str:
    """Return the label of a point's variant: its varied values apart from the seed."""
    return label_of(
        {name: value for name, value in point.varied.items() if name != "seed"}
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
    folder = study.folder / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{what}.parquet"
    write(value, draft)
    return draft.rename(folder / f"{what}-{digest(draft)[:16]}.parquet")
