"""What a job is and how fast it goes: curves, job tables, and the safe reading of tables.

Imports nothing else of ours, so a training user can use it alone.
"""

from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.job_tables import jobs_from_frame, jobs_to_frame, read_jobs, read_published_jobs
from bft.models.jobs import Dynamics, Job, JobTable, Profile
from bft.models.objectives import OBJECTIVES, Objective, deadline_weight
from bft.models.prediction.duration import DurationEstimator
from bft.models.prediction.forecast import Forecaster, submissions
from bft.models.prediction.packing import PackingAnalyser, sharing_scores
from bft.models.prediction.saved_models import read_model, write_model
from bft.models.sharing.interference import XiTable, read_xi, xi_from_frame
from bft.models.sharing.sub_batch import SubBatch, fit_beside
from bft.models.sharing.unit_memory import UnitMemory, read_unit_memory
from bft.models.sharing.xi_estimator import XiEstimate, XiEstimator
from bft.models.sharing.xi_measurements import read_measurements
from bft.models.speed.applications import Application, read_application
from bft.models.speed.dynamics import ApplicationDynamics, ApplicationProfile
from bft.models.speed.goodput import BatchLimits, Goodput, goodput_table, noise_scale, replica_cap, speedup_table
from bft.models.speed.online import OnlineCurve
from bft.models.speed.scalability import ScalabilityFit, Throughputs, fit_scalability, read_throughputs
from bft.models.speed.throughput import Observations, ThroughputParameters, fit_throughput
from bft.models.speed.training_log import StepTimes, read_log, read_step_times
from bft.models.tables import read_table
from bft.models.workloads.jobs_philly import read_philly_jobs
from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.models.workloads.jobs_swf import read_swf_jobs
from bft.models.workloads.jobs_tiresias import read_tiresias_jobs
from bft.models.workloads.jobs_venus import read_colocation, read_venus_jobs

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
    "write_model",
    "xi_from_frame",
]
