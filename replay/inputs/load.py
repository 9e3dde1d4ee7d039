"""From options to the inputs of a replay: the trace, the jobs (read or made, then shaped by options), who may share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module

import numpy as np

from bft.datasets import generate_dnn_jobs, load_bundled
from bft.models import (
    InputError,
    JobTable,
    jobs_from_frame,
    read_jobs,
    read_published_jobs,
    read_unit_memory,
    read_xi,
)
from bft.models.cells import Rows
from bft.models.checks import cluster_nodes
from bft.models.jobs import different_rates, joined, long_rescales, shown_sizes
from bft.models.tables import read_table, trusting_pickles
from bft.replay.engine.rules import Interference
from bft.replay.inputs.files import Files, InMemoryInputs, input_digests
from bft.replay.inputs.notes import NoteTaker
from bft.replay.inputs.shaping import apart, fit_sizes, shaped
from bft.replay.options.options import Options
from bft.replay.options.presets import JOB_FORMATS, POLLUX_READING
from bft.replay.pools import Pool, cluster_pools
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.outlook import Outlook
from bft.replay.trace.parts import of_class
from bft.replay.trace.trace_files import read_trace, select_nodes, trace_from_frame
from bft.replay.trace.trace_statistics import half_of_idle

# Objectives under which a fast model's samples count for as much as a slow one's.
ADDS_SAMPLES = ("own", "throughput", "power:0")
# The published replayer skips the rows of its matrix before row 1,000.
PUBLISHED_SKIP_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a replay, and their sources.

    Parameters
    ----------
    pools
        The virtual clusters, one for a node trace.
    jobs
        All jobs.
    digests
        SHA-256 of each input, by the option that names it.
    interference
        Who slows whom down on shared units; None: nobody shares.
    generated_load
        Of generated jobs: the share of the idle unit-time that they need.
    never_run
        Jobs that are left out: they need more units than there ever are.
    """

    pools: tuple[Pool, ...]
    jobs: JobTable
    digests: dict[str, str] = field(default_factory=dict)
    interference: Interference | None = None
    generated_load: float | None = None
    never_run: tuple[str, ...] = ()


def load(
    options: Options,
    notes: NoteTaker,
    in_memory: InMemoryInputs = InMemoryInputs(),
    files: Files | None = None,
) -> Inputs:
    """Read the node trace and the jobs that the options name, and see that they fit.

    Without a trace the bundled data set is used; with a trace but no jobs, a generated workload of the BFTrainer
    paper's kind, sized to the trace. Objects `in_memory` take the place of the files that the options name;
    `files` reads the others, and caches files.

    Raises
    ------
    InputError
        When a file cannot be used, or nothing would happen.
    """
    files = files or Files()
    with trusting_pickles(options.trust_pickle):
        return _load(options, notes, in_memory, files)


def _load(
    options: Options, notes: NoteTaker, in_memory: InMemoryInputs, files: Files
) -> Inputs:
    generated_load: float | None = None
    pools: Sequence[Pool]
    if options.cluster is None:
        whole, trace = _traces(options, notes, in_memory, files)
        jobs = _workload(options, trace, notes, in_memory, files)
        if options.job_bounds is None and options.jobs is None:
            generated_load = load_of(jobs, trace)
        jobs = _fit(trace, jobs, notes, align=options.align_jobs)
        outlook = _outlook(options, trace, whole, notes)
        pools = [Pool("", trace, jobs, tuple(range(len(jobs))), outlook=outlook)]
    else:
        jobs = _workload(options, None, notes, in_memory, files)
        pools = cluster_pools(options.cluster, jobs)
    objects = {
        "node_trace": None if in_memory.trace is None else pools[0].trace,
        "jobs": in_memory.jobs,
        "xi": in_memory.xi,
    }
    digests = input_digests(options, files, objects)
    interference = _interference(options, jobs, notes, in_memory, files)
    for note in (
        *check_kinds(pools[0].trace.kinds, jobs),
        *_on_deadlines(options, jobs),
        *_on_sizes(options, jobs),
    ):
        notes.note(note)
    never_run: tuple[str, ...] = ()
    if not options.published:  # which keeps jobs in play that can never run
        jobs, pools, never_run = fit_sizes(jobs, pools, options, notes)
    return Inputs(tuple(pools), jobs, digests, interference, generated_load, never_run)


# --- the trace ----------------------------------------------------------------------------------------------------


def _traces(
    options: Options, notes: NoteTaker, in_memory: InMemoryInputs, files: Files
) -> tuple[NodeTrace, NodeTrace]:
    """Return the trace of the whole machine, and that of the nodes that the options name."""
    if options.node_trace is None:
        whole, _ = files.once(_bundled)
        trace = whole
    else:
        trace = whole = _read_trace(
            options, options.node_trace, notes, in_memory, files
        )
        if options.node_class is not None:
            trace = of_class(trace, options.node_class)
        if options.first_node or options.node_count is not None:
            trace = select_nodes(trace, options.first_node, options.node_count)
    for note in trace.notes:
        notes.note(note)
    if options.kinds is not None:
        trace = with_kinds(trace, files.once(read_kinds, options.kinds), options.kinds)
    if not len(trace.joined):
        raise InputError(
            "no node is ever idle in this trace, so there is nothing to give",
            file=trace.source or None,
        )
    return whole, trace


def _read_trace(
    options: Options,
    path: str,
    notes: NoteTaker,
    in_memory: InMemoryInputs,
    files: Files,
) -> NodeTrace:
    skip = options.skip_rows or 0
    as_published = options.published and not isinstance(in_memory.trace, NodeTrace)
    if options.skip_rows is None and as_published:
        skip = PUBLISHED_SKIP_ROWS
        notes.note(
            f"the first {skip} rows are skipped, as published; --skip-rows says otherwise"
        )
    return in_memory.node_trace(skip, sort=options.sort) or files.once(
        read_trace, path, skip_rows=skip, sort=options.sort
    )


def _bundled() -> tuple[NodeTrace, JobTable]:
    table, jobs = load_bundled()
    trace = trace_from_frame(
        table.frame, source="bundled: summit-like-512", metadata=table.metadata
    )
    return trace, jobs_from_frame(jobs, source="bundled: jobs-60")


def _outlook(
    options: Options, trace: NodeTrace, whole: NodeTrace, notes: NoteTaker
) -> Outlook | None:
    """Return what is expected of the trace's nodes, by the jobs of the whole machine, where the policy looks at it.

    Notes say what the host jobs lack, where it is used.
    """
    jobs, traits = whole.host_jobs, options.traits
    expects = traits.expects and not options.published
    if jobs is not None and (expects or options.rules.return_time_s is not None):
        for lack in jobs.lacks():
            notes.note(lack)
    if not expects:
        return None
    name = f"--policy {options.policy}"
    if jobs is None or whole.by_unit:
        notes.note(
            f"{name} looks at how long nodes may stay idle: of this trace nothing is known, since no host jobs lie "
            "beside it"
        )
        return None
    if options.rules.takes_free_first:
        raise InputError(
            f"{name} expects nodes of the log to stay idle, and with --return-time or --reserve other nodes fill "
            "their places",
            hint="--no-free-first lets host jobs take the nodes that the log names",
        )
    return Outlook(jobs, whole, trace.nodes)


def read_kinds(path: str) -> dict[str, str]:
    """The kind of each node: columns node and kind, one row per node.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    rows = Rows(read_table(path), path)
    rows.require(("node", "kind"))
    kinds: dict[str, str] = {}
    for row in rows:
        node, kind = row.name("node"), row.name("kind")
        if kinds.setdefault(node, kind) != kind:
            raise row.error(
                "node",
                f"node {node!r} has the kind {kinds[node]!r} already; expected one row per node",
            )
    return kinds


def with_kinds(trace: NodeTrace, kinds: dict[str, str], path: str) -> NodeTrace:
    """The trace with the kind of each of its nodes.

    Raises
    ------
    InputError
        When a node has no kind.
    """
    missing = [node for node in trace.nodes if node not in kinds]
    if missing:
        message = f"no row for {len(missing):,} of the trace's {len(trace.nodes):,} nodes, {missing[0]!r} among them"
        raise InputError(message, file=path, column="node")
    return replace(trace, kinds=tuple(kinds[node] for node in trace.nodes))


def check_kinds(kinds: Sequence[str], jobs: JobTable) -> Iterator[str]:
    """Yield notes on the kinds, on curves of kinds that no node has, and on curves that are missing.

    `kinds` are those of each node.
    """
    known = dict.fromkeys(kinds)
    stated = dict.fromkeys(kind for job in jobs for kind in job.by_kind)
    if not known:
        if stated:
            yield f"curves and measurements by kind ({', '.join(stated)}) have no effect on units without kinds"
        return
    yield f"units are of {len(known)} kinds: {', '.join(known)}; a job runs on one kind at a time"
    strange = ", ".join(kind for kind in stated if kind not in known)
    if strange:
        yield f"the job table has curves on kinds that no node has: {strange}"
    # A kind for which no job has a curve is left to the usual one on purpose.
    for kind in known:
        without = sum(kind not in job.by_kind for job in jobs)
        if kind in stated and without:
            yield (
                f"{without:,} of {len(jobs):,} jobs have no curve of their own on kind {kind} (column Ps@{kind}): "
                "there they run as the column Ps says"
            )
    if not stated.keys() & known.keys():
        yield "the job table has no curves by kind (columns Ps@KIND): jobs run on all kinds as the column Ps says"


# --- the jobs -----------------------------------------------------------------------------------------------------


def _workload(
    options: Options,
    trace: NodeTrace | None,
    notes: NoteTaker,
    in_memory: InMemoryInputs,
    files: Files,
) -> JobTable:
    """Read or make the jobs, and shape them by the options."""
    if options.job_bounds is not None and options.job_curves is not None:
        jobs = files.once(read_published_jobs, options.job_bounds, options.job_curves)
    elif in_memory.jobs is not None:
        jobs = in_memory.jobs
    elif options.jobs is not None:
        paths = options.jobs if isinstance(options.jobs, tuple) else (options.jobs,)
        jobs = joined([_read_table(options, path, files) for path in paths])
    elif options.node_trace is None or trace is None:
        _, jobs = files.once(_bundled)
    else:
        jobs = default_workload(trace)
    if not len(jobs):
        raise InputError("the job table is empty", file=jobs.source or None)
    for note in (*jobs.notes, *_on_models(options, jobs)):
        notes.note(note)
    return shaped(jobs, options, notes)


def _read_table(options: Options, path: str, files: Files) -> JobTable:
    if options.jobs_format == "native":
        return files.once(read_jobs, path)
    module, name = JOB_FORMATS[options.jobs_format].split(":")
    read: Callable[..., JobTable] = getattr(import_module(module), name)
    if options.jobs_format != "pollux":
        return files.once(read, path)
    parts = cluster_nodes(options.cluster or "")
    sizes = {part.kind: part.units for part in parts or ()}
    per_node = {"units_per_node": sizes} if sizes else {}
    reading = POLLUX_READING.get(options.compat or "", {})
    return files.once(read, path, options.applications, **reading, **per_node)


def _on_models(options: Options, jobs: JobTable) -> Iterator[str]:
    """Say where --unit-memory changes nothing, costs look wrong, and samples of models should not be added."""
    unused = (
        options.xi is None and "unit_memory_gib" not in options.policy_type.settings
    )
    needed = any(job.total_memory_gib for job in jobs)
    if options.unit_memory_gib is not None and unused and not needed:
        yield (
            "--unit-memory has no effect without --xi on jobs without total_memory_gib"
        )
    if text := long_rescales(jobs):
        yield text
    curve = options.objective.partition("+")[0]
    if curve in ADDS_SAMPLES and (text := different_rates(jobs)):
        yield text


def _on_deadlines(options: Options, jobs: JobTable) -> Iterator[str]:
    """Say which options have no effect on jobs without deadlines."""
    stated = {
        "--deadline-boost": options.deadline_boost > 1,
        "--admission": options.rules.admission != "all",
    }
    if all(job.deadline_ns is None for job in jobs):
        for flag in (flag for flag, is_stated in stated.items() if is_stated):
            yield f"{flag} has no effect on jobs without deadlines"


def _on_sizes(options: Options, jobs: JobTable) -> Iterator[str]:
    """Say how many jobs run on some sizes only, which the published replayer knows nothing of."""
    sized = [job for job in jobs if job.sizes is not None]
    if not sized:
        return
    first, sizes = sized[0].name, shown_sizes(sized[0].sizes or ())
    if options.published:
        message = (
            "the published replayer knows no sizes: leave out the column or --compat"
        )
        file = jobs.source or None
        raise InputError(message, file=file, column="sizes", job=first)
    yield (
        f"{len(sized):,} of {len(jobs):,} jobs run on some sizes only (first: {first}, {sizes}); on any other number "
        "of units they make no progress"
    )


def _fit(
    trace: NodeTrace, jobs: JobTable, notes: NoteTaker, *, align: bool
) -> JobTable:
    """Return the jobs, shifted if `--align-jobs` asks for it; refuse a table of which no job can run in this trace."""
    source = jobs.source or None
    if trace.start == trace.end:
        raise InputError(
            f"no time passes in the trace: it is of one instant, {_second(trace.start)}",
            file=trace.source,
        )
    if align:
        shift = trace.start - min(job.tsub_ns for job in jobs)
        jobs = jobs.at(job.tsub_ns + shift for job in jobs)
        notes.note(
            f"--align-jobs: all jobs are submitted {apart(abs(shift))} {'later' if shift >= 0 else 'earlier'}"
        )
    late = [job for job in jobs if job.tsub_ns >= trace.end]
    hint = (
        "--align-jobs shifts them so that the first is submitted when the trace begins"
    )
    if len(late) == len(jobs):
        message = (
            f"all jobs are submitted after the trace ends ({_second(min(job.tsub_ns for job in jobs))} and later; "
            f"the trace ends at {_second(trace.end)})"
        )
        raise InputError(message, file=source, column="Tsub", hint=hint)
    if late:
        notes.note(
            f"{len(late)} of {len(jobs)} jobs are submitted after the trace ends and never run"
        )
    early = [trace.start - job.tsub_ns for job in jobs if job.tsub_ns < trace.start]
    if len(early) == len(jobs) and min(early) > trace.end - trace.start:
        message = (
            f"all jobs are submitted {apart(min(early))} or more before the trace begins "
            f"({_second(trace.start)}), which is {apart(trace.end - trace.start)} long"
        )
        raise InputError(message, file=source, column="Tsub", hint=hint)
    if early:
        notes.note(
            f"{len(early)} of {len(jobs)} jobs are submitted before the trace begins, by up to {apart(max(early))}: "
            "they wait for it, which counts as queueing; --align-jobs shifts all jobs"
        )
    beyond = jobs.beyond_curve()
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
    count = min(
        max(round(wanted / (needed_unit_seconds(models) / len(models))), MIN_JOBS),
        MAX_JOBS,
    )
    interval_s = round(trace.duration_s / count, 3)
    frame = generate_dnn_jobs(
        jobs=count, first_submit=start, interval_s=interval_s, pmax=PAPER_PMAX
    )
    scale = wanted / needed_unit_seconds(jobs_from_frame(frame))
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
    return needed_unit_seconds(jobs) / trace.idle_unit_seconds()


def needed_unit_seconds(jobs: JobTable) -> float:
    """Unit-seconds that jobs need on as few units as they run on, where their speed-up is best."""
    needed = 0.0
    for job in jobs:
        fewest = max(job.jmin, 1)
        rate = float(job.rates[fewest])
        needed += fewest * job.pmax / rate if rate else 0.0
    return needed


# --- who may share ------------------------------------------------------------------------------------------------


def _interference(
    options: Options,
    jobs: JobTable,
    notes: NoteTaker,
    in_memory: InMemoryInputs,
    files: Files,
) -> Interference | None:
    if options.xi is None:
        return None
    table = files.once(read_xi, options.xi) if in_memory.xi is None else in_memory.xi
    if table.clipped:
        notes.note(f"{table.clipped} xi below 1 are measurement noise and count as 1")
    if table.estimated:
        counts = ", ".join(f"{count} {flag}" for flag, count in table.estimated.items())
        notes.note(
            f"{sum(table.estimated.values())} rows of the xi table are estimates, not measurements: {counts}"
        )
    interference = Interference(
        table,
        math.inf if options.xi_max is None else options.xi_max,
        options.unit_memory_gib,
        frozenset(frozenset(pair) for pair in options.forbid),
        None
        if options.memory_table is None
        else files.once(read_unit_memory, options.memory_table),
        options.sub_batch,
    )
    if interference.by_units:
        sizes = sorted(
            {row.units for row in table.measurements if row.units is not None}
        )
        notes.note(
            f"a job's xi is that of as many units as it has ({', '.join(f'{n:g}' for n in sizes)} in the xi table); on "
            "others that of rows without units counts, or the largest of its pair"
        )
    by_model = {(job.model, job.batch_size, job.memory_gib): job for job in jobs}
    kinds = list(by_model.values())
    if not any(interference.ever(a, b) for a in kinds for b in kinds):
        models = ", ".join(sorted({job.model or "(none)" for job in jobs}))
        notes.note(
            f"no two jobs may share: the xi table, memory or --forbid leave no pair of the models {models}"
        )
    return interference
