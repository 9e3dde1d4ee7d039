"""What a replay lost most of its outcome to, and the option that would change this."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bft.replay.engine.ledger import Outcome
from bft.replay.trace.trace_statistics import fragments

# A cap on the jobs in play that was reached for a smaller share of the time explains little.
MUCH_TIME = 0.05
HOUR_S = 3600.0
# A replay whose outcome is below the unit-time bound by more than this share reports it.
MUCH_LEFT = 0.05


# The options that are advised where a setting leaves much.
BEST = "--preset best"


class Advice(NamedTuple):
    """Why much is left: a sentence, and the options that change it; None where no option does."""

    text: str
    options: str | None


def advice(
    outcome: Outcome,
    metrics: dict[str, Any],
    bound: float,
    *,
    max_jobs: int,
    is_best: bool,
) -> Advice | None:
    """Say why an outcome is below the unit-time bound and what to set, by figures of this replay.

    Parameters
    ----------
    outcome
        The replay.
    metrics
        Its metrics (`bft.replay.results.metrics.summarise`).
    bound
        Its unit-time bound in samples, above 0.
    max_jobs
        Jobs that might be in play at once, 0 for all.
    is_best
        Whether all options of --preset best were in use, so that it is no advice.

    Returns
    -------
    Advice or None
        None where no option would help, and none is mistaken.
    """
    share = f"the outcome is {outcome.work / bound:.1%} of what the idle nodes are enough for"
    if (unit := _costs_of_another_unit(outcome)) is not None:
        return Advice(f"{share}: {unit}", None)
    rescale, preemption = metrics["rescale_cost"], metrics["preemption_cost"]
    costs = f"rescales cost {rescale / bound:.1%} of that and preemptions {preemption / bound:.1%}"
    capped = _share_of_time_with(outcome, max_jobs) if max_jobs else 0.0
    if capped >= MUCH_TIME:
        waits = metrics["without_units_s"]
        longest_h = waits["longest"] / HOUR_S if waits else 0.0
        return Advice(
            f"{share}: for {capped:.0%} of the time as many jobs were in play as -maxJ {max_jobs} allows, on "
            f"{_units_a_job(outcome):.1f} units each, and {costs}; -maxJ 0 lets more jobs run on fewer units each. "
            f"{BEST} does so too, and shortens long waits, here up to {longest_h:.1f} h without "
            "nodes (docs/beyond.md)",
            BEST,
        )
    if is_best:
        return None
    return Advice(
        f"{share}: {metrics['used_share']:.1%} of the idle node-time was used, on "
        f"{_units_a_job(outcome):.1f} units a job, and {costs}; {BEST} puts jobs on few units each "
        "(docs/beyond.md)",
        BEST,
    )


def _costs_of_another_unit(outcome: Outcome) -> str | None:
    """Compare the cost of a growth with the time that nodes stay idle; None where a growth may pay."""
    cost_s = float(np.median([record.job.tcup_s for record in outcome.records]))
    idle_s = fragments(outcome.trace).seconds
    median_s = float(np.median(idle_s)) if len(idle_s) else math.inf
    if cost_s < median_s:
        return None
    return (
        f"a growth costs a job Tcup, {cost_s:,.0f} s in the median, and half of the idle fragments last "
        f"{median_s:,.0f} s or less, so that hardly any growth can pay; are Tcup and Tcdw in seconds?"
    )


def _share_of_time_with(outcome: Outcome, jobs: int) -> float:
    """Return the share of the time in which this many jobs were in play."""
    times = outcome.steps["time"].to_numpy(dtype="datetime64[ns]").astype(np.int64)
    spans = np.diff(times)
    full = outcome.steps["jobs"].to_numpy()[:-1] >= jobs
    return float(spans[full].sum() / spans.sum()) if len(spans) and spans.sum() else 0.0


def _units_a_job(outcome: Outcome) -> float:
    """Return the units of a running job, averaged over the time that jobs run."""
    running_s = math.fsum(record.run_seconds for record in outcome.records)
    return outcome.used_unit_seconds / running_s if running_s else 0.0
