"""From options to a run directory: load, replay, replay on dedicated nodes, write."""

from __future__ import annotations

import math
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from bft.models import OBJECTIVES, InputError, JobTable, jobs_from_frame, read_jobs, read_published_jobs, read_xi
from bft.replay import results
from bft.replay.engine import Replay, Rules
from bft.replay.interference import Interference
from bft.replay.ledger import Outcome
from bft.replay.metrics import equivalent_nodes, summarise
from bft.replay.policies import EqualShare, MilpPolicy, MilpSharingPolicy, Policy
from bft.replay.reference import replay_reference, write_step_log
from bft.replay.trace import SECOND_NS, NodeTrace, always_idle
from bft.replay.trace_files import read_trace, trace_from_frame

# The published data set starts in row 1,000 of its matrix: what its replayer drops before anything else.
PUBLISHED_SKIP_ROWS = 1000
# A workload for users who bring a trace but no jobs: that of the BFTrainer paper.
DEFAULT_JOBS = 1001

PolicyName = Literal["milp", "milp-sharing", "equal-share"]


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that decides a replay's result; recorded in summary.json."""

    node_trace: str | None = None
    job_bounds: str | None = None
    job_curves: str | None = None
    jobs: str | None = None
    tfwd_s: float = 10.0
    time_limit_s: float = 10.0
    max_jobs: int = 10
    first_node: int = 0
    node_count: int | None = None
    skip_rows: int | None = None
    sort: bool = False
    policy: PolicyName = "milp"
    backend: str = "cbc"
    formulation: str = "auto"
    strict_reference: bool = False
    gap: float = 0.0
    threads: int = 1
    cost_model: Literal["bftrainer", "stall"] = "bftrainer"
    events: Literal["all", "node"] = "all"
    min_interval_s: float = 0.0
    verify: bool = False
    objective: Literal["own", "throughput", "efficiency"] = "own"
    deadline_boost: float = 1.0
    deadline_horizon_s: float = 86_400.0
    xi: str | None = None
    xi_max: float | None = None
    xi_partners: int = 3
    unit_memory_gib: float | None = None
    forbid: tuple[tuple[str, str], ...] = ()
    compat: Literal["reference"] | None = None
    dedicated: bool = True


class Watcher(Protocol):
    """Whoever shows how far a run has come."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""

    def note(self, text: str) -> None:
        """Something worth telling, not an error."""


class Silent:
    """A watcher that shows nothing."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """Show nothing."""

    def at(self, now_ns: int, decisions: int) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is replayed, and where it came from."""

    trace: NodeTrace
    jobs: JobTable
    digests: dict[str, str] = field(default_factory=dict)
    interference: Interference | None = None


def load(options: Options, watcher: Watcher) -> Inputs:
    """Read the node trace and the jobs that the options name, and see that they fit.

    Without a trace the bundled data set is used; with a trace but no jobs, a generated workload of the BFTrainer
    paper's kind, submitted from the trace's start on.

    Raises
    ------
    InputError
        When a file cannot be used, or nothing would happen.
    """
    if (options.job_bounds is None) != (options.job_curves is None):
        given, missing = ("-bdfn", "-scfn") if options.job_curves is None else ("-scfn", "-bdfn")
        raise InputError(f"{given} needs {missing} with it: a published job set is a pair of tables")
    digests = {}
    skip = options.skip_rows
    if skip is None:
        skip = PUBLISHED_SKIP_ROWS if options.compat == "reference" else 0
    if options.node_trace is None:
        from bft.datasets import load_bundled

        table, job_frame = load_bundled()
        if options.first_node or options.node_count is not None or options.skip_rows:
            watcher.note("-nis, -nN and --skip-rows are for a trace of your own; the bundled one is used whole")
        trace = trace_from_frame(table.frame, source="bundled: summit-like-512", metadata=table.metadata)
    else:
        if skip and options.skip_rows is None:
            watcher.note(f"the first {skip} rows are skipped, as published; --skip-rows says otherwise")
        trace = read_trace(
            options.node_trace,
            first_node=options.first_node,
            node_count=options.node_count,
            skip_rows=skip,
            sort=options.sort,
        )
        digests["node_trace"] = _digest(options.node_trace)
    for note in trace.notes:
        watcher.note(note)
    if not len(trace.joined):
        raise InputError("no node is ever idle in this trace, so there is nothing to give", file=trace.source or None)
    if options.job_bounds is not None and options.job_curves is not None:
        jobs = read_published_jobs(options.job_bounds, options.job_curves)
        digests["job_bounds"], digests["job_curves"] = (
            _digest(options.job_bounds),
            _digest(options.job_curves),
        )
    elif options.jobs is not None:
        jobs = read_jobs(options.jobs)
        digests["jobs"] = _digest(options.jobs)
    elif options.node_trace is None:
        jobs = jobs_from_frame(job_frame, source="bundled: jobs-60")
    else:
        jobs = _default_jobs(trace)
        watcher.note(f"no jobs given: {len(jobs)} generated image-recognition trainings, one every 36 s (-bdfn, -scfn)")
    _fit(trace, jobs, watcher)
    interference = None
    if options.xi is not None:
        interference = _interference(options, jobs, watcher)
        digests["xi"] = _digest(options.xi)
    return Inputs(trace, jobs, digests, interference)


def _interference(options: Options, jobs: JobTable, watcher: Watcher) -> Interference:
    table = read_xi(options.xi or "")
    if table.clipped:
        watcher.note(f"{table.clipped} xi below 1 are measurement noise and count as 1")
    interference = Interference(
        table,
        math.inf if options.xi_max is None else options.xi_max,
        options.unit_memory_gib,
        frozenset(frozenset(pair) for pair in options.forbid),
    )
    by_model = {(job.model, job.batch_size, job.memory_gib): job for job in jobs}
    kinds = list(by_model.values())
    if not any(interference.xi(a, b) for a in kinds for b in kinds):
        models = ", ".join(sorted({job.model or "(none)" for job in jobs}))
        watcher.note(f"no two jobs may share: the xi table, memory or --forbid leave no pair of the models {models}")
    return interference


def _digest(path: str) -> str:
    """SHA-256 of an input; as in reading, a name without suffix means the published file of that name."""
    candidates = [Path(path + suffix) for suffix in ("", ".pkl", ".tar.gz")]
    return results.digest(next((file for file in candidates if file.is_file()), candidates[0]))


def _default_jobs(trace: NodeTrace) -> JobTable:
    from bft.datasets import generate_dnn_jobs

    start = np.datetime_as_string(np.datetime64(trace.start, "ns"))
    frame = generate_dnn_jobs(jobs=DEFAULT_JOBS, first_submit=str(start))
    return jobs_from_frame(frame, source=f"generated: {DEFAULT_JOBS} DNN trainings")


def _fit(trace: NodeTrace, jobs: JobTable, watcher: Watcher) -> None:
    if not len(jobs):
        raise InputError("the job table is empty", file=jobs.source or None)
    late = [job for job in jobs if job.tsub_ns >= trace.end]
    if len(late) == len(jobs):
        first, end = (
            str(np.datetime64(instant, "s"))
            for instant in (min(j.tsub_ns for j in jobs) // SECOND_NS, trace.end // SECOND_NS)
        )
        raise InputError(
            f"all jobs are submitted after the trace ends ({first} and later; the trace ends at {end})",
            file=jobs.source or None,
            column="Tsub",
        )
    if late:
        watcher.note(f"{len(late)} of {len(jobs)} jobs are submitted after the trace ends and never run")
    beyond = jobs.beyond_curve()
    if beyond:
        watcher.note(
            f"{len(beyond)} jobs have a Jmax beyond the last point of their curve, which is held constant there "
            f"(first: {beyond[0].name})"
        )


def make_policy(options: Options, interference: Interference | None = None) -> Policy:
    """The policy that the options name."""
    if options.policy == "equal-share":
        return EqualShare()
    common: dict[str, Any] = {
        "tfwd_s": options.tfwd_s,
        "backend": options.backend,
        "formulation": options.formulation,
        "strict_reference": options.strict_reference,
        "time_limit_s": options.time_limit_s,
        "gap": options.gap,
        "threads": options.threads,
        "cost_model": options.cost_model,
        "verify": options.verify,
        "objective": OBJECTIVES[options.objective],
        "deadline_boost": options.deadline_boost,
        "deadline_horizon_s": options.deadline_horizon_s,
    }
    if options.policy == "milp-sharing":
        return MilpSharingPolicy(**common, interference=interference, xi_partners=options.xi_partners)
    return MilpPolicy(**common)


def execute(
    options: Options,
    folder: Path,
    *,
    force: bool = False,
    watcher: Watcher | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Replay as the options say and write the run directory.

    Parameters
    ----------
    options
        What to do.
    folder
        The run directory.
    force
        Replace an earlier run of ours in `folder`.
    watcher
        Who shows progress.
    should_stop
        Asked between steps; when true, what has been replayed so far is written and marked as interrupted.

    Returns
    -------
    dict
        The content of summary.json.
    """
    watcher = watcher or Silent()
    results.check_writable(folder, force=force)
    clock = {"started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    began = time.perf_counter()
    inputs = load(options, watcher)
    loaded = time.perf_counter()
    with results.run_directory(folder, force=force) as draft:
        replay = _replay_reference if options.compat == "reference" else _replay
        metrics, timing = replay(options, inputs, draft, watcher, should_stop)
        summary = _summary(options, inputs, metrics)
        results.write_json(draft / results.SUMMARY, summary)
        results.write_json(
            draft / results.TIMING,
            {
                **clock,
                "load_s": loaded - began,
                **timing,
                "total_s": time.perf_counter() - began,
                "peak_memory_mib": _peak_mib(),
                "machine": {"python": platform.python_version(), "system": platform.platform()},
            },
        )
    return summary


def _replay(
    options: Options,
    inputs: Inputs,
    draft: Path,
    watcher: Watcher,
    should_stop: Callable[[], bool] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    rules = Rules(options.max_jobs, options.cost_model, options.events, options.min_interval_s)

    def run(name: str, trace: NodeTrace, policy: Policy) -> tuple[Outcome, float]:
        watcher.stage(name, trace.start, trace.end)
        began = time.perf_counter()
        replay = Replay(trace, inputs.jobs, policy, rules, inputs.interference)
        outcome = replay.run(on_step=lambda now: watcher.at(now, replay.ledger.decisions), should_stop=should_stop)
        return outcome, time.perf_counter() - began

    policy = make_policy(options, inputs.interference)
    outcome, seconds = run("replay", inputs.trace, policy)
    timing: dict[str, Any] = {"replay_s": seconds, "decision_s": _decision_times(outcome)}
    dedicated, stopped = None, outcome.interrupted
    nodes = equivalent_nodes(outcome)
    if options.dedicated and nodes and not stopped:
        twin = always_idle(nodes, outcome.start_ns, outcome.end_ns, units_per_node=inputs.trace.units_per_node)
        dedicated, timing["dedicated_s"] = run(
            f"{nodes} dedicated nodes, for U", twin, make_policy(options, inputs.interference)
        )
        if dedicated.interrupted:  # U of a part means nothing
            dedicated, stopped = None, True
    metrics = {**summarise(outcome, dedicated), "interrupted": stopped}
    if isinstance(policy, MilpPolicy) and policy.verify:
        metrics["verified"], metrics["verify_mismatches"] = policy.verified, policy.mismatches
    results.write_outcome(draft, outcome)
    return metrics, timing


def _replay_reference(
    options: Options,
    inputs: Inputs,
    draft: Path,
    watcher: Watcher,
    should_stop: Callable[[], bool] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    ignored = [
        name
        for name, given in (
            ("--verify", options.verify),
            ("--cost-model", options.cost_model != "bftrainer"),
            ("--events", options.events != "all"),
            ("--min-interval", options.min_interval_s > 0),
            ("--gap", options.gap > 0),
            ("--threads", options.threads != 1),
        )
        if given
    ]
    if ignored:
        watcher.note(f"--compat reference knows no {', '.join(ignored)}: without effect")
    watcher.stage("replay as published", inputs.trace.start, inputs.trace.end)
    began = time.perf_counter()
    run = replay_reference(
        inputs.trace,
        inputs.jobs,
        tfwd_s=options.tfwd_s,
        max_jobs=options.max_jobs,
        use_milp=options.policy == "milp",
        backend=options.backend,
        time_limit=options.time_limit_s,
        on_step=watcher.at,
        should_stop=should_stop,
    )
    timing = {"replay_s": time.perf_counter() - began}
    write_step_log(run, draft / results.STEP_LOG)
    finished = results.finish_frame(inputs.jobs, run.finish_ns, run.progress)
    results.write_parquet(finished, draft / results.JOBS)
    statuses = {"kept at time limit": run.timeouts, "fallback": run.fallbacks}
    metrics = {
        "outcome": run.total_progress,
        "decisions": run.decisions,
        "decisions_by_status": {status: count for status, count in statuses.items() if count},
        "rows": len(run.steps),
        "jobs": len(run.jobs),
        "jobs_finished": sum(finish is not None for finish in run.finish_ns),
        "preemption_cost": float(run.steps["PreCost"].sum()),
        "rescale_cost": float(run.steps["ReScost"].sum()),
        "interrupted": run.interrupted,
    }
    return metrics, timing


def _decision_times(outcome: Outcome) -> dict[str, float]:
    seconds = np.array(outcome.solve_seconds)
    if not len(seconds):
        return {"count": 0}
    named = dict(zip(("median", "p99", "max"), np.percentile(seconds, (50, 99, 100)).tolist(), strict=True))
    return {"count": len(seconds), "sum": float(seconds.sum()), "mean": float(seconds.mean()), **named}


def _summary(options: Options, inputs: Inputs, metrics: dict[str, Any]) -> dict[str, Any]:
    """Everything but wall-clock: the same input and options give the same bytes."""
    trace = inputs.trace
    return {
        "format": results.FORMAT,
        "format_version": results.FORMAT_VERSION,
        "degraded": degraded(metrics),
        "metrics": metrics,
        "options": asdict(options),
        "inputs": {
            "digests_sha256": inputs.digests,
            "trace": {
                "source": trace.source,
                "machine": trace.machine,
                "nodes": len(trace.nodes),
                "events": len(trace),
                "notes": list(trace.notes),
            },
            "jobs": {"source": inputs.jobs.source, "count": len(inputs.jobs)},
        },
        "versions": {name: _version(name) for name in ("bft-replay", "mip", "numba", "numpy", "pandas", "pyarrow")},
    }


def degraded(metrics: dict[str, Any]) -> bool:
    """Whether a fallback was used or an answer turned out wrong: the command line then exits with 3."""
    fallbacks = metrics.get("decisions_by_status", {}).get("fallback", 0)
    return bool(fallbacks or metrics.get("verify_mismatches", 0))


def _peak_mib() -> float:
    """Most resident memory of this process so far; getrusage would count what our parent had when it started us."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM")), None)
        if line is not None:
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
