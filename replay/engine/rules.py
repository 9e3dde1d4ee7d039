"""The rules of a replay that hold for every policy: jobs in play, costs of changes, times of decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bft.models.checks import MAX_LIMIT_S, Maybe, Name, Number, SecondsBySize, check_fields, checked, seconds, whole

CostModel = Literal["bftrainer", "stall"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a replay that hold for every policy.

    Parameters
    ----------
    max_jobs
        Jobs in play at once, 0 for all; others wait, first come first served.
    cost_model
        `bftrainer` deducts T x rate from progress at a rescale; `stall` stops progress for T seconds.
    events
        `all`: node events, submits, finishes and the policy's timers. `node`: node events only, as the published
        replayer does.
    min_interval_s
        Smallest time between two decisions; events in between are decided together.
    checkpoint_interval_s
        A rigid job saves its work at this interval while it runs, at no cost, and when a policy stops it; 0: always.
    start_overhead_s
        Seconds without progress after a job's first start.
    restart_overhead
        The same after every later start, and after each move where a policy migrates: pairs of a number of units and
        the seconds that apply up to it, ascending; more units take the last pair's.
    restart_overlap
        Part of `restart_overhead` that overlaps with those who ran on the units until that very instant: a job is
        swapped in while another, which ends or is stopped then, still runs (Tiresias, NSDI'19). Where one of the units
        was free, the whole overhead counts.
    network_interference
        Part of its rate that a job on several nodes loses where another one on several nodes has units on one of its
        nodes (Pollux, OSDI'21).
    admission
        `all`, or `deadline`: a job with a deadline is refused at its submission unless it and all that were admitted
        before can keep theirs, see `admission.minimum_shares`.
    admission_units
        Units on which such promises are based; None: those that are idle at the submission.
    policy_time_limit_s
        Wall time after which a policy that has not answered counts as hanging, and the replay ends; None: never.

    Raises
    ------
    InputError
        When a value is not allowed; names the option as the command line does.

    Examples
    --------
    >>> Rules(restart_overhead=((8, 40.0), (64, 60.0))).restart_s(16)
    60.0
    >>> Rules(max_jobs=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: -maxJ: expected a whole number >= 0, not -1
    """

    max_jobs: int = checked("-maxJ", whole(0), 10)
    cost_model: CostModel = checked("--cost-model", Name(("bftrainer", "stall")), "bftrainer")
    events: Literal["all", "node"] = checked("--events", Name(("all", "node")), "all")
    min_interval_s: float = checked("--min-interval", seconds(zero=True), 0.0)
    checkpoint_interval_s: float = checked("--checkpoint-interval", seconds(zero=True), 600.0)
    start_overhead_s: float = checked("--start-overhead", seconds(zero=True), 0.0)
    restart_overhead: tuple[tuple[int, float], ...] = checked("--restart-overhead", SecondsBySize(), ())
    restart_overlap: float = checked("--restart-overlap", Number(0, 1), 0.0)
    network_interference: float = checked("--network-interference", Number(0, 1, below=True), 0.0)
    admission: Literal["all", "deadline"] = checked("--admission", Name(("all", "deadline")), "all")
    admission_units: int | None = checked("--admission-units", Maybe(whole(1)), None)
    policy_time_limit_s: float | None = checked("--policy-time-limit", Maybe(seconds(high=MAX_LIMIT_S)), None)

    def __post_init__(self) -> None:
        check_fields(self)

    def restart_s(self, units: int) -> float:
        """Seconds of a restart on this many units."""
        if not self.restart_overhead:
            return 0.0
        return next((s for upper, s in self.restart_overhead if units <= upper), self.restart_overhead[-1][1])
