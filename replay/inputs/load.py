"""From options to the inputs of a replay: the trace, the jobs (read or made, then shaped by options), who may share."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Literal

import numpy as np

from bft.datasets import generate_dnn_jobs
from bft.models import (
    Curve,
    InputError,
    Job,
    JobTable,
    jobs_from_frame,
    read_jobs,
    read_published_jobs,
    read_unit_memory,
    read_xi,
)
from bft.models.cells import Rows
from bft.models.checks import cluster_nodes
from bft.models.jobs import different_rates, shown_sizes
from bft.models.tables import read_table, trusting_pickles
from bft.models.tolerances import whole_above
from bft.replay.engine.policy_api import Kind
from bft.replay.engine.rules import Interference
from bft.replay.inputs.files import Files, InMemoryInputs, input_digests
from bft.replay.inputs.notes import NoteTaker
from bft.replay.options.presets import JOB_FORMATS, POLLUX_READING
from bft.replay.options.run_spec import RunSpec
from bft.replay.options.table import OptionTable
from bft.replay.pools import Pool, cluster_pools
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.outlook import Outlook
from bft.replay.trace.parts import of_class
from bft.replay.trace.trace_files import read_trace, select_nodes, trace_from_frame
from bft.replay.trace.trace_statistics import half_of_idle

# Objectives under which a fast model's samples count for as much as a slow one's.
ADDS_SAMPLES = ("own", "throughput")
# The published replayer skips the rows of its matrix before row 1,000.
PUBLISHED_SKIP_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a replay, and their sources; `pools` are the virtual clusters, one for a node trace."""

    pools: tuple[Pool, ...]
    jobs: JobTable
    digests: dict[str, str] = field(default_factory=dict)
    interference: Interference | None = None
    generated_load: float | None = (
        None  # of generated jobs: share of the idle unit-time that they need
    )
    never_run: tuple[
        str, ...
    ] = ()  # jobs that are left out: they need more units than there ever are


def load(
    run: RunSpec,
    notes: NoteTaker,
    in_memory: InMemoryInputs = InMemoryInputs(),
    files: Files | None = None,
) -> Inputs:
    """Read the node trace and the jobs that a run's options name, and see that they fit.

    Without a trace the bundled data set is used; with a trace but no jobs, a generated workload of the BFTrainer
    paper's kind, sized to the trace. Objects `in_memory` take the place of the files that the options name;
    `files` reads the others, and caches files.

    Raises
    ------
    InputError
        When a file cannot be used, or nothing would happen.
    """
    files = files or Files()
    with trusting_pickles(run.options.trust_pickle):
        read = _load_trace if run.options.cluster is None else _load_cluster
        return read(run, notes, in_memory, files)


def _load_trace(
    run: RunSpec, notes: NoteTaker, in_memory: InMemoryInputs, files: Files
) -> Inputs:
    options = run.options
    skip = options.skip_rows
    if skip is None:
        published = run.published and not isinstance(in_memory.trace, NodeTrace)
        skip = PUBLISHED_SKIP_ROWS if published else 0
    if options.node_trace is None:
        trace, bundled_jobs = files.once(_bundled)
        whole = trace
        if options.first_node or options.node_count is not None or options.skip_rows:
            notes.note(
                "-nis, -nN and --skip-rows are for a trace of your own; the bundled one is used whole"
            )
    else:
        if skip and options.skip_rows is None:
            notes.note(
                f"the first {skip} rows are skipped, as published; --skip-rows says otherwise"
            )
        whole = in_memory.node_trace(skip, sort=options.sort) or files.once(
            read_trace, options.node_trace, skip_rows=skip, sort=options.sort
        )
        trace = whole
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
    if options.job_bounds is not None and options.job_curves is not None:
        jobs = files.once(read_published_jobs, options.job_bounds, options.job_curves)
        for note in jobs.notes:
            notes.note(note)
    elif options.jobs is not None:
        jobs = _read_jobs(options, notes, in_memory, files)
    elif options.node_trace is None:
        jobs = bundled_jobs
    else:
        jobs, note = default_workload(trace)
        notes.note(note)
    _note_unit_memory(jobs, run, notes)
    _note_rates(jobs, options, notes)
    jobs = shaped(jobs, options, notes)
    generated = (
        load_of(jobs, trace)
        if options.job_bounds is None and options.jobs is None
        else None
    )
    jobs = _fit(trace, jobs, notes, align=options.align_jobs)
    outlook = _outlook(run, trace, whole, notes)
    pool = Pool("", trace, jobs, tuple(range(len(jobs))), outlook=outlook)
    return replace(
        _inputs(run, jobs, [pool], notes, in_memory, files), generated_load=generated
    )


def _outlook(
    run: RunSpec, trace: NodeTrace, whole: NodeTrace, notes: NoteTaker
) -> Outlook | None:
    """Return what is expected of the trace's nodes, by the jobs of the whole machine, where the policy looks at it.

    Notes say what the host jobs lack, where it is used.
    """
    jobs, kind = whole.host_jobs, Kind.of(run.make_policy())
    expects = kind.expects and not run.published
    if jobs is not None and (expects or run.options.rules.return_time_s is not None):
        for lack in jobs.lacks():
            notes.note(lack)
    if not expects:
        return None
    name = f"--policy {run.policy.name}"
    if jobs is None or whole.by_unit:
        notes.note(
            f"{name} looks at how long nodes may stay idle: of this trace nothing is known, since no host jobs lie "
            "beside it"
        )
        return None
    if run.options.rules.takes_free_first:
        raise InputError(
            f"{name} expects nodes of the log to stay idle, and with --return-time or --reserve other nodes fill "
            "their places",
            hint="--no-free-first lets host jobs take the nodes that the log names",
        )
    return Outlook(jobs, whole, trace.nodes)


def _bundled() -> tuple[NodeTrace, JobTable]:
    from bft.datasets import load_bundled

    table, jobs = load_bundled()
    trace = trace_from_frame(
        table.frame, source="bundled: summit-like-512", metadata=table.metadata
    )
    return trace, jobs_from_frame(jobs, source="bundled: jobs-60")


def _load_cluster(
    run: RunSpec, notes: NoteTaker, in_memory: InMemoryInputs, files: Files
) -> Inputs:
    options = run.options
    jobs = _read_jobs(options, notes, in_memory, files)
    if not len(jobs):
        raise InputError("the job table is empty", file=jobs.source or None)
    _note_unit_memory(jobs, run, notes)
    _note_rates(jobs, options, notes)
    jobs = shaped(jobs, options, notes)
    pools = cluster_pools(options.cluster or "", jobs)
    return _inputs(run, jobs, pools, notes, in_memory, files)


def _inputs(
    run: RunSpec,
    jobs: JobTable,
    pools: Sequence[Pool],
    notes: NoteTaker,
    in_memory: InMemoryInputs,
    files: Files,
) -> Inputs:
    options = run.options
    taken = None if in_memory.trace is None else pools[0].trace
    digests = input_digests(
        options,
        files,
        {"node_trace": taken, "jobs": in_memory.jobs, "xi": in_memory.xi},
    )
    interference = _interference(options, jobs, notes, in_memory, files)
    for note in check_kinds(pools[0].trace.kinds if pools else (), jobs):
        notes.note(note)
    if all(job.deadline_ns is None for job in jobs):
        stated = {
            "--deadline-boost": options.deadline_boost > 1,
            "--admission": options.rules.admission != "all",
        }
        for flag in (flag for flag, is_stated in stated.items() if is_stated):
            notes.note(f"{flag} has no effect on jobs without deadlines")
    sized = [job for job in jobs if job.sizes is not None]
    if sized:
        notes.note(
            f"{len(sized):,} of {len(jobs):,} jobs run on some sizes only (first: {sized[0].name}, "
            f"{shown_sizes(sized[0].sizes or ())}); on any other number of units they make no progress"
        )
    if run.published:  # which keeps such jobs in play
        if sized:
            message = "the published replayer knows no sizes: leave out the column or --compat"
            raise InputError(
                message, file=jobs.source or None, column="sizes", job=sized[0].name
            )
        return Inputs(tuple(pools), jobs, digests, interference)
    jobs, pools, never_run = fit_sizes(
        jobs, pools, options.oversized, notes, rigid=run.policy.kind.rigid
    )
    return Inputs(tuple(pools), jobs, digests, interference, never_run=never_run)


def _note_unit_memory(jobs: JobTable, run: RunSpec, notes: NoteTaker) -> None:
    """Say where --unit-memory changes nothing: neither policy nor sharing uses it, and no job states what it needs."""
    unused = run.options.xi is None and "unit_memory_gib" not in run.policy.settings
    stated = run.options.unit_memory_gib is not None and len(jobs) > 0
    if stated and unused and not any(job.total_memory_gib for job in jobs):
        notes.note(
            "--unit-memory has no effect without --xi on jobs without total_memory_gib"
        )


def _note_rates(jobs: JobTable, options: OptionTable, notes: NoteTaker) -> None:
    """Say where models are so unlike that their samples should not be added."""
    if options.objective in ADDS_SAMPLES and (text := different_rates(jobs)):
        notes.note(text)


def _read_jobs(
    options: OptionTable, notes: NoteTaker, in_memory: InMemoryInputs, files: Files
) -> JobTable:
    jobs = (
        _read_table(options, options.jobs or "", files)
        if in_memory.jobs is None
        else in_memory.jobs
    )
    for note in jobs.notes:
        notes.note(note)
    return jobs


def _read_table(options: OptionTable, path: str, files: Files) -> JobTable:
    if options.jobs_format == "native":
        return files.once(read_jobs, path)
    module, name = JOB_FORMATS[options.jobs_format].split(":")
    read: Callable[..., JobTable] = getattr(import_module(module), name)
    if options.jobs_format != "pollux":
        return files.once(read, path)
    parts = cluster_nodes(options.cluster or "")
    sizes = {part.kind: part.units for part in parts or ()}
    per_node = {"units_per_node": sizes} if sizes else {}
    return files.once(
        read,
        path,
        options.applications,
        **POLLUX_READING.get(options.compat or "", {}),
        **per_node,
    )


def _interference(
    options: OptionTable,
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


def _fit(
    trace: NodeTrace, jobs: JobTable, notes: NoteTaker, *, align: bool
) -> JobTable:
    """The jobs, shifted if `--align-jobs` asks for it; refuse a table of which no job can run in this trace."""
    source = jobs.source or None
    if not len(jobs):
        raise InputError("the job table is empty", file=source)
    if trace.start == trace.end:
        raise InputError(
            f"no time passes in the trace: it is of one instant, {_second(trace.start)}",
            file=trace.source,
        )
    if align:
        shift = trace.start - min(job.tsub_ns for job in jobs)
        jobs = jobs.shifted(shift)
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


def default_workload(trace: NodeTrace) -> tuple[JobTable, str]:
    """Trainings that together need as much as the trace offers, submitted evenly over it; and a note on this."""
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
    return jobs, note


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


# The year 2200: later instants and their sums leave the range of timestamps, which ends in 2262.
LAST_NS = 230 * 365 * 86_400 * SECOND_NS
HOUR_S = 3600.0


def shaped(jobs: JobTable, options: OptionTable, notes: NoteTaker) -> JobTable:
    """The jobs as the options want them; a note for each option that changes them.

    First --unit-memory leaves out sizes whose units have too little memory together. Then, in this order: --repeat,
    --cap-units, --shuffle-submits, then --arrival or --scale-arrivals. What is drawn at random follows --seed; each
    option has its own random stream, so that one does not change the draws of another.

    Raises
    ------
    InputError
        When a job would be submitted beyond the calendar.
    """
    if not len(jobs):
        return jobs
    jobs = _with_memory(jobs, options, notes)
    if options.repeat > 1:
        count = len(jobs)
        jobs = _within_calendar(
            repeated(jobs, options.repeat), "--repeat", "fewer repetitions"
        )
        turns = f"the {count:,} of the table {options.repeat} times in turn"
        notes.note(
            f"--repeat {options.repeat}: {len(jobs):,} jobs, {turns}, submitted over {apart(_span(jobs))}"
        )
    if options.cap_units is not None:
        jobs = _capped(jobs, options.cap_units, notes)
    if options.shuffle_submits:
        jobs = shuffled(jobs, np.random.default_rng((options.seed, 1)))
        notes.note(
            f"--shuffle-submits: the {len(jobs):,} jobs come at the same instants in another order (--seed "
            f"{options.seed})"
        )
    before = apart(_span(jobs))
    if options.arrival is not None:
        rate = jobs_per_hour(options.arrival)
        jobs = with_arrivals(jobs, rate, np.random.default_rng((options.seed, 2)))
        jobs = _within_calendar(jobs, "--arrival", "more jobs an hour")
        notes.note(
            f"--arrival {options.arrival}: jobs are submitted at random, {rate:g} an hour on average, over "
            f"{apart(_span(jobs))}, not {before} (--seed {options.seed})"
        )
    if options.scale_arrivals != 1:
        jobs = _within_calendar(
            jobs.spread(options.scale_arrivals), "--scale-arrivals", "a smaller factor"
        )
        notes.note(
            f"--scale-arrivals {options.scale_arrivals:g}: jobs are submitted over {apart(_span(jobs))}, not {before}"
        )
    return jobs


def repeated(jobs: JobTable, times: int) -> JobTable:
    """The jobs `times` times in turn: each round follows the one before after a mean distance between submissions.

    Jobs of later rounds are called `NAME~2`, `NAME~3` and so on. Jobs that all come at once come so in all rounds.
    """
    between = _span(jobs) // (len(jobs) - 1) if len(jobs) > 1 else 0
    rounds = [jobs.shifted((_span(jobs) + between) * k) for k in range(times)]
    again = [
        replace(job, name=f"{job.name}~{k}")
        for k, each in enumerate(rounds[1:], start=2)
        for job in each
    ]
    return replace(jobs, jobs=(*jobs.jobs, *again))


def shuffled(jobs: JobTable, rng: np.random.Generator) -> JobTable:
    """Deal the instants of submission out to the jobs at random; deadlines keep their distance."""
    instants = [job.tsub_ns for job in jobs]
    return _submitted(jobs, [instants[k] for k in rng.permutation(len(instants))])


def with_arrivals(
    jobs: JobTable, per_hour: float, rng: np.random.Generator
) -> JobTable:
    """Submit the jobs in their order with exponential gaps, of mean 1 / `per_hour` h.

    The first keeps its instant. Deadlines keep their distance.
    """
    gaps = rng.exponential(HOUR_S / per_hour, len(jobs) - 1)
    # Past the calendar in any case, where floats no longer fit.
    since = np.minimum(np.cumsum(gaps), LAST_NS / SECOND_NS * 2)
    order = jobs.by_submit()
    first = jobs.jobs[order[0]].tsub_ns
    instants = [first] * len(jobs)
    for index, seconds in zip(order[1:], since.tolist(), strict=True):
        instants[index] = first + round(seconds * SECOND_NS)
    return _submitted(jobs, instants)


def jobs_per_hour(arrival: str) -> float:
    """The rate that an `Arrival` states."""
    return float(arrival.partition(":")[2])


def _with_memory(jobs: JobTable, options: OptionTable, notes: NoteTaker) -> JobTable:
    """The jobs with only those of their sizes whose units have as much memory together as the job needs."""
    gib = options.unit_memory_gib
    needing = sum(bool(job.total_memory_gib) for job in jobs)
    if gib is None or not needing:
        if needing:
            notes.note(
                f"{needing:,} jobs state total_memory_gib, which counts with --unit-memory only"
            )
        return jobs
    made = [
        job if not job.total_memory_gib else _fitting(job, gib, jobs.source)
        for job in jobs
    ]
    fewer = sum(
        after.jmin > before.jmin for before, after in zip(jobs, made, strict=True)
    )
    notes.note(
        f"--unit-memory {gib:g}: {fewer:,} of {len(jobs):,} jobs need more units than Jmin for their memory"
    )
    return replace(jobs, jobs=tuple(made))


def _fitting(job: Job, gib: float, source: str) -> Job:
    """The job with those of its sizes that have the memory it needs, on units of `gib` each."""
    needed = job.total_memory_gib or 0.0
    try:
        large = job.between(whole_above(needed / gib), job.jmax)
    except InputError as error:
        raise InputError(
            f"{error.what}: {needed:g} GiB of memory in all, --unit-memory {gib:g} a unit",
            file=source or None,
            column=error.column,
            job=job.name,
        ) from error
    if large is None:
        raise InputError(
            f"needs {needed:g} GiB, and {job.jmax} units (Jmax) of {gib:g} GiB (--unit-memory) have less",
            file=source or None,
            column="total_memory_gib",
            job=job.name,
        )
    return large


def _capped(jobs: JobTable, units: int, notes: NoteTaker) -> JobTable:
    large = [job for job in jobs if job.jmax > units]
    if not large:
        notes.note(f"--cap-units {units} changes nothing: no job can use more")
        return jobs
    fixed = sum(job.jmin == job.jmax for job in large)
    same = f"; {fixed:,} of them have one size and keep their duration" if fixed else ""
    notes.note(
        f"--cap-units {units}: {len(large):,} of {len(jobs):,} jobs could use more units{same}"
    )
    return replace(
        jobs,
        jobs=tuple(capped(job, units) if job.jmax > units else job for job in jobs),
    )


def _submitted(jobs: JobTable, instants: Iterable[int]) -> JobTable:
    return replace(
        jobs,
        jobs=tuple(
            _moved(job, instant) for job, instant in zip(jobs, instants, strict=True)
        ),
    )


def _moved(job: Job, tsub_ns: int) -> Job:
    """The job, submitted and due so much earlier or later."""
    due = None if job.deadline_ns is None else job.deadline_ns + tsub_ns - job.tsub_ns
    return replace(job, tsub_ns=tsub_ns, deadline_ns=due)


def _within_calendar(jobs: JobTable, flag: str, expected: str) -> JobTable:
    late = next((job for job in jobs if job.tsub_ns > LAST_NS), None)
    if late is not None:
        message = f"{flag}: would be submitted after the year 2200; expected {expected}"
        raise InputError(message, file=jobs.source or None, job=late.name)
    return jobs


def _span(jobs: JobTable) -> int:
    instants = [job.tsub_ns for job in jobs]
    return max(instants) - min(instants)


def apart(nanoseconds: int) -> str:
    """A span of time in words."""
    seconds = nanoseconds / SECOND_NS
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:g} s"


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


def check_kinds(kinds: Sequence[str], jobs: JobTable) -> list[str]:
    """Notes on the kinds, on curves of kinds that no node has, and on curves that are missing; `kinds` of each node."""
    known = dict.fromkeys(kinds)
    stated = dict.fromkeys(kind for job in jobs for kind in job.by_kind)
    if not known:
        if not stated:
            return []
        return [
            f"curves and measurements by kind ({', '.join(stated)}) have no effect on units without kinds"
        ]
    notes = [
        f"units are of {len(known)} kinds: {', '.join(known)}; a job runs on one kind at a time"
    ]
    strange = [kind for kind in stated if kind not in known]
    if strange:
        notes.append(
            f"the job table has curves on kinds that no node has: {', '.join(strange)}"
        )
    # A kind for which no job has a curve is left to the usual one on purpose.
    for kind in known:
        without = sum(kind not in job.by_kind for job in jobs)
        if kind in stated and without:
            notes.append(
                f"{without:,} of {len(jobs):,} jobs have no curve of their own on kind {kind} (column Ps@{kind}): "
                "there they run as the column Ps says"
            )
    if not stated.keys() & known.keys():
        notes.append(
            "the job table has no curves by kind (columns Ps@KIND): jobs run on all kinds as the column Ps says"
        )
    return notes


Mode = Literal["refuse", "skip", "cap"]
# Jobs that a message names; the summary names all.
MAX_NAMED = 5


def fit_sizes(
    jobs: JobTable,
    pools: Sequence[Pool],
    mode: Mode,
    notes: NoteTaker,
    *,
    rigid: bool,
) -> tuple[JobTable, Sequence[Pool], tuple[str, ...]]:
    """Deal with jobs that need more units than are ever idle at once.

    Parameters
    ----------
    jobs
        All jobs.
    pools
        Whose nodes they may use.
    mode
        `refuse`: an error. `skip`: they are left out, and count as jobs that never started. `cap`: they run on what
        there is, see `capped`.
    notes
        Receives what was done.
    rigid
        Whether a job needs what it asks for (Jreq); otherwise Jmin is enough.

    Returns
    -------
    jobs, pools
        The same, with capped jobs in the place of theirs.
    never_run
        Names of the jobs that are left out.

    Raises
    ------
    InputError
        With `refuse`, when there are such jobs; names them.
    """
    made = list(jobs)
    never_run: list[str] = []
    done: list[str] = []
    for pool in pools:
        largest = max_idle(pool.trace)
        positions = [
            position
            for position, job in zip(pool.positions, pool.jobs, strict=True)
            if needed(job, rigid=rigid) > largest
        ]
        if not positions:
            continue
        message = _sentence(
            [jobs.jobs[position] for position in positions], pool, largest, rigid=rigid
        )
        if mode == "refuse":
            raise InputError(
                message,
                file=jobs.source or None,
                column="Jreq" if rigid else "Jmin",
                hint="--oversized skip leaves them out, --oversized cap runs them on what there is",
            )
        if mode == "skip":
            never_run += [jobs.jobs[position].name for position in positions]
            done.append(f"{message}; they never run (--oversized skip)")
        elif not largest:
            raise InputError(
                f"{message}, so no size can be capped to it", file=jobs.source or None
            )
        else:
            for position in positions:
                made[position] = capped(made[position], largest)
            done.append(f"{message}; they run on {largest} (--oversized cap)")
    table = replace(jobs, jobs=tuple(made))
    for text in done:
        notes.note(text)
    return table, [pool.of(table) for pool in pools], tuple(never_run)


def max_idle(trace: NodeTrace) -> int:
    """The most units, of one kind where there are several, that are ever idle at once."""
    parts = [trace.of_kind(kind) for kind in dict.fromkeys(trace.kinds)] or [trace]
    return max(int(max(part.idle_units(), default=0)) for part in parts)


def needed(job: Job, *, rigid: bool) -> int:
    """Fewest units on which a job runs."""
    return job.request if rigid else max(job.jmin, 1)


def cap_all(pool: Pool, *, rigid: bool, but: Collection[str] = ()) -> tuple[Pool, int]:
    """The pool with every job capped that needs more than it has, but for those of some names; and how many were."""
    largest = max_idle(pool.trace)
    large = [
        needed(job, rigid=rigid) > largest and job.name not in but for job in pool.jobs
    ]
    jobs = tuple(
        capped(job, largest) if is_large else job
        for job, is_large in zip(pool.jobs, large, strict=True)
    )
    return replace(pool, jobs=replace(pool.jobs, jobs=jobs)), sum(large)


def capped(job: Job, units: int) -> Job:
    """A job that asks for at most `units` units.

    A job of one size keeps its duration, as in the published simulators: its rate on fewer units is unknown. Others
    run at the rate that their curve has for fewer.
    """
    if job.jmin < job.jmax:
        fewer = replace(job, jreq=None).between(0, units)
        if fewer is None:
            return replace(job, jmin=units, jmax=units, jreq=units, sizes=None)
        return replace(fewer, jreq=fewer.at_most(job.request))
    rate, value = float(job.rates[job.jmax]), float(job.objective.table(job.jmax)[-1])
    points = np.array([0.0, float(units)])
    return replace(
        job,
        jmin=units,
        jmax=units,
        jreq=units,
        scalability=Curve(points, np.array([0.0, rate])),
        objective=Curve(points, np.array([0.0, value])),
    )


def _sentence(jobs: Sequence[Job], pool: Pool, largest: int, *, rigid: bool) -> str:
    named = ", ".join(
        f"{job.name} ({needed(job, rigid=rigid)})" for job in jobs[:MAX_NAMED]
    )
    more = f" and {len(jobs) - MAX_NAMED} more" if len(jobs) > MAX_NAMED else ""
    total = pool.trace.units
    ever = (
        f"than the {total} there are"
        if largest == total
        else f"than the {largest} of {total} that are ever idle at once"
    )
    where = f" in {pool.name}" if pool.name else ""
    some = f"{len(jobs)} jobs need" if len(jobs) > 1 else "1 job needs"
    return f"{some} more units {ever}{where}: {named}{more}"
