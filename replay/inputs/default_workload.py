"""A workload for users who bring a trace but no jobs: trainings as in the BFTrainer paper, sized to the trace."""

from __future__ import annotations

import numpy as np

from bft.models import JobTable, jobs_from_frame
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_statistics import half_of_idle

# Work of a training of the paper, images: 100 epochs of ImageNet.
PAPER_PMAX = 1.3e8
# Fewer jobs do not compete for nodes, more only cost time; their work is scaled so that the load is the same.
MIN_JOBS, MAX_JOBS = 10, 10_000
# Unit-seconds that the jobs need over those that the trace offers: more would only wait, less would leave nodes unused.
LOAD = 1.0


def default_workload(trace: NodeTrace) -> tuple[JobTable, str]:
    """Trainings that together need as much as the trace offers, submitted evenly over it; and a note on this."""
    from bft.datasets import generate_dnn_jobs

    start = str(np.datetime_as_string(np.datetime64(trace.start, "ns")))
    wanted = LOAD * trace.idle_unit_seconds()
    models = jobs_from_frame(
        generate_dnn_jobs(jobs=7, first_submit=start, pmax=PAPER_PMAX)
    )  # one of each network
    count = min(
        max(round(wanted / (needed_unit_seconds(models) / len(models))), MIN_JOBS),
        MAX_JOBS,
    )
    interval_s = round(trace.duration_s / count, 3)
    frame = generate_dnn_jobs(
        jobs=count, first_submit=start, interval_s=interval_s, pmax=PAPER_PMAX
    )
    scale = wanted / needed_unit_seconds(jobs_from_frame(frame))
    frame["Pmax"] *= scale
    made = jobs_from_frame(frame, source=f"generated: {count} DNN trainings")
    jobs = made.asking_at_most(half_of_idle(trace))
    note = (
        f"no jobs given: {count:,} generated image-recognition trainings, one every {interval_s:,.0f} s, of "
        f"{PAPER_PMAX * scale:,.0f} images each: a load of {load(jobs, trace):.2f}. How long they wait and take "
        "describes this workload, not yours; give your own with --jobs, or -bdfn and -scfn"
    )
    return jobs, note


def load(jobs: JobTable, trace: NodeTrace) -> float:
    """Unit-seconds that jobs need, on as few units as they run on, over those that the trace offers."""
    return needed_unit_seconds(jobs) / trace.idle_unit_seconds()


def needed_unit_seconds(jobs: JobTable) -> float:
    """Unit-seconds that jobs need on as few units as they run on, where their speed-up is best."""
    needed = 0.0
    for job in jobs:
        fewest = max(job.jmin, 1)
        rate = float(job.rates[fewest])
        needed += fewest * job.pmax / rate if rate else 0.0
    return needed
