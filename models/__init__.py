"""Jobs and their speed: curves, job tables, and safe readers for tables.

Imports nothing else from this package, so a training user can use it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    # isort: off
    from bft.models.curves import Curve as Curve, OnlineCurve as OnlineCurve
    from bft.models.errors import InputError as InputError
    from bft.models.job_tables import (
        jobs_from_frame as jobs_from_frame,
        jobs_to_frame as jobs_to_frame,
        read_jobs as read_jobs,
        read_published_jobs as read_published_jobs,
        write_jobs as write_jobs,
    )
    from bft.models.jobs import (
        Job as Job,
        JobTable as JobTable,
    )
    from bft.models.learned.duration import (
        DurationEstimator as DurationEstimator,
        Forecaster as Forecaster,
        submissions as submissions,
    )
    from bft.models.learned.packing import (
        PackingAnalyser as PackingAnalyser,
        sharing_scores as sharing_scores,
    )
    from bft.models.learned.saved_models import (
        read_model as read_model,
        write_model as write_model,
    )
    from bft.models.measure.training_log import (
        StepTimes as StepTimes,
        read_log as read_log,
        read_logs as read_logs,
        read_step_times as read_step_times,
    )
    from bft.models.measure.xi_measurements import (
        read_measurements as read_measurements,
    )
    from bft.models.objectives import (
        Objective as Objective,
        Standing as Standing,
        deadline_weight as deadline_weight,
    )
    from bft.models.searches.workload_api import (
        Event as Event,
        Orders as Orders,
        Workload as Workload,
    )
    from bft.models.sharing.xi_estimator import (
        XiEstimate as XiEstimate,
        XiEstimator as XiEstimator,
    )
    from bft.models.sharing.xi_table import (
        UnitMemory as UnitMemory,
        XiTable as XiTable,
        fit_beside as fit_beside,
        read_unit_memory as read_unit_memory,
        read_xi as read_xi,
        xi_from_frame as xi_from_frame,
    )
    from bft.models.speed.applications import (
        Application as Application,
        read_application as read_application,
    )
    from bft.models.speed.dynamics import (
        ApplicationDynamics as ApplicationDynamics,
        ApplicationProfile as ApplicationProfile,
    )
    from bft.models.speed.goodput import (
        BatchLimits as BatchLimits,
        Goodput as Goodput,
        Observations as Observations,
        ThroughputParameters as ThroughputParameters,
        fit_throughput as fit_throughput,
        goodput_table as goodput_table,
        noise_scale as noise_scale,
        replica_cap as replica_cap,
        speedup_table as speedup_table,
    )
    from bft.models.speed.scalability import (
        ScalabilityFit as ScalabilityFit,
        Throughputs as Throughputs,
        fit_scalability as fit_scalability,
        fitted_jobs as fitted_jobs,
        read_throughputs as read_throughputs,
    )
    from bft.models.tables import (
        read_table as read_table,
        write_parquet as write_parquet,
    )
    from bft.models.workloads.jobs_pollux import read_pollux_jobs as read_pollux_jobs
    from bft.models.workloads.rigid_jobs import (
        read_philly_jobs as read_philly_jobs,
        read_swf_jobs as read_swf_jobs,
        read_tiresias_jobs as read_tiresias_jobs,
        read_venus_jobs as read_venus_jobs,
    )
else:
    __getattr__, __dir__, __all__ = public_names(__name__)
