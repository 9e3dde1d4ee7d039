"""What a search has found, and what it has spent on trials that were stopped (docs/scenarios.md)."""

import math
from typing import Any

import numpy as np
import pandas as pd

from bft.replay.engine.ledger import Outcome
from bft.replay.trace.trace_statistics import iso_exact


def search_metrics(outcome: Outcome) -> dict[str, Any] | None:
    """Metrics of a replay with a workload, by the names in summary.json; None without one.

    Trials are jobs; the samples of those that were stopped are a part of the outcome.
    """
    found = scores_frame(outcome)
    if found is None:
        return None
    stopped = [record for record in outcome.records if record.cancelled_ns is not None]
    samples, work = math.fsum(record.work for record in stopped), outcome.work
    rising = found[found["best"].diff().fillna(1.0) > 0]
    best = [
        {"time": iso_exact(int(time)), "job": job, "score": score}
        for time, job, score in zip(
            rising["time"].astype("int64"), rising["job"], rising["score"], strict=True
        )
    ]
    return {
        "finished": sum(record.finish_ns is not None for record in outcome.records),
        "stopped": len(stopped),
        "stopped_samples": samples,
        "stopped_share": samples / work if work else None,
        "scores": len(found),
        "best": best[-1] if best else None,
        "best_over_time": best,
    }


def scores_frame(outcome: Outcome) -> pd.DataFrame | None:
    """Return a table of scores: time (UTC), job, progress (samples), score, best so far; None without a workload."""
    if outcome.scores is None:
        return None
    names = np.array([record.job.name for record in outcome.records], dtype=object)
    scores = outcome.scores
    columns: dict[str, Any] = {
        "time": pd.to_datetime(scores["time_ns"], unit="ns", utc=True),
        "job": names[scores["job"].to_numpy()],
        "progress": scores["progress"],
        "score": scores["score"],
        "best": scores["score"].cummax(),
    }
    return pd.DataFrame(columns)
