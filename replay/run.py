"""A whole run: load, replay, replay on dedicated nodes, write the run directory."""

from __future__ import annotations

import platform
import resource
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bft.milp.backends.process import DIED
from bft.models import InputError, JobTable, write_parquet
from bft.replay.checkpoint import Checkpoint, checkpoint_path, claimed
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.loop import Replay
from bft.replay.engine.policy_api import PolicyCall
from bft.replay.inputs.files import Files, InMemoryInputs
from bft.replay.inputs.load import MAX_NAMED, Inputs, cap_all, load
from bft.replay.inputs.notes import Notes, Silent, Watcher
from bft.replay.options.options import Options
from bft.replay.options.presets import PRESETS
from bft.replay.options.run_spec import RunSpec
from bft.replay.options.table import OptionTable
from bft.replay.policies import MilpPolicy, Policy, PolicyError
from bft.replay.pools import Pool, Prepares, Stage, StagesBefore, cluster_pools, merge
from bft.replay.reference import replay_reference, write_step_log
from bft.replay.results import run_directory as results
from bft.replay.results.bounds import Bounds, beside_bounds, bounds_of
from bft.replay.results.census import Census
from bft.replay.results.dedicated import dedicated_traces
from bft.replay.results.headlines import BEST, MUCH_LEFT, advice, costs
from bft.replay.results.host import host_metrics, host_notes
from bft.replay.results.metrics import summarise
from bft.replay.results.outcome_tables import (
    finish_frame,
    write_outcome,
    write_returns,
)
from bft.replay.results.search import search_metrics
from bft.replay.trace.node_trace import NodeTrace

# Of the time that decisions took: enough of them to draw its distribution.
_QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


def execute(
    options: Options,
    folder: str | Path,
    *,
    force: bool = False,
    watcher: Watcher | None = None,
    should_stop: Callable[[], bool] | None = None,
    checkpoint_every_s: float | None = None,
    in_memory: InMemoryInputs = InMemoryInputs(),
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
    in_memory
        Objects that take the place of files.
    files
        Reads the inputs; several runs of a process can share one, which caches files.
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
    folder, watcher = Path(folder), watcher or Silent()
    with claimed(folder) as put_in_place:
        for text in put_in_place:
            watcher.note(text)
        run = RunSpec.of(options)
        return _execute(
            run,
            folder,
            force,
            watcher,
            should_stop,
            checkpoint_every_s,
            in_memory,
            files or Files(),
            tables,
        )


def _execute(
    run: RunSpec,
    folder: Path,
    force: bool,
    watcher: Watcher,
    should_stop: Callable[[], bool] | None,
    checkpoint_every_s: float | None,
    in_memory: InMemoryInputs,
    files: Files,
    tables: bool,
) -> dict[str, Any]:
    saved = checkpoint_path(folder)
    resumes = (
        checkpoint_every_s is not None
        and saved.exists()
        and results.is_interrupted(folder)
    )
    results.check_writable(folder, force=force or resumes)
    clock = {"started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    began = time.perf_counter()
    notes = Notes(watcher)
    for note in run.notes():  # and errors: before anything is read
        notes.note(note)
    inputs = load(run, notes, in_memory, files)
    loaded = time.perf_counter()
    configuration = _summary(run.options, inputs, {}, notes)
    checkpoint = None
    if len(inputs.pools) > 1 and checkpoint_every_s is not None:
        watcher.note(
            "--checkpoint-every saves one pool of nodes, not virtual clusters: without effect"
        )
    elif checkpoint_every_s is not None and not run.published:
        checkpoint = Checkpoint(saved, configuration, checkpoint_every_s)
    elif checkpoint_every_s is not None:
        watcher.note("--compat reference knows no --checkpoint-every: without effect")
    if (
        resumes and not force
    ):  # only a part of this very run gives way to its continuation
        same = {name: configuration[name] for name in ("options", "inputs", "versions")}
        force = checkpoint is not None and results.is_interrupted(folder, same)
        results.check_writable(folder, force=force)
    if run.published:
        metrics, timing, write = _replay_reference(
            run.options, inputs, watcher, should_stop
        )
    else:
        metrics, timing, write = _replay(
            run,
            inputs,
            watcher,
            notes,
            should_stop,
            checkpoint,
            results.existing(folder.parent),
        )
    # Only now, so that a replay that is killed leaves nothing but its checkpoint and the name of its lock.
    with results.run_directory(folder, force=force) as draft:
        if tables:
            write(draft)
        summary = _summary(run.options, inputs, metrics, notes)
        results.write_json(draft / results.SUMMARY, summary)
        results.write_json(
            draft / results.TIMING,
            {
                **clock,
                "load_s": loaded - began,
                **timing,
                "total_s": time.perf_counter() - began,
                "peak_memory_mib": _peak_mib(),
                "machine": {
                    "python": platform.python_version(),
                    "system": platform.platform(),
                },
            },
        )
    if checkpoint is not None and not metrics["interrupted"]:
        checkpoint.remove()
    if "policy_error" in metrics:
        raise PolicyError(
            f"{metrics['policy_error']}; what was replayed before is kept in {folder} and marked"
        )
    return summary


Replayed = tuple[dict[str, Any], dict[str, Any], Callable[[Path], None]]
"""Metrics, wall-clock figures, and a function that writes the rest into a folder."""


class _Player:
    """Replays virtual clusters under the policy of the options, in turn, until it is stopped or the policy fails."""

    def __init__(
        self,
        run: RunSpec,
        inputs: Inputs,
        watcher: Watcher,
        should_stop: Callable[[], bool] | None,
        spill: Path,
    ) -> None:
        self._options, self._inputs, self._watcher = run.options, inputs, watcher
        self._spill = spill
        self._should_stop = should_stop
        self._never_run = frozenset(inputs.never_run)
        self.failed: PolicyError | None = None  # after it nothing more is replayed

    def run(
        self,
        name: str,
        pool: Pool,
        policy: Policy,
        checkpoint: Checkpoint | None = None,
        *,
        dedicated: bool = False,
    ) -> tuple[Outcome, float]:
        """Replay a pool's jobs; return the outcome, and the seconds (wall time) that it took."""
        watcher, rules = self._watcher, self._options.rules
        watcher.stage(name, pool.trace.start, pool.trace.end)
        began = time.perf_counter()
        without = {
            index for index, job in enumerate(pool.jobs) if job.name in self._never_run
        }
        replay = Replay(
            pool.trace,
            pool.jobs,
            policy,
            rules.dedicated() if dedicated else rules,
            self._inputs.interference,
            without,
            self._options.make_workload(),
            pool.outlook,
        )
        replay.spill_to(self._spill)
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

        try:
            # Saved at the end too: the replay for U and the writing, which follow, may be interrupted or killed.
            outcome = replay.run(
                on_step=on_step,
                should_stop=self._stop,
                before_close=lambda: save(due=False),
            )
        except PolicyError as error:
            self.failed = error
            outcome = error.outcome
        return outcome, time.perf_counter() - began

    def _stop(self) -> bool:
        return self.failed is not None or (
            self._should_stop is not None and self._should_stop()
        )


def _replay(
    run: RunSpec,
    inputs: Inputs,
    watcher: Watcher,
    notes: Notes,
    should_stop: Callable[[], bool] | None,
    checkpoint: Checkpoint | None,
    spill: Path,
) -> Replayed:
    options, player = run.options, _Player(run, inputs, watcher, should_stop, spill)
    outcomes, policies, replay_s = [], [], 0.0
    stage, jobs, pools = _stage_before(run, inputs)
    if options.workload is not None and (stage is not None or len(pools) > 1):
        what = (
            "several virtual clusters"
            if stage is None
            else f"--policy {options.policy}, which profiles jobs first"
        )
        raise InputError(
            f"--workload needs all jobs on one machine from the start; it does not go with {what}"
        )
    for pool in pools:
        policy = run.make_policy(inputs.interference)
        name = f"replay of {pool.name}" if pool.name else "replay"
        # A checkpoint has one replay; with several virtual clusters, each replay is short.
        outcome, seconds = player.run(
            name, pool, policy, checkpoint if len(pools) == 1 else None
        )
        outcomes.append(outcome)
        policies.append(policy)
        replay_s += seconds
    merged = merge(pools, outcomes, jobs) if pools else None
    done = stage.joined(merged) if stage is not None else merged
    if done is None:
        raise InputError("the job table is empty", file=inputs.jobs.source or None)
    timing: dict[str, Any] = {"replay_s": replay_s, "decision_s": _decision_times(done)}
    dedicated: list[Outcome] = []
    stopped = done.interrupted
    # A fixed cluster is dedicated: it would be compared with itself.
    if options.dedicated and _several_kinds(pools):
        notes.note(
            "U is not computed for several kinds of units: as many dedicated nodes could be of any kinds"
        )
    elif options.dedicated and any(policy.name == "schedule" for policy in policies):
        notes.note(
            "U is not computed for a schedule: it names units of this machine, which dedicated nodes are not"
        )
    elif options.dedicated and options.cluster is None and not stopped:
        dedicated, dedicated_s, stopped = _on_dedicated_nodes(
            player, done, jobs, run, inputs, notes
        )
        timing |= dedicated_s
    metrics = {**summarise(done, dedicated), "interrupted": stopped}
    census = Census.of(done)
    if figures := _host_jobs(done, options, pools, notes):
        metrics["host"] = figures
    if options.rules.admission == "deadline":
        metrics["admission"] = _admitted(census, notes)
    if searched := search_metrics(done):
        metrics["search"] = searched
    if figures := costs(
        done,
        node_watts=options.node_watts,
        price_per_node_hour=options.price_per_node_hour,
        co2_per_kwh=options.co2_per_kwh,
    ):
        metrics["costs"] = figures
    refused = [record.job.name for record in census.group("refused")]
    metrics |= beside_bounds(
        done, _bounds(options, inputs, pools, refused, staged=stage is not None)
    )
    metrics["advised"] = _advised(options, pools, done, metrics, notes)
    if player.failed is not None:
        metrics["policy_error"] = str(player.failed)
    deaths = done.steps["note"].str.contains(DIED, regex=False)
    if deaths.any():
        metrics["solver_deaths"] = int(deaths.sum())

    def write(draft: Path) -> None:
        write_outcome(draft, done)
        if options.rules.return_time_s is not None:
            write_returns(draft, done)

    return metrics | _verified(policies), timing, write


def _host_jobs(
    outcome: Outcome, options: OptionTable, pools: Sequence[Pool], notes: Notes
) -> dict[str, Any]:
    """Compute what harvesting costs the machine's own jobs, with notes; empty for fixed clusters."""
    if outcome.host is None or options.cluster is not None or outcome.trace.by_unit:
        return {}
    rules = options.rules
    figures = host_metrics(
        outcome,
        rules.return_time_s,
        price=options.host_price,
        some_nodes_alone=options.node_class is not None,
    )
    if not rules.harms:
        return figures
    if rules.reserve and options.dedicated:
        notes.note(
            "--reserve keeps no node free of those dedicated ones with which U compares"
        )
    for note in host_notes(figures, outcome, rules, is_best=options.preset == "best"):
        notes.note(note)
    return {**figures, "reserve": rules.reserve, "free_first": rules.takes_free_first}


def _admitted(census: Census, notes: Notes) -> dict[str, Any]:
    """How many jobs with deadlines came, and which were refused; with a note."""
    came = [
        record
        for record in census.group("submitted")
        if record.job.deadline_ns is not None
    ]
    refused = [record.job.name for record in came if record.refused_ns is not None]
    if refused:
        named = ", ".join(refused[:MAX_NAMED]) + (
            " and others" if len(refused) > MAX_NAMED else ""
        )
        notes.note(
            f"--admission deadline: {len(refused):,} of {len(came):,} jobs with deadlines were refused and never run "
            f"({named}); summary.json names all"
        )
    return {"with_deadlines": len(came), "refused": refused}


def _on_dedicated_nodes(
    player: _Player,
    outcome: Outcome,
    jobs: JobTable,
    run: RunSpec,
    inputs: Inputs,
    notes: Notes,
) -> tuple[list[Outcome], dict[str, float], bool]:
    """Replay the jobs on dedicated nodes, for U; return outcomes, times, and whether a replay was stopped."""
    dedicated: list[Outcome] = []
    timing: dict[str, float] = {}
    for trace in dedicated_traces(outcome):
        nodes = len(trace.nodes)
        rigid, never_run = run.policy.kind.rigid, frozenset(inputs.never_run)
        pool, too_large = cap_all(Pool("", trace, jobs, ()), rigid=rigid, but=never_run)
        if too_large:
            notes.note(
                f"for U, {too_large} jobs that need more than the {nodes} dedicated nodes run on all of them"
            )
        name = f"{nodes} dedicated node{'s' * (nodes != 1)}, for U"
        result, seconds = player.run(
            name, pool, run.make_policy(inputs.interference), dedicated=True
        )
        dedicated.append(result)
        timing["dedicated_s"] = timing.get("dedicated_s", 0.0) + seconds
        if result.interrupted:  # U of a part means nothing
            return [], timing, True
    return dedicated, timing, False


def bounds_by(options: OptionTable, watcher: Watcher) -> tuple[Bounds, Inputs]:
    """Bounds for any policy on the inputs that the options name, and these inputs."""
    inputs = load(RunSpec.of(options), Notes(watcher))
    refused = (
        None if options.rules.admission == "deadline" else ()
    )  # that depends on the policy
    return _bounds(options, inputs, inputs.pools, refused), inputs


def _bounds(
    options: OptionTable,
    inputs: Inputs,
    pools: Sequence[Pool],
    refused: Sequence[str] | None,
    *,
    staged: bool = False,
) -> Bounds:
    if staged:
        return Bounds(
            why_none=f"no bound is known: --policy {options.policy} runs jobs on further nodes first"
        )
    if options.workload is not None:
        return Bounds(
            why_none="no bound is known: which jobs --workload submits and stops depends on what is decided"
        )
    worlds = [(pool.trace, pool.jobs) for pool in pools]
    return bounds_of(worlds, inputs.interference, inputs.never_run, refused)


def _several_kinds(pools: Sequence[Pool]) -> bool:
    """Whether units are of several kinds."""
    return any(pool.trace.kinds for pool in pools)


def _advised(
    options: OptionTable,
    pools: Sequence[Pool],
    outcome: Outcome,
    metrics: dict[str, Any],
    notes: Notes,
) -> str | None:
    """What to set where much of the bound is left; None where nothing is, or where no option is known to help.

    With the default policy a note says what it was lost to.
    """
    share = metrics["share_of_bound"]
    if share is None or share >= 1 - MUCH_LEFT or _several_kinds(pools):
        return None
    if options.policy != "milp":
        may = options.cluster is None and options.xi is None
        return f"--policy milp {BEST}" if may else None
    # The backend changes no result.
    best = {name: value for name, value in PRESETS["best"].items() if name != "backend"}
    is_best = all(options.flat()[name] == value for name, value in best.items())
    max_jobs = options.rules.max_jobs
    advised = advice(outcome, metrics, max_jobs=max_jobs, is_best=is_best)
    if advised is None:
        return None
    text, what = advised
    notes.note(text)
    return what


def _verified(policies: Sequence[Policy]) -> dict[str, int]:
    """How many answers of a solver were checked, and how many were invalid."""
    by_milp = [policy for policy in policies if isinstance(policy, MilpPolicy)]
    checked = [policy for policy in by_milp if policy.solver.verify or policy.verified]
    if not checked:
        return {}
    return {
        "verified": sum(policy.verified for policy in checked),
        "verify_mismatches": sum(policy.mismatches for policy in checked),
    }


def _stage_before(
    run: RunSpec, inputs: Inputs
) -> tuple[Stage | None, JobTable, Sequence[Pool]]:
    """Run the stage of a policy before the pools; return it, the jobs that are left, and their pools."""
    options, policy = run.options, run.make_policy(inputs.interference)
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


def _replay_reference(
    options: OptionTable,
    inputs: Inputs,
    watcher: Watcher,
    should_stop: Callable[[], bool] | None,
) -> Replayed:
    trace = inputs.pools[0].trace
    watcher.stage("replay as published", trace.start, trace.end)
    began = time.perf_counter()
    run = replay_reference(
        trace,
        inputs.jobs,
        tfwd_s=options.tfwd_s,
        max_jobs=options.rules.max_jobs,
        use_milp=options.policy == "milp",
        backend=options.solver.backend,
        time_limit=options.solver.time_limit_s,
        on_step=watcher.at,
        should_stop=should_stop,
    )
    timing = {"replay_s": time.perf_counter() - began}

    def write(draft: Path) -> None:
        write_step_log(run, draft / results.STEP_LOG)
        finished = finish_frame(inputs.jobs, run.finish_ns, run.progress)
        write_parquet(finished, draft / results.JOBS)

    statuses = {"kept at time limit": run.timeouts, "fallback": run.fallbacks}
    metrics = {
        "outcome": run.total_progress,
        "decisions": run.decisions,
        "decisions_by_status": {
            status: count for status, count in statuses.items() if count
        },
        "rows": len(run.steps),
        "jobs": len(run.jobs),
        "jobs_finished": sum(finish is not None for finish in run.finish_ns),
        "preemption_cost": float(run.steps["PreCost"].sum()),
        "rescale_cost": float(run.steps["ReScost"].sum()),
        "interrupted": run.interrupted,
    }
    return metrics, timing, write


def _decision_times(outcome: Outcome) -> dict[str, Any]:
    seconds = outcome.decision_seconds
    if not len(seconds):
        return {"count": 0}
    named = dict(
        zip(
            ("median", "p99", "max"),
            np.percentile(seconds, (50, 99, 100)).tolist(),
            strict=True,
        )
    )
    quantiles = np.quantile(seconds, np.array(_QUANTILES)).tolist()
    return {
        "count": len(seconds),
        "sum": float(seconds.sum()),
        "mean": float(seconds.mean()),
        **named,
        "quantiles": {
            str(share): value
            for share, value in zip(_QUANTILES, quantiles, strict=True)
        },
    }


def _summary(
    options: OptionTable, inputs: Inputs, metrics: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """Make the summary without wall-clock times: the same input and options give the same bytes."""
    return {
        "format": results.FORMAT,
        "format_version": results.FORMAT_VERSION,
        "degraded": degraded(metrics),
        "metrics": metrics,
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
        "notes": list(notes.kept),
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
    if status.exists():
        line = next(
            (
                line
                for line in status.read_text().splitlines()
                if line.startswith("VmHWM")
            ),
            None,
        )
        if line is not None:
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
