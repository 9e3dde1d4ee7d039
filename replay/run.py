"""A whole run: load, replay, replay on dedicated nodes, write the run directory."""

from __future__ import annotations

import platform
import re
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bft.milp.backends.process import DIED
from bft.models import InputError, JobTable, write_parquet
from bft.models.tables import trusting_pickles
from bft.replay.checkpoint import Checkpoint, checkpoint_path, claimed
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import PolicyCall
from bft.replay.inputs.files import Files
from bft.replay.inputs.load import Inputs, load
from bft.replay.inputs.notes import Notes, Watcher
from bft.replay.inputs.shaping import MAX_NAMED, cap_all
from bft.replay.options.options import Options
from bft.replay.options.table import PRESETS
from bft.replay.policies import MilpPolicy, Policy, PolicyError
from bft.replay.pools import Pool, Prepares, Stage, StagesBefore, cluster_pools, merge
from bft.replay.reference import replay_reference, write_step_log
from bft.replay.results import run_directory as results
from bft.replay.results.bounds import Bounds, beside_bounds, bounds_of
from bft.replay.results.census import census_of
from bft.replay.results.dedicated import dedicated_traces
from bft.replay.results.headlines import BEST, MUCH_LEFT, advice, costs, short_window
from bft.replay.results.host import host_metrics, host_notes
from bft.replay.results.metrics import summarise
from bft.replay.results.outcome_tables import (
    finish_frame,
    write_outcome,
    write_returns,
)
from bft.replay.results.search import search_metrics
from bft.replay.trace.node_trace import NodeTrace


def execute(
    options: Options,
    folder: str | Path,
    *,
    force: bool = False,
    watcher: Watcher | None = None,
    should_stop: Callable[[], bool] | None = None,
    checkpoint_every_s: float | None = None,
    files: Files | None = None,
    tables: bool = True,
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
        Called between steps; when true, the results so far are written and marked as interrupted.
    checkpoint_every_s
        Save the state so often (wall time) beside `folder`, and begin from what is saved there; None: do neither. The
        part that an interrupted run has left in `folder` gives way to what becomes of its checkpoint.
    files
        Reads the inputs, or holds objects in their place; several runs of a process can share one, which caches files.
    tables
        Whether all is written, or only summary.json and timing.json.

    Returns
    -------
    dict
        The content of summary.json.

    Raises
    ------
    PolicyError
        When the policy fails; what was replayed before is written, and `policy_error` in its metrics says why.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> options = Options(tfwd_s=120, policy="fifo", dedicated=False)  # on the bundled data set
    >>> with TemporaryDirectory() as folder:
    ...     summary = execute(options, Path(folder, "run"))
    ...     sorted(path.name for path in Path(folder, "run").iterdir())
    ['allocations.parquet', 'jobs.parquet', 'steps.parquet', 'summary.json', 'timing.json', 'unused.parquet']
    >>> summary["options"]["policy"], summary["metrics"]["jobs"]
    ('fifo', 60)
    """
    folder, watcher = Path(folder), watcher or Watcher()
    notes = Notes(watcher)
    with claimed(folder), trusting_pickles(options.trust_pickle):
        saved = checkpoint_path(folder)
        resumes = (
            checkpoint_every_s is not None
            and saved.exists()
            and results.is_interrupted(folder)
        )
        results.check_writable(folder, force=force or resumes)
        started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        began = time.perf_counter()
        for note in options.notes():  # and errors: before anything is read
            notes.note(note)
        inputs = load(options, notes, files)
        timing: dict[str, Any] = {
            "started_at": started_at,
            "load_s": time.perf_counter() - began,
        }
        spill = results.existing(folder.parent)
        run = Run(options, inputs, watcher, notes, should_stop, timing, spill)
        configuration = _summary(run)
        if checkpoint_every_s is not None:
            if len(inputs.pools) > 1:
                watcher.note(
                    "--checkpoint-every saves one pool of nodes, not virtual clusters: without effect"
                )
            elif options.published:
                watcher.note(
                    "--option compat=reference knows no --checkpoint-every: without effect"
                )
            else:
                run.checkpoint = Checkpoint(saved, configuration, checkpoint_every_s)
        if resumes and not force:
            # Only a part of this very run gives way to its continuation.
            same = {
                key: configuration[key] for key in ("options", "inputs", "versions")
            }
            force = run.checkpoint is not None and results.is_interrupted(folder, same)
            results.check_writable(folder, force=force)
        write = _replay_reference(run) if options.published else _replay(run)
        # Only now, so that a replay that is killed leaves nothing but its checkpoint and the name of its lock.
        with results.run_directory(folder, force=force) as draft:
            if tables:
                write(draft)
            summary = _summary(run)
            results.write_json(draft / results.SUMMARY, summary)
            timing["total_s"] = time.perf_counter() - began
            timing["peak_memory_mib"] = _peak_mib()
            timing["machine"] = {
                "python": platform.python_version(),
                "system": platform.platform(),
            }
            results.write_json(draft / results.TIMING, timing)
        if run.checkpoint is not None and not run.metrics["interrupted"]:
            run.checkpoint.path.unlink(missing_ok=True)
    if run.failed is not None:
        count = run.metrics["decisions"] + 1
        raise PolicyError(
            f"{run.failed}, at decision {count:,}; what was replayed before is kept in {folder} and marked"
        )
    return summary


def online(options: Options, inputs: Inputs, spill: Path) -> Replay:
    """The replay on the only node trace before its first step, for callers that drive it themselves."""
    _, _, pools = _stage_before(options, inputs)
    run = Run(options, inputs, Watcher(), Notes(Watcher()), None, {}, spill)
    return run.engine(pools[0])


def bounds_by(options: Options, watcher: Watcher) -> tuple[Bounds, Inputs]:
    """Bounds for any policy on the inputs that the options name, and these inputs."""
    with trusting_pickles(options.trust_pickle):
        inputs = load(options, Notes(watcher))
    # Whom deadlines refuse depends on the policy.
    refused = None if options.rules.admission == "deadline" else ()
    return bounds_for(options, inputs, inputs.pools, refused), inputs


@dataclass
class Run:
    """A run under way: what it replays, and what has come of it so far.

    Parameters
    ----------
    options, inputs, watcher, notes, should_stop
        As for `execute`.
    timing
        Wall-clock figures.
    spill
        Folder for what does not fit into memory.
    checkpoint
        Of the first replay, if there is one.
    metrics
        The metrics of summary.json.
    pools
        What was replayed, once --policy has prepared the jobs.
    staged
        Whether a stage on further nodes came before.
    outcome
        The outcome of all pools.
    dedicated
        The outcomes on dedicated nodes, for U.
    policies
        The policies that replayed the pools.
    stopped
        Whether somebody asked to stop before the end.
    failed
        The failure of a policy; after it nothing more is replayed.
    """

    options: Options
    inputs: Inputs
    watcher: Watcher
    notes: Notes
    should_stop: Callable[[], bool] | None
    timing: dict[str, Any]
    spill: Path
    checkpoint: Checkpoint | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    pools: Sequence[Pool] = ()
    staged: bool = False
    outcome: Outcome = field(init=False)
    dedicated: Sequence[Outcome] = ()
    policies: list[Policy] = field(default_factory=list)
    stopped: bool = False
    failed: PolicyError | None = None

    @property
    def of_kinds(self) -> bool:
        """Whether units are of several kinds."""
        return any(pool.trace.kinds for pool in self.pools)

    def engine(self, pool: Pool, *, dedicated: bool = False) -> Replay:
        """The replay of a pool's jobs under the policy of the options, before its first step."""
        policy, rules = (
            self.options.make_policy(self.inputs.interference),
            self.options.rules,
        )
        if not dedicated:
            self.policies.append(policy)
        never_run = frozenset(self.inputs.never_run)
        replay = Replay(
            pool.trace,
            pool.jobs,
            policy,
            rules.dedicated() if dedicated else rules,
            self.inputs.interference,
            {place for place, job in enumerate(pool.jobs) if job.name in never_run},
            self.options.make_workload(),
            pool.outlook,
        )
        for table in replay.tables.values():
            table.folder = self.spill
        return replay

    def replay(self, name: str, pool: Pool, *, dedicated: bool = False) -> Outcome:
        """Replay a pool's jobs under the policy of the options, as far as it comes."""
        watcher = self.watcher
        checkpoint = None if dedicated else self.checkpoint
        watcher.stage(name, pool.trace.start, pool.trace.end)
        began = time.perf_counter()
        replay = self.engine(pool, dedicated=dedicated)
        if checkpoint is not None and checkpoint.resume(replay):
            watcher.note(
                f"resumed from {checkpoint.path.name} after {replay.ledger.decisions} decisions"
            )

        def save(*, due: bool) -> None:
            if checkpoint is None or (due and not checkpoint.due()):
                return
            try:
                checkpoint.save(replay)
            except InputError as error:  # a full disk must not lose the replay so far
                watcher.note(f"{error}; the replay goes on")

        def on_step(now: int) -> None:
            watcher.at(now, replay.ledger.decisions)
            save(due=True)

        def stop() -> bool:
            asked = self.should_stop is not None and self.should_stop()
            return asked or self.failed is not None

        try:
            # Saved at the end too: the replay for U and the writing, which follow, may be interrupted or killed.
            outcome = replay.run(
                on_step=on_step, should_stop=stop, before_close=lambda: save(due=False)
            )
        except PolicyError as error:
            self.failed = error
            outcome = error.outcome
        spent = "dedicated_s" if dedicated else "replay_s"
        seconds = time.perf_counter() - began
        self.timing[spent] = self.timing.get(spent, 0.0) + seconds
        return outcome


def _replay(run: Run) -> Callable[[Path], None]:
    """Replay, and compute the metrics; return what writes the tables."""
    options = run.options
    stage, jobs, run.pools = _stage_before(options, run.inputs)
    run.staged = stage is not None
    if options.workload is not None and (run.staged or len(run.pools) > 1):
        what = (
            f"$policy {options.policy}, which profiles jobs first"
            if run.staged
            else "several virtual clusters"
        )
        raise InputError(
            f"$workload needs all jobs on one machine from the start; it does not go with {what}"
        )
    outcomes = [
        run.replay(f"replay of {pool.name}" if pool.name else "replay", pool)
        for pool in run.pools
    ]
    merged = merge(run.pools, outcomes, jobs) if run.pools else None
    done = merged if stage is None else stage.joined(merged)
    if done is None:
        raise InputError("the job table is empty", file=run.inputs.jobs.source or None)
    run.outcome, run.stopped = done, done.interrupted
    run.timing["decision_s"] = decision_times(done)
    _replay_on_dedicated_nodes(run, jobs)
    for contribution in CONTRIBUTORS:
        run.metrics |= contribution(run)

    def write(draft: Path) -> None:
        write_outcome(draft, done)
        if options.rules.return_time_s is not None:
            write_returns(draft, done)

    return write


def _stage_before(
    options: Options, inputs: Inputs
) -> tuple[Stage | None, JobTable, Sequence[Pool]]:
    """Run the stage of a policy before the pools; return it, the jobs that are left, and their pools."""
    policy = options.make_policy(inputs.interference)
    jobs, pools = inputs.jobs, inputs.pools
    if isinstance(policy, Prepares):
        with PolicyCall(options.policy, policy, under_way=False):
            jobs = policy.prepare(jobs)
        pools = tuple(pool.of(jobs) for pool in pools)
    if options.cluster is None or not isinstance(policy, StagesBefore):
        return None, jobs, pools
    with PolicyCall(options.policy, policy, under_way=False):
        stage = policy.stage_before(
            jobs,
            start_ns=min(pool.trace.start for pool in pools),
            end_ns=max(pool.trace.end for pool in pools),
            units_per_node=pools[0].trace.units_per_node,
        )
    if stage is None:
        return None, jobs, pools
    return stage, stage.jobs, cluster_pools(options.cluster, stage.jobs)


def _replay_on_dedicated_nodes(run: Run, jobs: JobTable) -> None:
    """Replay the jobs on dedicated nodes, for U."""
    options, why = run.options, ""
    if any(policy.name == "schedule" for policy in run.policies):
        why = (
            "a schedule: it names units of this machine, which dedicated nodes are not"
        )
    if run.of_kinds:
        why = "several kinds of units: as many dedicated nodes could be of any kinds"
    if options.dedicated and why:
        run.notes.note(f"U is not computed for {why}")
    # A fixed cluster is dedicated: it would be compared with itself.
    compared = options.dedicated and not why and options.cluster is None
    if not compared or run.stopped:
        return
    done: list[Outcome] = []
    rigid, never_run = options.traits.rigid, run.inputs.never_run
    for trace in dedicated_traces(run.outcome):
        nodes = len(trace.nodes)
        pool, too_large = cap_all(Pool("", trace, jobs, ()), rigid=rigid, but=never_run)
        if too_large:
            run.notes.note(
                f"for U, {too_large} jobs that need more than the {nodes} dedicated nodes run on all of them"
            )
        name = f"{nodes} dedicated node{'s' * (nodes != 1)}, for U"
        result = run.replay(name, pool, dedicated=True)
        if result.interrupted:  # U of a part means nothing
            run.stopped = True
            return
        done.append(result)
    run.dedicated = done


# --- what a run adds to the metrics of summary.json, and the notes on it ----------------------------------------------


def _replayed(run: Run) -> dict[str, Any]:
    o = run.options
    rates: dict[str, Any] = {
        "node_watts": o.node_watts,
        "price_per_node_hour": o.price_per_node_hour,
        "co2_per_kwh": o.co2_per_kwh,
    }
    found = {
        "search": search_metrics(run.outcome),
        "costs": costs(run.outcome, **rates),
    }
    return {
        **summarise(run.outcome, run.dedicated),
        "interrupted": run.stopped,
        **{name: figures for name, figures in found.items() if figures},
    }


def _host_jobs(run: Run) -> dict[str, Any]:
    """What harvesting costs the machine's own jobs, with notes; nothing for fixed clusters."""
    options, outcome, rules = run.options, run.outcome, run.options.rules
    if outcome.host is None or options.cluster is not None or outcome.trace.by_unit:
        return {}
    figures = host_metrics(
        outcome,
        rules.return_time_s,
        price=options.host_price,
        some_nodes_alone=options.node_class is not None,
    )
    if rules.harms:
        if rules.reserve and options.dedicated:
            run.notes.note(
                "--reserve keeps no node free of those dedicated ones with which U compares"
            )
        for note in host_notes(figures, outcome, rules):
            run.notes.note(note)
        figures |= {"reserve": rules.reserve, "free_first": rules.takes_free_first}
    return {"host": figures}


def _admitted(run: Run) -> dict[str, Any]:
    """How many jobs with deadlines came, and which were refused; with a note."""
    if run.options.rules.admission != "deadline":
        return {}
    came = [
        record
        for record in census_of(run.outcome.records, run.outcome.end_ns)["submitted"]
        if record.job.deadline_ns is not None
    ]
    refused = [record.job.name for record in came if record.refused_ns is not None]
    if refused:
        more = " and others" if len(refused) > MAX_NAMED else ""
        run.notes.note(
            f"--option admission=deadline: {len(refused):,} of {len(came):,} jobs with deadlines were refused and "
            f"never run ({', '.join(refused[:MAX_NAMED])}{more}); summary.json names all"
        )
    return {"admission": {"with_deadlines": len(came), "refused": refused}}


def _bound(run: Run) -> dict[str, Any]:
    """The bound that no policy exceeds, and the share of it."""
    if run.staged:
        policy = run.options.policy
        bounds = Bounds(
            why_none=f"no bound is known: --policy {policy} runs jobs on further nodes first"
        )
    else:
        refused = [
            each.job.name
            for each in census_of(run.outcome.records, run.outcome.end_ns)["refused"]
        ]
        bounds = bounds_for(run.options, run.inputs, run.pools, refused)
    return beside_bounds(run.outcome, bounds)


def _advised(run: Run) -> dict[str, Any]:
    """What to set where much of the bound is left; None where nothing is, or where no option is known to help.

    With the default policy a note says what it was lost to.
    """
    options, share = run.options, run.metrics["share_of_bound"]
    if options.policy == "milp":
        short = short_window(run.outcome, options.tfwd_s)
        if short is not None:
            run.notes.note(short)
    if run.metrics["decisions"] and not run.outcome.used_unit_seconds:
        run.notes.note("no job got units at any decision")
    if share is None or share >= 1 - MUCH_LEFT or run.of_kinds:
        return {"advised": None}
    if options.policy != "milp":
        fits = options.cluster is None and options.xi is None
        return {"advised": f"--policy milp {BEST}" if fits else None}
    # The backend changes no result.
    best = PRESETS["best"].items() - {("backend", PRESETS["best"]["backend"])}
    is_best = best <= options.flat().items()
    max_jobs = options.rules.max_jobs
    advised = advice(run.outcome, run.metrics, max_jobs=max_jobs, is_best=is_best)
    if advised is None:
        return {"advised": None}
    text, what = advised
    run.notes.note(text)
    return {"advised": what}


def _failures(run: Run) -> dict[str, Any]:
    """Why the policy failed, and how often a solver died."""
    deaths = int(run.outcome.steps["note"].str.contains(DIED, regex=False).sum())
    failed = {} if run.failed is None else {"policy_error": str(run.failed)}
    return failed | ({"solver_deaths": deaths} if deaths else {})


def _verified(run: Run) -> dict[str, Any]:
    """How many answers of a solver were checked, and how many were invalid."""
    by_milp = [policy for policy in run.policies if isinstance(policy, MilpPolicy)]
    checked = [policy for policy in by_milp if policy.solver.verify or policy.verified]
    if not checked:
        return {}
    return {
        "verified": sum(policy.verified for policy in checked),
        "verify_mismatches": sum(policy.mismatches for policy in checked),
    }


def bounds_for(
    options: Options,
    inputs: Inputs,
    pools: Sequence[Pool],
    refused: Sequence[str] | None,
) -> Bounds:
    """Return bounds for any policy; `refused` are the jobs that deadlines keep out, None where that is not known."""
    if options.workload is not None:
        return Bounds(
            why_none="no bound is known: which jobs --workload submits and stops depends on what is decided"
        )
    return bounds_of(
        [(pool.trace, pool.jobs) for pool in pools],
        inputs.interference,
        inputs.never_run,
        refused,
    )


# In their order: what computes the metrics of summary.json, and which.
CONTRIBUTORS: tuple[Callable[[Run], dict[str, Any]], ...] = (
    _replayed,  # those of `summarise`, interrupted, search, costs
    _host_jobs,  # host
    _admitted,  # admission
    _bound,  # bound, share_of_bound, bounds, jct_to_end_mean_s
    _advised,  # advised, from share_of_bound
    _failures,  # policy_error, solver_deaths
    _verified,  # verified, verify_mismatches
)


# Of the time that decisions took: enough of them to draw its distribution.
_QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


def decision_times(outcome: Outcome) -> dict[str, Any]:
    """Return how long the decisions took, seconds, for timing.json."""
    seconds = outcome.decision_seconds
    if not len(seconds):
        return {"count": 0}
    median, p99, largest = np.percentile(seconds, (50, 99, 100)).tolist()
    quantiles = np.quantile(seconds, np.array(_QUANTILES)).tolist()
    return {
        "count": len(seconds),
        "sum": float(seconds.sum()),
        "mean": float(seconds.mean()),
        "median": median,
        "p99": p99,
        "max": largest,
        "quantiles": dict(zip(map(str, _QUANTILES), quantiles, strict=True)),
    }


def _replay_reference(run: Run) -> Callable[[Path], None]:
    """Replay as published; return what writes the tables."""
    options, jobs, trace = run.options, run.inputs.jobs, run.inputs.pools[0].trace
    run.watcher.stage("replay as published", trace.start, trace.end)
    began = time.perf_counter()
    done = replay_reference(
        trace,
        jobs,
        tfwd_s=options.tfwd_s,
        max_jobs=options.rules.max_jobs,
        use_milp=options.policy == "milp",
        backend=options.solver.backend,
        time_limit=options.solver.time_limit_s,
        on_step=run.watcher.at,
        should_stop=run.should_stop,
    )
    run.timing["replay_s"] = time.perf_counter() - began
    statuses = {"kept at time limit": done.timeouts, "fallback": done.fallbacks}
    run.metrics |= {
        "outcome": done.total_progress,
        "decisions": done.decisions,
        "decisions_by_status": {
            status: count for status, count in statuses.items() if count
        },
        "rows": len(done.steps),
        "jobs": len(done.jobs),
        "jobs_finished": sum(finish is not None for finish in done.finish_ns),
        "preemption_cost": float(done.steps["PreCost"].sum()),
        "rescale_cost": float(done.steps["ReScost"].sum()),
        "interrupted": done.interrupted,
    }

    def write(draft: Path) -> None:
        write_step_log(done, draft / results.STEP_LOG)
        finished = finish_frame(jobs, done.finish_ns, done.progress)
        write_parquet(finished, draft / results.JOBS)

    return write


def _summary(run: Run) -> dict[str, Any]:
    """Make the summary without wall-clock times: the same input and options give the same bytes."""
    options, inputs = run.options, run.inputs
    return {
        "format": results.FORMAT,
        "format_version": results.FORMAT_VERSION,
        "degraded": degraded(run.metrics),
        "metrics": run.metrics,
        "options": options.flat(),
        "inputs": {
            "digests_sha256": inputs.digests,
            "trace": _of_trace(inputs.pools[0].trace)
            if options.cluster is None
            else {"source": options.cluster},
            "jobs": {
                "source": inputs.jobs.source,
                "count": len(inputs.jobs),
                "generated_load": inputs.generated_load,
                "never_run": list(inputs.never_run),
            },
        },
        "notes": list(run.notes.kept),
        "versions": versions(),
    }


def _of_trace(trace: NodeTrace) -> dict[str, Any]:
    return {
        "source": trace.source,
        "machine": trace.machine,
        "nodes": len(trace.nodes),
        **({"units": trace.units} if trace.by_unit else {}),
        **(
            {"uncertain": trace.uncertain.as_dict()}
            if trace.uncertain is not None
            else {}
        ),
        "events": len(trace),
        **({"assumptions": list(trace.assumptions)} if trace.assumptions else {}),
        **({"zone": trace.zone} if trace.zone else {}),
    }


def degraded(metrics: dict[str, Any]) -> bool:
    """Whether a fallback was used or an answer turned out invalid: the command line then exits with 3."""
    fallbacks = metrics.get("decisions_by_status", {}).get("fallback", 0)
    return bool(fallbacks or metrics.get("verify_mismatches", 0))


def _peak_mib() -> float:
    """Most resident memory of this process so far; getrusage would count what our parent had when it started us."""
    status = Path("/proc/self/status")
    found = status.exists() and re.search(r"VmHWM:\s*(\d+)", status.read_text())
    kib = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib / 1024


def versions() -> dict[str, str]:
    """Versions of Python and of the packages on which a result may depend, by name."""
    packages = {
        name: _version(name)
        for name in ("bft-replay", "mip", "numba", "numpy", "pandas", "pyarrow")
    }
    return {**packages, "python": platform.python_version()}


@cache  # a process has one version of a package, and its metadata takes milliseconds to read
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
