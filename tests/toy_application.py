"""A measured application of round numbers, and workloads of it, in the form of Pollux' artifact."""

from pathlib import Path

from bft.models import JobTable
from bft.models.workloads.jobs_pollux import read_pollux_jobs

ATOMIC = (16, 32, 64)
BATCHES = (64, 128, 512)
# Ends of epochs in iterations at the initial batch size of 64.
EPOCHS = (1000.0, 2000.0, 3000.0)


def step_s(placement: str, atomic: int) -> tuple[float, float]:
    """Seconds of a step, and what of it waits: 0.1 s + 0.01 s a sample; 0.1 s among units, 0.3 s among nodes."""
    sync = 0.0 if placement == "1" else 0.1 if len(placement) == 1 else 0.3
    return 0.1 + 0.01 * atomic + sync, sync


def write_application(
    folder: Path, *, grad_var: float = 300.0, **faster: float
) -> Path:
    """Write the application; |g|² is 1 throughout, so the noise scale is 64 x `grad_var`.

    `faster`: how many times faster units of some kinds are, whose measurements are written too.
    """
    folder.mkdir(parents=True)
    placements = ["1", "2", "3", "4", "11", "22", "24", "44", "444", "4444"]
    for mark, times in {
        "": 1.0,
        **{f"-{kind}": faster[kind] for kind in faster},
    }.items():
        rows = [
            (p, a, *(seconds / times for seconds in step_s(p, a)))
            for p in placements
            for a in ATOMIC
        ]
        lines = [",".join(map(str, row)) for row in rows]
        (folder / f"placements{mark}.csv").write_text(
            "\n".join(["placement,local_bsz,step_time,sync_time", *lines, ""])
        )
    for batch in BATCHES:
        scale = batch / BATCHES[0]
        gain = (grad_var + 1) / (grad_var / scale + 1)
        lines = [f"{end},{end / gain},0.5,1.0,{grad_var}" for end in EPOCHS]
        (folder / f"validation-{batch}.csv").write_text(
            "\n".join(["progress,iteration,metric,grad_sqr,grad_var", *lines, ""])
        )
    return folder


def workload(applications: Path, *rows: str, whole_seconds: bool = False) -> JobTable:
    """Read a workload of rows (name, time, application, num_replicas, batch_size)."""
    path = applications.parent / "workload.csv"
    path.write_text(
        "\n".join(["name,time,application,num_replicas,batch_size", *rows, ""])
    )
    return read_pollux_jobs(path, applications, whole_seconds=whole_seconds)
