"""Everything that decides a replay's result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from bft.models.checks import (
    MAX_LIMIT_S,
    Assignment,
    Check,
    Flag,
    Maybe,
    Name,
    Number,
    Pair,
    SecondsBySize,
    Several,
    Text,
    check_fields,
    checked,
    seconds,
    whole,
)
from bft.models.errors import InputError
from bft.replay.options.effects import LUCID_CONSTANTS, check_constants, contradictions, kind_of

# What else a job table may be written as -> what reads it (DESIGN §4).
JOB_FORMATS = {
    "tiresias": "bft.models.workloads.jobs_tiresias:read_tiresias_jobs",
    "venus": "bft.models.workloads.jobs_venus:read_venus_jobs",
    "pollux": "bft.models.workloads.jobs_pollux:read_pollux_jobs",
    "philly": "bft.models.workloads.jobs_philly:read_philly_jobs",
    "swf": "bft.models.workloads.jobs_swf:read_swf_jobs",
}
BACKENDS = ("auto", "cbc", "highs", "gurobi", "exact")
FORMULATIONS = ("auto", "modes", "node", "items", "flow")
TIES = ("canonical", "solver")
# Jobs in play at once where nodes come and go, as published; on a fixed cluster all are.
MAX_JOBS = 10
# What Pollux' artifact charges for every start, seconds.
POLLUX_START_S = 30.0
# What a restart of a preempted job costs in Lucid's artifact: units, seconds.
LUCID_RESTARTS = ((8, 40.0), (64, 60.0))
# A default that depends on other options: `Options` fills it in (_DEFAULTS), so nobody else sees it.
_DEPENDS: Any = None

_FILE: Check = Maybe(Text())


def _policies() -> list[str]:
    from bft.replay.policies import policy_names

    return policy_names()


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that decides a replay's result; recorded in summary.json.

    The values check themselves, so that the command line, config files and Python share one set of errors. Names are
    taken in capitals or not, paths as text or `Path`, whole numbers where seconds are expected. `policy`, `max_jobs`
    and the overheads have defaults that depend on other options; once made, they hold what applies.

    Raises
    ------
    InputError
        When a value is not allowed, or does not go with another; names the option as the command line does.
    """

    node_trace: str | None = checked("-ndmap", _FILE, None)
    job_bounds: str | None = checked("-bdfn", _FILE, None)
    job_curves: str | None = checked("-scfn", _FILE, None)
    jobs: str | None = checked("--jobs", _FILE, None)
    jobs_format: str = checked("--jobs-format", Name(("native", *JOB_FORMATS)), "native")
    applications: str | None = checked("--applications", _FILE, None)
    align_jobs: bool = checked("--align-jobs", Flag(), default=False)
    oversized: Literal["refuse", "skip", "cap"] = checked(
        "--oversized", Maybe(Name(("refuse", "skip", "cap"))), _DEPENDS
    )
    cluster: str | None = checked("--cluster", _FILE, None)
    tfwd_s: float = checked("-Tfwd", seconds(), 10.0)
    time_limit_s: float = checked("-optTL", seconds(most=MAX_LIMIT_S), 10.0)
    max_jobs: int = checked("-maxJ", Maybe(whole(0)), _DEPENDS)  # 0: all
    first_node: int = checked("-nis", whole(0), 0)
    node_count: int | None = checked("-nN", Maybe(whole(1)), None)
    skip_rows: int | None = checked("--skip-rows", Maybe(whole(0)), None)
    sort: bool = checked("--sort", Flag(), default=False)
    policy: str = checked("--policy", Maybe(Name(_policies)), _DEPENDS)
    policy_options: tuple[tuple[str, str], ...] = checked("--set", Several(Assignment()), ())
    policy_time_limit_s: float | None = checked("--policy-time-limit", Maybe(seconds(most=MAX_LIMIT_S)), None)
    seed: int = checked("--seed", whole(0), 0)
    backend: str = checked("--backend", Name(BACKENDS), "cbc")
    formulation: str = checked("--formulation", Name(FORMULATIONS), "auto")
    strict_reference: bool = checked("--strict-reference", Flag(), default=False)
    gap: float = checked("--gap", Number(0, 1, below=True), 0.0)
    threads: int = checked("--threads", whole(1), 1)
    ties: Literal["canonical", "solver"] = checked("--ties", Name(TIES), "canonical")
    cost_model: Literal["bftrainer", "stall"] = checked("--cost-model", Name(("bftrainer", "stall")), "bftrainer")
    events: Literal["all", "node"] = checked("--events", Name(("all", "node")), "all")
    min_interval_s: float = checked("--min-interval", seconds(zero=True), 0.0)
    checkpoint_interval_s: float = checked("--checkpoint-interval", seconds(zero=True), 600.0)
    start_overhead_s: float = checked("--start-overhead", Maybe(seconds(zero=True)), _DEPENDS)
    restart_overhead: tuple[tuple[int, float], ...] = checked("--restart-overhead", Maybe(SecondsBySize()), _DEPENDS)
    verify: bool = checked("--verify", Flag(), default=False)
    objective: Literal["own", "throughput", "efficiency"] = checked(
        "--objective", Name(("own", "throughput", "efficiency")), "own"
    )
    deadline_boost: float = checked("--deadline-boost", Number(1), 1.0)
    deadline_horizon_s: float = checked("--deadline-horizon", seconds(), 86_400.0)
    xi: str | None = checked("--xi", _FILE, None)
    xi_max: float | None = checked("--xi-max", Maybe(Number(1)), None)
    xi_partners: int = checked("--xi-partners", whole(1), 3)
    unit_memory_gib: float | None = checked("--unit-memory", Maybe(Number(0, above=True)), None)
    memory_table: str | None = checked("--memory-table", _FILE, None)
    sub_batch: float = checked("--sub-batch", Number(0, 1, above=True), 0.5)
    forbid: tuple[tuple[str, str], ...] = checked("--forbid", Several(Pair()), ())
    compat: Literal["reference", "lucid", "pollux"] | None = checked(
        "--compat", Maybe(Name(("reference", "lucid", "pollux"))), None
    )
    dedicated: bool = checked("--no-u", Flag(), default=True)

    def __post_init__(self) -> None:
        check_fields(self)
        for name, default in _DEFAULTS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default(self))
        what = next(contradictions(self), None)
        if what is not None:
            raise InputError(what)
        check_constants(self.policy, self.constants)

    def default(self, name: str) -> Any:
        """What an option is unless it is given, beside the others as they are."""
        dependent = _DEFAULTS.get(name)
        return dependent(self) if dependent else next(each.default for each in fields(self) if each.name == name)

    @property
    def constants(self) -> dict[str, str]:
        """What is set of the policy's own constants, as text by name; --set wins over --compat."""
        return {**(LUCID_CONSTANTS[self.policy] if self.compat == "lucid" else {}), **dict(self.policy_options)}


def _restarts(options: Options) -> tuple[tuple[int, float], ...]:
    if options.compat == "pollux":
        return SecondsBySize()(POLLUX_START_S)
    # Lucid itself preempts nobody.
    return LUCID_RESTARTS if options.compat == "lucid" and options.policy != "lucid" else ()


# Defaults that depend on other options, in an order in which those stand before.
_DEFAULTS: dict[str, Callable[[Options], Any]] = {
    "policy": lambda o: "milp" if o.xi is None else "milp-sharing",
    "max_jobs": lambda o: MAX_JOBS if o.cluster is None else 0,
    "start_overhead_s": lambda o: POLLUX_START_S if o.compat == "pollux" else 0.0,
    "restart_overhead": _restarts,
    # A queue of rigid jobs could wait for ever behind one that never runs.
    "oversized": lambda o: "refuse" if kind_of(o.policy).rigid else "skip",
}
CHECKS: dict[str, Check] = {each.name: each.metadata["check"] for each in fields(Options)}
FLAGS: dict[str, str] = {each.name: each.metadata["flag"] for each in fields(Options)}
