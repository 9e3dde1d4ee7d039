"""Everything that decides a replay's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What else a job table may be written as -> what reads it (DESIGN §4).
JOB_FORMATS = {
    "tiresias": "bft.models.workloads.jobs_tiresias:read_tiresias_jobs",
    "venus": "bft.models.workloads.jobs_venus:read_venus_jobs",
    "pollux": "bft.models.workloads.jobs_pollux:read_pollux_jobs",
    "philly": "bft.models.workloads.jobs_philly:read_philly_jobs",
    "swf": "bft.models.workloads.jobs_swf:read_swf_jobs",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that decides a replay's result; recorded in summary.json."""

    node_trace: str | None = None
    job_bounds: str | None = None
    job_curves: str | None = None
    jobs: str | None = None
    jobs_format: str = "native"
    applications: str | None = None
    whole_seconds: bool = False
    cluster: str | None = None
    tfwd_s: float = 10.0
    time_limit_s: float = 10.0
    max_jobs: int = 10  # 0: all
    first_node: int = 0
    node_count: int | None = None
    skip_rows: int | None = None
    sort: bool = False
    policy: str = "milp"
    policy_options: tuple[tuple[str, str], ...] = ()
    policy_time_limit_s: float | None = None
    seed: int = 0
    backend: str = "cbc"
    formulation: str = "auto"
    strict_reference: bool = False
    gap: float = 0.0
    threads: int = 1
    cost_model: Literal["bftrainer", "stall"] = "bftrainer"
    events: Literal["all", "node"] = "all"
    min_interval_s: float = 0.0
    checkpoint_interval_s: float = 600.0
    start_overhead_s: float = 0.0
    restart_overhead: tuple[tuple[int, float], ...] = ()
    verify: bool = False
    objective: Literal["own", "throughput", "efficiency"] = "own"
    deadline_boost: float = 1.0
    deadline_horizon_s: float = 86_400.0
    xi: str | None = None
    xi_max: float | None = None
    xi_partners: int = 3
    unit_memory_gib: float | None = None
    memory_table: str | None = None
    sub_batch: float = 0.5
    forbid: tuple[tuple[str, str], ...] = ()
    compat: Literal["reference"] | None = None
    dedicated: bool = True
