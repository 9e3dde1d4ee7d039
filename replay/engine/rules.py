"""The rules of a replay that hold for every policy: jobs in play, costs of changes, times of decisions, sharing.

`Interference` states which jobs may share units, and how much that slows them: ξ, memory, forbidden pairs
(docs/model.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from bft.models import InputError, Job, UnitMemory, XiTable, fit_beside
from bft.models.checks import (
    COSTS,
    FLAG,
    MAX_LIMIT_S,
    POLICY,
    SECONDS_BY_SIZE,
    Condition,
    Name,
    Number,
    check_fields,
    option,
    seconds,
    whole,
)
from bft.models.sharing.xi_table import THRESHOLD, SizedRatio

CostModel = Literal["bftrainer", "stall"]

_RIGID = Condition(
    lambda run, _: run.policy_type.traits.rigid,
    "with $policy {policy}, whose jobs shrink when they lose nodes",
)
_MIGRATES = Condition(
    lambda run, _: run.policy_type.traits.migrates,
    "with $policy {policy}, which moves no job",
)
_RESTARTS_COST = Condition(
    lambda run, _: bool(run.rules.restart_overhead),
    "without $restart_overhead",
    refused=True,
)
_HOST_JOBS_COUNT = Condition(
    lambda run, _: run.rules.harms,
    "without $return_time_s or $reserve",
)
_BY_DEADLINE = Condition(
    lambda run, _: run.rules.admission == "deadline",
    "without $admission=deadline",
    refused=True,
)


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
    free_moves
        A move to as many units on each of as many nodes of the same kind is neither a restart nor a rescale, and costs
        nothing (Sia's simulator, SOSP'23). A policy that migrates may then exchange nodes as it likes.
    network_interference
        Part of its rate that a job on several nodes loses where another one on several nodes has units on one of its
        nodes (Pollux, OSDI'21).
    admission
        `all`, or `deadline`: a job with a deadline is refused at its submission unless it and all that were admitted
        before can keep theirs, see `deadlines.minimum_shares`.
    admission_units
        Units on which such promises are based; None: those that are idle at the submission.
    return_time_s
        Seconds from the instant at which the batch scheduler wants a node that training holds until it has it. It
        prices what the machine's own jobs wait (docs/host-jobs.md). None: nothing is assumed.
    reserve
        Idle nodes that are kept from training for the next start of the machine's own jobs. Filled as nodes turn free;
        no job stops for it.
    free_first
        Whether, with a return time or a reserve, the machine's own jobs take free nodes before those that training
        holds; else they take those that the log names.
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

    max_jobs: int = option(
        "-maxJ --max-jobs",
        whole(0),
        10,
        help="Jobs in play at once, 0 for all; later ones wait.",
        section=POLICY,
        published=True,
    )
    cost_model: CostModel = option(
        "--cost-model",
        Name(("bftrainer", "stall")),
        "bftrainer",
        help="The cost of a rescale: T x rate off the progress, or T seconds without progress.",
        section=COSTS,
        for_policy=True,
        rare=True,
    )
    events: Literal["all", "node"] = option(
        "--events",
        Name(("all", "node")),
        "all",
        help="Decide at node events, submits and finishes, or at node events only.",
        section=COSTS,
        rare=True,
    )
    min_interval_s: float = option(
        "--min-interval",
        seconds(zero=True),
        0.0,
        help="Least time between two decisions, seconds.",
        section=COSTS,
        rare=True,
    )
    checkpoint_interval_s: float = option(
        "--checkpoint-interval",
        seconds(zero=True),
        600.0,
        help="Seconds between two checkpoints of a job that cannot shrink.",
        section=COSTS,
        conditions=(_RIGID,),
        rare=True,
    )
    start_overhead_s: float = option(
        "--start-overhead",
        seconds(zero=True),
        0.0,
        help="Seconds without progress after a job's first start.",
        section=COSTS,
        rare=True,
    )
    restart_overhead: tuple[tuple[int, float], ...] = option(
        "--restart-overhead",
        SECONDS_BY_SIZE,
        (),
        help="The same after later starts, by size: 8:40,64:60 is 40 s up to 8 units, 60 above.",
        section=COSTS,
        metavar="SECONDS|UNITS:SECONDS,...",
        for_policy=True,
        rare=True,
    )
    restart_overlap: float = option(
        "--restart-overlap",
        Number(0, 1),
        0.0,
        help="Part of it that passes while another job still runs on the units; 1: all, if none of them was free.",
        section=COSTS,
        metavar="SHARE",
        conditions=(_RESTARTS_COST,),
        rare=True,
    )
    free_moves: bool = option(
        "--free-moves",
        FLAG,
        default=False,
        help="A move to other nodes with as many units on each costs nothing.",
        section=COSTS,
        conditions=(_MIGRATES,),
        for_policy=True,
        rare=True,
    )
    network_interference: float = option(
        "--network-interference",
        Number(0, 1, below=True),
        0.0,
        help="Part of the rate that jobs on several nodes lose where two of them share a node.",
        section=COSTS,
        metavar="SHARE",
        rare=True,
    )
    admission: Literal["all", "deadline"] = option(
        "--admission",
        Name(("all", "deadline")),
        "all",
        help="Admit all jobs, or one with a deadline only if it and all that were admitted can keep theirs.",
        section=POLICY,
        rare=True,
    )
    admission_units: int | None = option(
        "--admission-units",
        whole(1),
        help="Units that --option admission=deadline counts on.",
        section=POLICY,
        metavar="UNITS",
        shown="those that are idle at the submission",
        conditions=(_BY_DEADLINE,),
        rare=True,
    )
    return_time_s: float | None = option(
        "--return-time",
        seconds(),
        help="Seconds from the batch scheduler's request until a node that training held is free: min(time to stop, "
        "GraceTime + KillWait), epilog, cycle. Prices what the machine's own jobs wait.",
        section=COSTS,
        shown="not assumed",
    )
    reserve: int = option(
        "--reserve",
        whole(0),
        0,
        help="Idle nodes that training leaves free for the next start of the machine's own jobs.",
        section=COSTS,
        metavar="NODES",
    )
    free_first: bool = option(
        "--no-free-first",
        FLAG,
        default=True,
        help="The machine's own jobs take the nodes that the log names, not free ones before those of training.",
        section=COSTS,
        conditions=(_HOST_JOBS_COUNT,),
    )
    policy_time_limit_s: float | None = option(
        "--policy-time-limit",
        seconds(high=MAX_LIMIT_S),
        help="Stop the replay when the policy takes longer for one decision, seconds.",
        section=POLICY,
        shown="never",
        rare=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def takes_free_first(self) -> bool:
        """Whether the machine's own jobs take free nodes before those that training holds."""
        return self.free_first and self.harms

    @property
    def harms(self) -> bool:
        """Whether anything is asked about what harvesting costs the machine's own jobs."""
        return self.return_time_s is not None or self.reserve > 0

    def dedicated(self) -> Rules:
        """Return these rules for dedicated nodes, which no other jobs want."""
        return replace(self, return_time_s=None, reserve=0)

    def restart_s(self, units: int) -> float:
        """Seconds of a restart on this many units."""
        if not self.restart_overhead:
            return 0.0
        return next(
            (s for upper, s in self.restart_overhead if units <= upper),
            self.restart_overhead[-1][1],
        )


# Partners considered per job: more make decisions slower and hardly better.
XI_PARTNERS = 3

JobClass: TypeAlias = tuple[str, float | None, float | None]
Ratios: TypeAlias = tuple[float, float] | None
Sides: TypeAlias = tuple[SizedRatio, SizedRatio] | None


@dataclass(frozen=True)
class Interference:
    """The rules of sharing units; used by the engine and known to policies.

    A job's ratio is that of all units it has, however many it shares, because all of it waits for its slowest worker.

    Parameters
    ----------
    table
        Measured ratios.
    xi_max
        A pair is not allowed at sizes where either ratio exceeds this.
    unit_memory_gib
        Memory of a unit; a pair that needs more is not allowed. None: no check of memory. With a check, a job
        without known memory does not share.
    forbidden
        Pairs of models that may not share, whatever their ratios.
    memory
        Memory by model and batch size. With it, if two jobs do not fit together, the one submitted later uses a smaller
        batch and gradient accumulation (`fit_beside`), and the cost of that is part of its ratio. Events of a replay
        must not change which of the two it is, so that engine and policies agree on a pair. None: batches stay as they
        are.
    sub_batch_threshold
        Smallest share of its goodput that it must keep, in (0, 1].

    Raises
    ------
    InputError
        When a limit is invalid.

    Examples
    --------
    >>> from bft.models import Curve
    >>> from bft.models.sharing.xi_table import Measurement
    >>> curve = Curve([0, 1], [0, 10])
    >>> a, b = (Job(model, 0, 1, 1, 1e6, 0, 0, curve, curve, model=model) for model in ("bert", "vgg"))
    >>> table = XiTable([Measurement("bert", "vgg", 1.2, 1.5)])
    >>> Interference(table).xi(a, b), Interference(table, xi_max=1.3).xi(a, b)
    ((1.2, 1.5), None)
    """

    table: XiTable
    xi_max: float = float("inf")
    unit_memory_gib: float | None = None
    forbidden: frozenset[frozenset[str]] = frozenset()
    memory: UnitMemory | None = None
    sub_batch_threshold: float = THRESHOLD
    _known: dict[tuple[JobClass, JobClass, bool], Sides] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.xi_max >= 1:
            raise InputError(f"xi_max: expected a number >= 1, not {self.xi_max}")
        if self.unit_memory_gib is not None and not self.unit_memory_gib > 0:
            raise InputError(
                f"unit_memory_gib: expected a number > 0, not {self.unit_memory_gib}"
            )
        if not 0 < self.sub_batch_threshold <= 1:
            raise InputError(
                f"sub_batch_threshold: expected a number in (0, 1], not {self.sub_batch_threshold}"
            )

    def xi(
        self, a: Job, b: Job, units_a: int | None = None, units_b: int | None = None
    ) -> Ratios:
        """Return the ratios (xi_a, xi_b) of two jobs that may share on this many units each, None when they may not.

        Without numbers of units, the largest ratio of all sizes counts.
        """
        sides = self.sides(a, b)
        if sides is None:
            return None
        ratios = sides[0].of(units_a), sides[1].of(units_b)
        return None if max(ratios) > self.xi_max else ratios

    def ever(self, a: Job, b: Job) -> bool:
        """Tell whether two jobs may share on some number of units."""
        sides = self.sides(a, b)
        return sides is not None and max(side.least() for side in sides) <= self.xi_max

    @property
    def by_units(self) -> bool:
        """Whether ratios depend on units."""
        return self.table.by_units

    def sides(self, a: Job, b: Job) -> Sides:
        """Ratios of two jobs by units, ignoring `xi_max`; None when they may not share."""
        first = (a.tsub_ns, a.name) < (b.tsub_ns, b.name)
        key = (self.job_class(a), self.job_class(b), first)
        if key not in self._known:
            if first:
                self._known[key] = self._by_submission(a, b)
            else:
                sides = self._by_submission(b, a)
                self._known[key] = None if sides is None else (sides[1], sides[0])
        return self._known[key]

    @staticmethod
    def job_class(job: Job) -> JobClass:
        """Return the class of a job: jobs of one class and submission share with the same jobs at the same ratios."""
        return job.model, job.batch_size, job.memory_gib

    def _by_submission(self, earlier: Job, later: Job) -> Sides:
        """Return the ratios of the job submitted first, and of the other one, which may get a smaller batch."""
        if frozenset((earlier.model, later.model)) in self.forbidden:
            return None
        parts = fit_beside(
            later,
            earlier,
            self.unit_memory_gib,
            memory=self.memory,
            threshold=self.sub_batch_threshold,
        )
        if parts is None:
            return None
        if parts > 1 and later.batch_size is not None:
            later = replace(later, batch_size=later.batch_size / parts)
        sides = self.table.sides(earlier, later)
        return None if sides is None else (sides[0], sides[1].times(parts))
