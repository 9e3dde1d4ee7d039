"""A measured application of round numbers, and workloads of it, in the form of Pollux' artifact."""

from bft.models.workloads.jobs_pollux import read_pollux_jobs

BATCHES = (64, 128, 512)
# Ends of epochs in iterations at the initial batch size of 64.
EPOCHS = (1000.0, 2000.0, 3000.0)


def step_s(placement: str, atomic: int) -> tuple[float, float]:
    """Seconds of a step, and what of it waits: 0.1 s + 0.01 s a sample; 0.1 s among units, 0.3 s among nodes."""
    sync = 0.0 if placement == "1" else 0.1 if len(placement) == 1 else 0.3
    return 0.1 + 0.01 * atomic + sync, sync


def write_application(folder, *, grad_var: float = 300.0, **faster: float):
    """Write the application; |g|² is 1 throughout, so the noise scale is 64 x `grad_var`.

    `faster`: how many times faster units of some kinds are, whose measurements are written too.
    """
    folder.mkdir(parents=True)
    placements = ["1", "2", "3", "4", "11", "22", "24", "44", "444", "4444"]
    kinds = {"": 1.0, **{f"-{kind}": faster[kind] for kind in faster}}
    for mark, times in kinds.items():
        lines = [
            f"{p},{a},{step / times},{sync / times}"
            for p in placements
            for a in (16, 32, 64)
            for step, sync in [step_s(p, a)]
        ]
        (folder / f"placements{mark}.csv").write_text(
            "\n".join(["placement,local_bsz,step_time,sync_time", *lines, ""])
        )
    for batch in BATCHES:
        gain = (grad_var + 1) / (grad_var / (batch / BATCHES[0]) + 1)
        lines = [f"{end},{end / gain},0.5,1.0,{grad_var}" for end in EPOCHS]
        (folder / f"validation-{batch}.csv").write_text(
            "\n".join(["progress,iteration,metric,grad_sqr,grad_var", *lines, ""])
        )
    return folder


def workload(applications, *rows: str, whole_seconds: bool = False):
    """Read a workload of rows (name, time, application, num_replicas, batch_size)."""
    path = applications.parent / "workload.csv"
    path.write_text(
        "\n".join(["name,time,application,num_replicas,batch_size", *rows, ""])
    )
    return read_pollux_jobs(path, applications, whole_seconds=whole_seconds)
