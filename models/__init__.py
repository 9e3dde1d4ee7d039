"""What a job is and how fast it goes: curves, job tables, and the safe reading of tables.

Imports nothing else of ours, so a training user can use it alone.
"""

from bft.models.applications import Application, read_application
from bft.models.curves import Curve
from bft.models.duration import DurationEstimator
from bft.models.dynamics import ApplicationDynamics, ApplicationProfile
from bft.models.errors import InputError
from bft.models.forecast import Forecaster, submissions
from bft.models.goodput import BatchLimits, Goodput, goodput_table, noise_scale, replica_cap, speedup_table
from bft.models.interference import XiTable, read_xi, xi_from_frame
from bft.models.job_tables import jobs_from_frame, jobs_to_frame, read_jobs, read_published_jobs
from bft.models.jobs import Dynamics, Job, JobTable, Profile
from bft.models.jobs_pollux import read_pollux_jobs
from bft.models.jobs_venus import read_colocation, read_venus_jobs
from bft.models.objectives import OBJECTIVES, Objective, deadline_weight
from bft.models.online import OnlineCurve
from bft.models.packing import PackingAnalyser, sharing_scores
from bft.models.saved_models import read_model, write_model
from bft.models.scalability import ScalabilityFit, Throughputs, fit_scalability, read_throughputs
from bft.models.sub_batch import SubBatch, fit_beside
from bft.models.tables import read_table
from bft.models.throughput import Observations, ThroughputParameters, fit_throughput
from bft.models.training_log import StepTimes, read_log, read_step_times
from bft.models.unit_memory import UnitMemory, read_unit_memory
from bft.models.xi_estimator import XiEstimate, XiEstimator
from bft.models.xi_measurements import read_measurements

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
    "read_pollux_jobs",
    "read_published_jobs",
    "read_step_times",
    "read_table",
    "read_throughputs",
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
