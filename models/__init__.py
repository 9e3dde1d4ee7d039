"""What a job is and how fast it goes: curves, job tables, and the safe reading of tables.

Imports nothing else of ours, so a training user can use it alone.
"""

from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.interference import XiTable, read_xi, xi_from_frame
from bft.models.job_tables import jobs_from_frame, jobs_to_frame, read_jobs, read_published_jobs
from bft.models.jobs import Dynamics, Job, JobTable, Profile
from bft.models.objectives import OBJECTIVES, Objective, deadline_weight
from bft.models.tables import read_table

__all__ = [
    "OBJECTIVES",
    "Curve",
    "Dynamics",
    "InputError",
    "Job",
    "JobTable",
    "Objective",
    "Profile",
    "XiTable",
    "deadline_weight",
    "jobs_from_frame",
    "jobs_to_frame",
    "read_jobs",
    "read_published_jobs",
    "read_table",
    "read_xi",
    "xi_from_frame",
]
