"""What a run adds to the metrics of summary.json: one function for each part of them, and the notes on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.milp.backends.process import DIED
from bft.replay.engine.ledger import Outcome
from bft.replay.inputs.load import Inputs
from bft.replay.inputs.shaping import MAX_NAMED
from bft.replay.options.options import Options
from bft.replay.options.presets import PRESETS
from bft.replay.policies import MilpPolicy
from bft.replay.pools import Pool
from bft.replay.results.bounds import Bounds, beside_bounds, bounds_of
from bft.replay.results.census import Census
from bft.replay.results.headlines import BEST, MUCH_LEFT, advice, costs
from bft.replay.results.host import host_metrics, host_notes
from bft.replay.results.metrics import summarise
from bft.replay.results.search import search_metrics

if TYPE_CHECKING:
    from bft.replay.run import Run


def _replayed(run: Run) -> dict[str, Any]:
    o = run.options
    rates: dict[str, Any] = {
        "node_watts": o.node_watts,
        "price_per_node_hour": o.price_per_node_hour,
        "co2_per_kwh": o.co2_per_kwh,
    }
    return {
        **summarise(run.outcome, run.dedicated),
        "interrupted": run.stopped,
        "search": search_metrics(run.outcome) or {},
        "costs": costs(run.outcome, **rates),
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
        is_best = options.preset == "best"
        for note in host_notes(figures, outcome, rules, is_best=is_best):
            run.notes.note(note)
        figures |= {"reserve": rules.reserve, "free_first": rules.takes_free_first}
    return {"host": figures}


def _admitted(run: Run) -> dict[str, Any]:
    """How many jobs with deadlines came, and which were refused; with a note."""
    if run.options.rules.admission != "deadline":
        return {}
    came = [
        record
        for record in Census.of(run.outcome).group("submitted")
        if record.job.deadline_ns is not None
    ]
    refused = [record.job.name for record in came if record.refused_ns is not None]
    if refused:
        more = " and others" if len(refused) > MAX_NAMED else ""
        run.notes.note(
            f"--admission deadline: {len(refused):,} of {len(came):,} jobs with deadlines were refused and never run "
            f"({', '.join(refused[:MAX_NAMED])}{more}); summary.json names all"
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
        refused = [each.job.name for each in Census.of(run.outcome).group("refused")]
        bounds = bounds_for(run.options, run.inputs, run.pools, refused)
    return beside_bounds(run.outcome, bounds)


def _advised(run: Run) -> dict[str, Any]:
    """What to set where much of the bound is left; None where nothing is, or where no option is known to help.

    With the default policy a note says what it was lost to.
    """
    options, share = run.options, run.metrics["share_of_bound"]
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
    worlds = [(pool.trace, pool.jobs) for pool in pools]
    return bounds_of(worlds, inputs.interference, inputs.never_run, refused)


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
