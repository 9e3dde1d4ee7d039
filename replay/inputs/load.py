"""From options to the inputs of a replay: the trace, the jobs (read or made, then shaped by options), who may share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bft.models import JobTable, read_unit_memory, read_xi
from bft.replay.engine.rules import Interference
from bft.replay.inputs.files import Files, input_digests
from bft.replay.inputs.jobs import fitted, job_notes, jobs_of, load_of
from bft.replay.inputs.notes import Watcher
from bft.replay.inputs.shaping import fit_sizes
from bft.replay.inputs.trace import kind_notes, outlook, traces
from bft.replay.options.options import Options
from bft.replay.pools import Pool, cluster_pools


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


def load(options: Options, notes: Watcher, files: Files | None = None) -> Inputs:
    """Read the node trace and the jobs that the options name, and see that they fit.

    Without a trace the bundled data set is used; with a trace but no jobs, a generated workload of the BFTrainer
    paper's kind, sized to the trace. `files` reads what the options name, and caches it.

    Raises
    ------
    InputError
        When a file cannot be used, or nothing would happen.
    """
    files = files or Files()
    generated_load: float | None = None
    pools: Sequence[Pool]
    if options.cluster is None:
        whole, trace = traces(options, notes, files)
        jobs = jobs_of(options, trace, notes, files)
        if options.job_bounds is None and options.jobs is None:
            generated_load = load_of(jobs, trace)
        jobs = fitted(trace, jobs, notes, options)
        expected = outlook(options, trace, whole, notes)
        pools = [Pool("", trace, jobs, tuple(range(len(jobs))), outlook=expected)]
        if "node_trace" in files.held:
            files.held["node_trace"] = trace
    else:
        jobs = jobs_of(options, None, notes, files)
        pools = cluster_pools(options.cluster, jobs)
    digests = input_digests(options, files)
    interference = sharing(options, jobs, notes, files)
    for note in (*kind_notes(pools[0].trace.kinds, jobs), *job_notes(options, jobs)):
        notes.note(note)
    never_run: tuple[str, ...] = ()
    if not options.published:  # which keeps jobs in play that can never run
        jobs, pools, never_run = fit_sizes(jobs, pools, options, notes)
    return Inputs(tuple(pools), jobs, digests, interference, generated_load, never_run)


def sharing(
    options: Options, jobs: JobTable, notes: Watcher, files: Files
) -> Interference | None:
    """Return who slows whom down on shared units; None: nobody shares."""
    if options.xi is None:
        return None
    held = files.held
    table = held["xi"] if "xi" in held else files.once(read_xi, options.xi)
    if table.clipped:
        notes.note(f"{table.clipped} xi below 1 are measurement noise and count as 1")
    if table.estimated:
        counts = ", ".join(f"{count} {flag}" for flag, count in table.estimated.items())
        notes.note(
            f"{sum(table.estimated.values())} rows of the xi table are estimates, not measurements: {counts}"
        )
    memory = options.memory_table
    interference = Interference(
        table,
        options.xi_max or math.inf,
        options.unit_memory_gib,
        frozenset(frozenset(pair) for pair in options.forbid),
        None if memory is None else files.once(read_unit_memory, memory),
        options.sub_batch,
    )
    if interference.by_units:
        sizes = {row.units for row in table.measurements if row.units is not None}
        notes.note(
            f"a job's xi is that of as many units as it has ({', '.join(f'{n:g}' for n in sorted(sizes))} in the xi "
            "table); on others that of rows without units counts, or the largest of its pair"
        )
    kinds = {interference.job_class(job): job for job in jobs}.values()
    if not any(interference.ever(a, b) for a in kinds for b in kinds):
        models = ", ".join(sorted({job.model or "(none)" for job in jobs}))
        notes.note(
            f"no two jobs may share: the xi table, memory or --option forbid leave no pair of the models {models}"
        )
    return interference
