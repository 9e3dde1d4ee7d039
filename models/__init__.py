"""What a job is and how fast it goes: curves, job tables, and the safe reading of tables.

Imports nothing else of ours, so a training user can use it alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bft.models.curves import Curve
    from bft.models.errors import InputError
    from bft.models.job_files import write_jobs
    from bft.models.job_tables import jobs_from_frame, jobs_to_frame, read_jobs, read_published_jobs
    from bft.models.jobs import Dynamics, Job, JobTable, Profile
    from bft.models.objectives import OBJECTIVES, Objective, deadline_weight
    from bft.models.prediction.duration import DurationEstimator
    from bft.models.prediction.forecast import Forecaster, submissions
    from bft.models.prediction.packing import PackingAnalyser, sharing_scores
    from bft.models.prediction.saved_models import read_model, write_model
    from bft.models.sharing.sub_batch import SubBatch, fit_beside
    from bft.models.sharing.unit_memory import UnitMemory, read_unit_memory
    from bft.models.sharing.xi_estimator import XiEstimate, XiEstimator
    from bft.models.sharing.xi_measurements import read_measurements
    from bft.models.sharing.xi_table import XiTable, read_xi, xi_from_frame
    from bft.models.speed.applications import Application, read_application
    from bft.models.speed.dynamics import ApplicationDynamics, ApplicationProfile
    from bft.models.speed.goodput import BatchLimits, Goodput, goodput_table, noise_scale, replica_cap, speedup_table
    from bft.models.speed.online import OnlineCurve
    from bft.models.speed.scalability import ScalabilityFit, Throughputs, fit_scalability, read_throughputs
    from bft.models.speed.throughput import Observations, ThroughputParameters, fit_throughput
    from bft.models.speed.training_log import StepTimes, read_log, read_step_times
    from bft.models.tables import read_table, write_parquet
    from bft.models.workloads.jobs_philly import read_philly_jobs
    from bft.models.workloads.jobs_pollux import read_pollux_jobs
    from bft.models.workloads.jobs_swf import read_swf_jobs
    from bft.models.workloads.jobs_tiresias import read_tiresias_jobs
    from bft.models.workloads.jobs_venus import read_colocation, read_venus_jobs

# Where each name lives; a module is imported when it is asked for, so that `--help` does not wait for pandas.
_HOMES = {
    "OBJECTIVES": "objectives",
    "Application": "speed.applications",
    "ApplicationDynamics": "speed.dynamics",
    "ApplicationProfile": "speed.dynamics",
    "BatchLimits": "speed.goodput",
    "Curve": "curves",
    "DurationEstimator": "prediction.duration",
    "Dynamics": "jobs",
    "Forecaster": "prediction.forecast",
    "Goodput": "speed.goodput",
    "InputError": "errors",
    "Job": "jobs",
    "JobTable": "jobs",
    "Objective": "objectives",
    "Observations": "speed.throughput",
    "OnlineCurve": "speed.online",
    "PackingAnalyser": "prediction.packing",
    "Profile": "jobs",
    "ScalabilityFit": "speed.scalability",
    "StepTimes": "speed.training_log",
    "SubBatch": "sharing.sub_batch",
    "ThroughputParameters": "speed.throughput",
    "Throughputs": "speed.scalability",
    "UnitMemory": "sharing.unit_memory",
    "XiEstimate": "sharing.xi_estimator",
    "XiEstimator": "sharing.xi_estimator",
    "XiTable": "sharing.xi_table",
    "deadline_weight": "objectives",
    "fit_beside": "sharing.sub_batch",
    "fit_scalability": "speed.scalability",
    "fit_throughput": "speed.throughput",
    "goodput_table": "speed.goodput",
    "jobs_from_frame": "job_tables",
    "jobs_to_frame": "job_tables",
    "noise_scale": "speed.goodput",
    "read_application": "speed.applications",
    "read_colocation": "workloads.jobs_venus",
    "read_jobs": "job_tables",
    "read_log": "speed.training_log",
    "read_measurements": "sharing.xi_measurements",
    "read_model": "prediction.saved_models",
    "read_philly_jobs": "workloads.jobs_philly",
    "read_pollux_jobs": "workloads.jobs_pollux",
    "read_published_jobs": "job_tables",
    "read_step_times": "speed.training_log",
    "read_swf_jobs": "workloads.jobs_swf",
    "read_table": "tables",
    "read_throughputs": "speed.scalability",
    "read_tiresias_jobs": "workloads.jobs_tiresias",
    "read_unit_memory": "sharing.unit_memory",
    "read_venus_jobs": "workloads.jobs_venus",
    "read_xi": "sharing.xi_table",
    "replica_cap": "speed.goodput",
    "sharing_scores": "prediction.packing",
    "speedup_table": "speed.goodput",
    "submissions": "prediction.forecast",
    "write_jobs": "job_files",
    "write_model": "prediction.saved_models",
    "write_parquet": "tables",
    "xi_from_frame": "sharing.xi_table",
}

__all__ = [
    "OBJECTIVES",
    "Application",
    "ApplicationDynamics",
    "ApplicationProfile",
    "BatchLimits",
    "Curve",
    "DurationEstimator",
    "Dynamics",
    "Forecaster",
    "Goodput",
    "InputError",
    "Job",
    "JobTable",
    "Objective",
    "Observations",
    "OnlineCurve",
    "PackingAnalyser",
    "Profile",
    "ScalabilityFit",
    "StepTimes",
    "SubBatch",
    "ThroughputParameters",
    "Throughputs",
    "UnitMemory",
    "XiEstimate",
    "XiEstimator",
    "XiTable",
    "deadline_weight",
    "fit_beside",
    "fit_scalability",
    "fit_throughput",
    "goodput_table",
    "jobs_from_frame",
    "jobs_to_frame",
    "noise_scale",
    "read_application",
    "read_colocation",
    "read_jobs",
    "read_log",
    "read_measurements",
    "read_model",
    "read_philly_jobs",
    "read_pollux_jobs",
    "read_published_jobs",
    "read_step_times",
    "read_swf_jobs",
    "read_table",
    "read_throughputs",
    "read_tiresias_jobs",
    "read_unit_memory",
    "read_venus_jobs",
    "read_xi",
    "replica_cap",
    "sharing_scores",
    "speedup_table",
    "submissions",
    "write_jobs",
    "write_model",
    "write_parquet",
    "xi_from_frame",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
