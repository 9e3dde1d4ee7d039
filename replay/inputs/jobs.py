"""The jobs of a run: read, or made to the size of the trace; what their table lacks; and when they are submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from bft.datasets import generate_dnn_jobs
from bft.models import (
    InputError,
    JobTable,
    jobs_from_frame,
    read_jobs,
    read_published_jobs,
)
from bft.models.checks import cluster_nodes
from bft.models.jobs import different_rates, joined, long_rescales, shown_sizes
from bft.replay.inputs.files import Files
from bft.replay.inputs.notes import Watcher
from bft.replay.inputs.shaping import apart, shaped
from bft.replay.inputs.trace import bundled
from bft.replay.options.options import Options
from bft.replay.options.table import JOB_FORMATS, POLLUX_READING
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import half_of_idle

# Objectives under which a fast model's samples count for as much as a slow one's.
ADDS_SAMPLES = ("own", "throughput", "power:0")


def jobs_of(
    options: Options,
    trace: NodeTrace | None,
    notes: Watcher,
    files: Files,
) -> JobTable:
    """Read or make the jobs, and shape them by the options; `trace` is None on a fixed cluster."""
    if options.job_bounds is not None and options.job_curves is not None:
        jobs = files.once(read_published_jobs, options.job_bounds, options.job_curves)
    elif "jobs" in files.held:
        jobs = files.held["jobs"]
    elif options.jobs is not None:
        paths = options.jobs if isinstance(options.jobs, tuple) else (options.jobs,)
        jobs = joined([_read(options, path, files) for path in paths])
    elif options.node_trace is None or trace is None:
        _, jobs = files.once(bundled)
    else:
        jobs = default_workload(trace)
    if not len(jobs):
        raise InputError("the job table is empty", file=jobs.source or None)
    for note in (*jobs.notes, *_on_models(options, jobs)):
        notes.note(note)
    return shaped(jobs, options, notes)


def _read(options: Options, path: str, files: Files) -> JobTable:
    if options.jobs_format == "native":
        return files.once(read_jobs, path)
    module, name = JOB_FORMATS[options.jobs_format].split(":")
    read: Callable[..., JobTable] = getattr(import_module(module), name)
    if options.jobs_format != "pollux":
        return files.once(read, path)
    how: dict[str, Any] = {**POLLUX_READING.get(options.compat or "", {})}
    if parts := cluster_nodes(options.cluster or ""):
        how["units_per_node"] = {part.kind: part.units for part in parts}
    return files.once(read, path, options.applications, **how)


def _on_models(options: Options, jobs: JobTable) -> Iterator[str]:
    """Say where --option unit-memory changes nothing, costs look wrong, and samples of models should not be added."""
    known = options.xi is not None or "unit_memory_gib" in options.policy_type.settings
    needed = any(job.total_memory_gib for job in jobs)
    if options.unit_memory_gib is not None and not known and not needed:
        yield (
            "--option unit-memory has no effect without --xi on jobs without total_memory_gib"
        )
    if text := long_rescales(jobs):
        yield text
    curve = options.objective.partition("+")[0]
    if curve in ADDS_SAMPLES and (text := different_rates(jobs)):
        yield text


def job_notes(options: Options, jobs: JobTable) -> Iterator[str]:
    """Yield which options have no effect on jobs without deadlines, and how many jobs run on some sizes only.

    Raises
    ------
    InputError
        For such jobs in a replay as published, which knows nothing of sizes.
    """
    if all(job.deadline_ns is None for job in jobs):
        if options.deadline_boost > 1:
            yield "--option deadline-boost has no effect on jobs without deadlines"
        if options.rules.admission != "all":
            yield "--option admission has no effect on jobs without deadlines"
    sized = [job for job in jobs if job.sizes is not None]
    if not sized:
        return
    first, sizes = sized[0].name, shown_sizes(sized[0].sizes or ())
    if options.published:
        what = "the published replayer knows no sizes: leave out the column or $compat"
        raise InputError(what, file=jobs.source or None, column="sizes", job=first)
    yield (
        f"{len(sized):,} of {len(jobs):,} jobs run on some sizes only (first: {first}, {sizes}); on any other number "
        "of units they make no progress"
    )


def fitted(
    trace: NodeTrace, jobs: JobTable, notes: Watcher, options: Options
) -> JobTable:
    """Return the jobs, shifted if `align_jobs` asks for it; refuse a table of which no job can run in this trace.

    With `oversized=wait`, as in a watch, jobs wait for whatever comes, and however long they have waited before.
    """
    start, end = trace.start, trace.end
    if start == end:
        raise InputError(
            f"no time passes in the trace: it is of one instant, {_second(start)}",
            file=trace.source,
        )
    first = min(job.tsub_ns for job in jobs)
    if options.align_jobs:
        jobs = jobs.at(job.tsub_ns + start - first for job in jobs)
        direction = "later" if start >= first else "earlier"
        notes.note(
            f"--option align-jobs=yes: all jobs are submitted {apart(abs(start - first))} {direction}"
        )
        first = start
    late = sum(job.tsub_ns >= end for job in jobs)
    early = [start - job.tsub_ns for job in jobs if job.tsub_ns < start]
    outside = ""
    if late == len(jobs):
        outside = f"after the trace ends ({_second(first)} and later; the trace ends at {_second(end)})"
    if len(early) == len(jobs) and min(early) > end - start:
        outside = (
            f"{apart(min(early))} or more before the trace begins ({_second(start)}), which is {apart(end - start)} "
            "long"
        )
    if outside and options.oversized != "wait":
        raise InputError(
            f"all jobs are submitted {outside}",
            file=jobs.source or None,
            column="Tsub",
            hint="$align_jobs shifts them so that the first is submitted when the trace begins",
        )
    if late:
        notes.note(
            f"{late} of {len(jobs)} jobs are submitted after the trace ends and never run"
        )
    if early:
        notes.note(
            f"{len(early)} of {len(jobs)} jobs are submitted before the trace begins, by up to {apart(max(early))}: "
            "they wait for it, which counts as queueing; --option align-jobs=yes shifts all jobs"
        )
    beyond = [job for job in jobs if job.jmax > job.scalability.last]
    if beyond:
        notes.note(
            f"{len(beyond)} jobs have a Jmax beyond the last point of their curve, which is held constant there "
            f"(first: {beyond[0].name})"
        )
    return jobs


def _second(instant_ns: int) -> str:
    return str(np.datetime64(instant_ns // SECOND_NS, "s"))


# Work of a training of the paper, images: 100 epochs of ImageNet.
PAPER_PMAX = 1.3e8
# Fewer jobs do not compete for nodes, more only cost time; their work is scaled so that the load is the same.
MIN_JOBS, MAX_JOBS = 10, 10_000
# Unit-seconds that the jobs need over those that the trace offers: more would only wait, less would leave nodes unused.
LOAD = 1.0


def default_workload(trace: NodeTrace) -> JobTable:
    """Return trainings that together need as much as the trace offers, submitted evenly over it."""
    start = str(np.datetime_as_string(np.datetime64(trace.start, "ns")))
    wanted = LOAD * trace.idle_unit_seconds()
    models = jobs_from_frame(
        generate_dnn_jobs(jobs=7, first_submit=start, pmax=PAPER_PMAX)
    )  # one of each network
    fitting = round(wanted / (_needed_unit_seconds(models) / len(models)))
    count = min(max(fitting, MIN_JOBS), MAX_JOBS)
    interval_s = round(trace.duration_s / count, 3)
    frame = generate_dnn_jobs(
        jobs=count, first_submit=start, interval_s=interval_s, pmax=PAPER_PMAX
    )
    scale = wanted / _needed_unit_seconds(jobs_from_frame(frame))
    frame["Pmax"] *= scale
    made = jobs_from_frame(frame, source=f"generated: {count} DNN trainings")
    jobs = made.asking_at_most(half_of_idle(trace))
    note = (
        f"no jobs given: {count:,} generated image-recognition trainings, one every {interval_s:,.0f} s, of "
        f"{PAPER_PMAX * scale:,.0f} images each: a load of {load_of(jobs, trace):.2f}. How long they wait and take "
        "describes this workload, not yours; give your own with --jobs, or -bdfn and -scfn"
    )
    return replace(jobs, notes=(note,))


def load_of(jobs: JobTable, trace: NodeTrace) -> float:
    """Unit-seconds that jobs need, on as few units as they run on, over those that the trace offers."""
    return _needed_unit_seconds(jobs) / trace.idle_unit_seconds()


def _needed_unit_seconds(jobs: JobTable) -> float:
    """Unit-seconds that jobs need on as few units as they run on, where their speed-up is best."""
    needed = 0.0
    for job in jobs:
        fewest = max(job.jmin, 1)
        rate = float(job.rates[fewest])
        needed += fewest * job.pmax / rate if rate else 0.0
    return needed
