"""What a scheduler would log of a machine that is made up: for first steps, where no log of one's own is at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

import numpy as np

from bft.models.checks import did_you_mean
from bft.models.errors import InputError

MEAN_S = 5400
"""Mean run time of a job, s."""
CORES = 32
"""Cores of each node, in the formats that state them."""
CORES_PER_GPU = 8
"""The same where jobs want GPUs."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job of the machine: its id, when it ran, s since 1970, and on which nodes, counted from 0."""

    number: int
    start_s: int
    end_s: int
    nodes: tuple[int, ...]
    runs: bool
    """It still runs at the end of the log."""
    submit_s: int
    """When it was submitted."""
    limit_s: int
    """Its time limit."""
    gpus: int = 0
    """GPUs of each of its nodes, in logs that state them."""


def generate_log(
    scheduler: str = "slurm",
    *,
    nodes: int = 64,
    days: float = 3.0,
    seed: int = 0,
    start: str = "2024-03-04",
    load: float = 0.85,
    gpus_per_node: int = 0,
) -> str:
    """Generate the log of a machine that starts its jobs first come, first served, as a scheduler would write it.

    Jobs want 1 to half of all nodes (as likely 1 to 2 as 2 to 4 ...) for 90 minutes on average. Nodes that wait for a
    large job, or for the next submission, are idle. Time limits (`slurm` and `pbs` state them) are 1 to 4 times the run
    time, as likely each, rounded up to half an hour. Nothing in it comes from a real log. The jobs depend on the other
    arguments only; `lsf` and `sge` write down jobs when they have ended, so those that still run are not in these logs.

    Parameters
    ----------
    scheduler
        `slurm` (as `sacct -P` prints it), `pbs` (an accounting file), `lsf` (lsb.acct), `sge` (an accounting file),
        `cobalt` (the job table of ALCF) or `flux` (what `flux jobs -o` prints).
    nodes
        Nodes of the machine, at least 2.
    days
        Length of the log.
    seed
        Same seed, same log.
    start
        First day, UTC.
    load
        Submitted node-hours over those of the machine.
    gpus_per_node
        `slurm`: jobs want GPUs, of which each node has so many: 1 up to half of all (as likely 1 to 2 as 2 to 4 ...),
        as some of one node or as whole nodes, so that nodes are busy in part. 0: jobs want whole nodes.

    Raises
    ------
    InputError
        When no writer has this name, or it writes no GPUs.

    Examples
    --------
    >>> for line in generate_log(nodes=8, days=0.1).splitlines()[:2]:
    ...     print(line)
    JobID|JobName|NodeList|AllocNodes|Start|End|State|Submit|Timelimit
    1000|run0|cn1|1|2024-03-04T00:19:17|2024-03-04T00:22:02|COMPLETED|2024-03-04T00:19:17|00:30:00
    """
    if scheduler not in WRITERS:
        wanted = ", ".join(WRITERS)
        raise InputError(
            f"no log of {scheduler!r}{did_you_mean(scheduler, WRITERS)}; one of {wanted} is expected"
        )
    if gpus_per_node and scheduler not in WITH_GPUS:
        raise InputError(
            f"a log of {scheduler} is made without GPUs; {' and '.join(WITH_GPUS)} has them"
        )
    jobs = _jobs(nodes, days, seed, start, load, gpus_per_node)
    return "\n".join(WRITERS[scheduler](jobs, nodes)) + "\n"


def _jobs(
    nodes: int,
    days: float,
    seed: int,
    start: str,
    load: float,
    gpus_per_node: int,
) -> list[_Job]:
    rng, limits = np.random.default_rng(seed), np.random.default_rng((seed, 1))
    per = max(1, gpus_per_node)
    end_s, largest = round(days * 86_400), max(1, nodes // 2) * per
    mean_size = float(
        np.mean([_units(largest**share, per) for share in np.linspace(0, 1, 1001)])
    )
    gap_s = MEAN_S * mean_size / (nodes * per * load)
    free = np.zeros(
        (nodes, per), dtype=np.int64
    )  # when each GPU, or each node, is free again
    submit = begin = 0.0
    origin_s = int(np.datetime64(start, "s").astype(np.int64))
    jobs: list[_Job] = []
    while True:
        submit += rng.exponential(gap_s)
        size, length = (
            _units(largest ** rng.random(), per),
            60 + int(rng.exponential(MEAN_S - 60)),
        )
        gpus = min(size, per)
        back = np.sort(free, axis=1)[:, gpus - 1]  # when each node has so many to give
        taken = np.sort(np.argsort(back, kind="stable")[: size // gpus])
        begin = max(begin, submit, float(back[taken].max()) + 1)
        if begin >= end_s:
            return jobs
        first, last = int(begin), min(int(begin) + length, end_s)
        for node in taken.tolist():
            free[node, np.flatnonzero(free[node] <= first)[:gpus]] = last
        runs = last == int(begin) + length
        limit_s = 1800 * math.ceil(length * limits.uniform(1, 4) / 1800)
        ran = origin_s + first, origin_s + last
        job = _Job(
            1000 + len(jobs),
            *ran,
            tuple(taken.tolist()),
            not runs,
            origin_s + int(submit),
            limit_s,
        )
        jobs.append(replace(job, gpus=gpus) if gpus_per_node else job)


def _units(wanted: float, per: int) -> int:
    """GPUs that a job gets: some of one node, or all of several; whole nodes where `per` is 1.

    >>> _units(2.6, 4), _units(9.4, 4), _units(2.6, 1)
    (3, 8, 3)
    """
    return round(wanted) if round(wanted) < per else round(wanted / per) * per


def _slurm(jobs: Sequence[_Job], nodes: int) -> list[str]:
    gpus = any(job.gpus for job in jobs)
    lines = [
        "JobID|JobName|NodeList|AllocNodes|Start|End|State|Submit|Timelimit"
        + "|AllocTRES" * gpus
    ]
    for job in jobs:
        hosts = _host_list(job.nodes, nodes)
        end, state = (
            ("Unknown", "RUNNING")
            if job.runs
            else (f"{_utc(job.end_s):%Y-%m-%dT%H:%M:%S}", "COMPLETED")
        )
        start = f"{_utc(job.start_s):%Y-%m-%dT%H:%M:%S}"
        more = f"|{_utc(job.submit_s):%Y-%m-%dT%H:%M:%S}|{_limit(job.limit_s)}"
        if job.gpus:
            many = len(job.nodes)
            more += f"|cpu={CORES_PER_GPU * job.gpus * many},gres/gpu={job.gpus * many},node={many}"
        lines.append(
            f"{job.number}|{_name(job)}|{hosts}|{len(job.nodes)}|{start}|{end}|{state}{more}"
        )
    return lines


def _pbs(jobs: Iterable[_Job], nodes: int) -> list[str]:
    """A record when a job starts (S), and one when it ends (E)."""
    records = []
    for job in jobs:
        hosts = _hosts(job, nodes)
        chunks = "+".join(f"({host}:ncpus={CORES})" for host in hosts)
        values = (
            f"user=u{job.number % 5} queue=workq jobname={_name(job)} "
            f"exec_host={'+'.join(f'{host}/0*{CORES}' for host in hosts)} exec_vnode={chunks} start={job.start_s} "
            f"qtime={job.submit_s} etime={job.submit_s} Resource_List.walltime={_limit(job.limit_s)}"
        )
        records.append((job.start_s, f"S;{job.number}.pbs;{values}"))
        if not job.runs:
            records.append(
                (
                    job.end_s,
                    f"E;{job.number}.pbs;{values} end={job.end_s} Exit_status=0",
                )
            )
    return [
        f"{_utc(second):%m/%d/%Y %H:%M:%S};{record}"
        for second, record in sorted(records)
    ]


def _lsf(jobs: Iterable[_Job], nodes: int) -> list[str]:
    lines = []
    for job in _ended(jobs):
        slots, user = CORES * len(job.nodes), f"u{job.number % 5}"
        head = f'"JOB_FINISH" "10.1" {job.end_s} {job.number} 1001 33554434 {slots} {job.start_s} 0 0 {job.start_s}'
        rest = f'"{user}" "normal" "" "" "" "login" "/home/{user}" "" "" "" "{job.number}.sh" 0 {len(job.nodes)}'
        hosts = " ".join(f'"{CORES}*{host}"' for host in _hosts(job, nodes))
        lines.append(f'{head} {rest} {hosts} 64 60.0 "{_name(job)}" "run"')
    return lines


def _sge(jobs: Iterable[_Job], nodes: int) -> list[str]:
    """A record for each host of a job, see accounting(5)."""
    lines = []
    for job in _ended(jobs):
        for task, host in enumerate(_hosts(job, nodes)):
            head = (
                f"all.q:{host}:users:u{job.number % 5}:{_name(job)}:{job.number}:sge:0"
            )
            times = (
                f"{job.start_s}:{job.start_s}:{job.end_s}:0:0:{job.end_s - job.start_s}"
            )
            of_task = f"{task}.{host}" if task else "NONE"
            slots = CORES * len(job.nodes)
            rest = f"{':0' * 17}:project:default:mpi:{slots}:0:0:0:0:NONE:0:{of_task}:0:0:0"
            lines.append(f"{head}:{times}{rest}")
    return lines


def _cobalt(jobs: Iterable[_Job], nodes: int) -> list[str]:
    """Times are of UTC, as those of a machine whose clock is."""
    lines = ["JOB_NAME,MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION"]
    for job in jobs:
        start, end = (
            f"{_utc(second):%Y-%m-%d %H:%M:%S}" for second in (job.start_s, job.end_s)
        )
        hosts = ",".join(_hosts(job, nodes))
        lines.append(
            f'{job.number}.cobalt,made-up,{start},{"" if job.runs else end},{len(job.nodes)},"{hosts}"'
        )
    return lines


def _flux(jobs: Iterable[_Job], nodes: int) -> list[str]:
    """The jobs that run, then those that have ended, the latest first; a time that has not come is 0.0."""
    lines = ["JOBID|NODELIST|T_RUN|T_INACTIVE"]
    for job in sorted(
        jobs, key=lambda job: (job.runs, job.end_s, job.number), reverse=True
    ):
        end_s = 0 if job.runs else job.end_s
        lines.append(
            f"f{job.number}|{_host_list(job.nodes, nodes)}|{job.start_s:.1f}|{end_s:.1f}"
        )
    return lines


WRITERS: dict[str, Callable[[Sequence[_Job], int], list[str]]] = {
    "slurm": _slurm,
    "pbs": _pbs,
    "lsf": _lsf,
    "sge": _sge,
    "cobalt": _cobalt,
    "flux": _flux,
}
"""What writes the log of each scheduler, by the name that `ingest` has for its format."""


WITH_GPUS = ("slurm",)
"""Those that can state GPUs."""


def _ended(jobs: Iterable[_Job]) -> list[_Job]:
    """Jobs that have ended, in the order in which they did."""
    return sorted(
        (job for job in jobs if not job.runs), key=lambda job: (job.end_s, job.number)
    )


def _name(job: _Job) -> str:
    return f"run{job.number % 1000 % 7}"


def _limit(seconds: int) -> str:
    """A time limit below 100 hours, as Slurm and PBS write it."""
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def _utc(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def _hosts(job: _Job, nodes: int) -> list[str]:
    digits = len(str(nodes))
    return [f"cn{node + 1:0{digits}}" for node in job.nodes]


def _host_list(taken: Iterable[int], nodes: int) -> str:
    """Return nodes, counted from 1, as a host list in Slurm's notation."""
    digits = len(str(nodes))
    runs = [
        [node for _, node in group]
        for _, group in groupby(enumerate(taken), lambda at: at[1] - at[0])
    ]
    texts = [
        f"{run[0] + 1:0{digits}}"
        + (f"-{run[-1] + 1:0{digits}}" if len(run) > 1 else "")
        for run in runs
    ]
    return (
        f"cn{texts[0]}"
        if len(texts) == 1 and "-" not in texts[0]
        else f"cn[{','.join(texts)}]"
    )
