"""Constants behind options: what presets, formats of job tables and published programs state."""

from __future__ import annotations

from typing import Any

# Other formats of job tables -> their readers.
JOB_FORMATS = {
    "tiresias": "bft.models.workloads.rigid_jobs:read_tiresias_jobs",
    "venus": "bft.models.workloads.rigid_jobs:read_venus_jobs",
    "pollux": "bft.models.workloads.jobs_pollux:read_pollux_jobs",
    "philly": "bft.models.workloads.jobs_philly:read_philly_jobs",
    "swf": "bft.models.workloads.jobs_swf:read_swf_jobs",
}
# What a decision may take, as published, seconds.
DECISION_LIMIT_S = 10.0
# What Pollux' artifact charges for every start, and Sia's for those of applications that state nothing, seconds.
POLLUX_START_S = 30.0
# Defaults that other options change: options and their values, or nothing for any value -> what holds unless stated.
# The first row that sets an option wins; each of these options has its usual default in its field.
DEFAULTS: tuple[tuple[dict[str, tuple[str, ...]], dict[str, Any]], ...] = (
    (
        {"preset": ("best",)},  # docs/beyond.md
        {
            "tfwd_s": 60.0,
            "objective": "power:0.5+ageing:60:2",
            "max_jobs": 0,
            "backend": "auto",
        },
    ),
    ({"cluster": ()}, {"max_jobs": 0}),
    ({"xi": ()}, {"policy": "milp-sharing"}),
    (
        {"compat": ("pollux", "sia")},
        {"start_overhead_s": POLLUX_START_S, "restart_overhead": POLLUX_START_S},
    ),
    ({"compat": ("sia",)}, {"free_moves": True}),
    # What a restart of a preempted job costs in Lucid's artifact: units, seconds. Lucid itself does not preempt.
    (
        {"compat": ("lucid",), "policy": ("srtf", "tiresias-l")},
        {"restart_overhead": ((8, 40.0), (64, 60.0))},
    ),
)
# Presets -> the values of their options; options given beside a preset take precedence.
PRESETS: dict[str, dict[str, Any]] = {
    value: defaults
    for condition, defaults in DEFAULTS
    for value in condition.get("preset", ())
}
# Constants of the policies as an artifact runs them, by --compat (docs/decisions/0011-lucid.md, 0022-sia.md).
CONSTANTS: dict[str, dict[str, dict[str, str]]] = {
    "lucid": {
        "lucid": {"compat": "yes"},
        "srtf": {"compat": "yes"},
        "tiresias-l": {
            "compat": "yes",
            "limits": "18000",
            "interval_s": "60",
            "placement": "all",
        },
    },
    "sia": {"sia": {"freeze": "yes", "user_batch": "yes", "quantum": "0.01"}},
}
# By --compat, how the jobs of Pollux' artifact are read (`read_pollux_jobs`).
POLLUX_READING: dict[str, dict[str, bool]] = {
    "pollux": {"whole_seconds": True},
    "sia": {"whole_seconds": True, "published_fit": True},
}
