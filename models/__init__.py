"""Jobs and their speed: curves, job tables, and safe readers for tables.

Imports nothing else from this package, so a training user can use it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.models.curves import Curve as Curve
    from bft.models.curves import OnlineCurve as OnlineCurve
    from bft.models.errors import InputError as InputError
    from bft.models.job_tables import jobs_from_frame as jobs_from_frame
    from bft.models.job_tables import jobs_to_frame as jobs_to_frame
    from bft.models.job_tables import read_jobs as read_jobs
    from bft.models.job_tables import read_published_jobs as read_published_jobs
    from bft.models.job_tables import write_jobs as write_jobs
    from bft.models.jobs import Dynamics as Dynamics
    from bft.models.jobs import Job as Job
    from bft.models.jobs import JobTable as JobTable
    from bft.models.jobs import Profile as Profile
    from bft.models.learned.duration import DurationEstimator as DurationEstimator
    from bft.models.learned.forecast import Forecaster as Forecaster
    from bft.models.learned.forecast import submissions as submissions
    from bft.models.learned.packing import PackingAnalyser as PackingAnalyser
    from bft.models.learned.packing import sharing_scores as sharing_scores
    from bft.models.learned.saved_models import read_model as read_model
    from bft.models.learned.saved_models import write_model as write_model
    from bft.models.measure.step_times import StepTimes as StepTimes
    from bft.models.measure.training_log import read_log as read_log
    from bft.models.measure.training_log import read_step_times as read_step_times
    from bft.models.measure.xi_measurements import (
        read_measurements as read_measurements,
    )
    from bft.models.objectives import Objective as Objective
    from bft.models.objectives import Standing as Standing
    from bft.models.objectives import deadline_weight as deadline_weight
    from bft.models.searches.workload_api import Event as Event
    from bft.models.searches.workload_api import Orders as Orders
    from bft.models.searches.workload_api import Workload as Workload
    from bft.models.sharing.unit_memory import SubBatch as SubBatch
    from bft.models.sharing.unit_memory import UnitMemory as UnitMemory
    from bft.models.sharing.unit_memory import fit_beside as fit_beside
    from bft.models.sharing.unit_memory import read_unit_memory as read_unit_memory
    from bft.models.sharing.xi_estimator import XiEstimate as XiEstimate
    from bft.models.sharing.xi_estimator import XiEstimator as XiEstimator
    from bft.models.sharing.xi_table import XiTable as XiTable
    from bft.models.sharing.xi_table import read_xi as read_xi
    from bft.models.sharing.xi_table import xi_from_frame as xi_from_frame
    from bft.models.speed.applications import Application as Application
    from bft.models.speed.applications import read_application as read_application
    from bft.models.speed.dynamics import ApplicationDynamics as ApplicationDynamics
    from bft.models.speed.dynamics import ApplicationProfile as ApplicationProfile
    from bft.models.speed.goodput import BatchLimits as BatchLimits
    from bft.models.speed.goodput import Goodput as Goodput
    from bft.models.speed.goodput import goodput_table as goodput_table
    from bft.models.speed.goodput import noise_scale as noise_scale
    from bft.models.speed.goodput import replica_cap as replica_cap
    from bft.models.speed.goodput import speedup_table as speedup_table
    from bft.models.speed.scalability import ScalabilityFit as ScalabilityFit
    from bft.models.speed.scalability import Throughputs as Throughputs
    from bft.models.speed.scalability import fit_scalability as fit_scalability
    from bft.models.speed.scalability import read_throughputs as read_throughputs
    from bft.models.speed.throughput import Observations as Observations
    from bft.models.speed.throughput import ThroughputParameters as ThroughputParameters
    from bft.models.speed.throughput import fit_throughput as fit_throughput
    from bft.models.tables import read_table as read_table
    from bft.models.tables import write_parquet as write_parquet
    from bft.models.workloads.cluster_jobs import (
        read_tiresias_jobs as read_tiresias_jobs,
    )
    from bft.models.workloads.cluster_jobs import read_venus_jobs as read_venus_jobs
    from bft.models.workloads.jobs_philly import read_philly_jobs as read_philly_jobs
    from bft.models.workloads.jobs_pollux import read_pollux_jobs as read_pollux_jobs
    from bft.models.workloads.jobs_swf import read_swf_jobs as read_swf_jobs
else:
    __getattr__, __dir__, __all__ = public_names(__name__)
