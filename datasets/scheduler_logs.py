"""What a scheduler would log of a machine that is made up: for first steps, where no log of one's own is at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models.errors import InputError

# Mean run time of a job, s.
MEAN_S = 5400
HEADERS = {
    "slurm": "JobID|JobName|NodeList|AllocNodes|Start|End|State|Submit|Timelimit",
    "cobalt": "JOB_NAME,MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION",
    "flux": "JOBID|NODELIST|T_RUN|T_INACTIVE",
}
# What stands between two hosts, where a scheduler names all hosts of a job; nodes have 32 cores.
MARKS = {"commas": ",", "cores": "/0*32+", "chunks": ":ncpus=32)+(", "quotes": '" "32*'}
_SLURM = (
    "{number}|{name}|{host_list}|{many}|{start:%FT%T}|",
    "|{submit:%FT%T}|{limit}{tres}",
)
_PBS = (
    "{number}.pbs;user={user} queue=workq jobname={name} exec_host={cores}/0*32 exec_vnode=({chunks}:ncpus=32) "
    "start={start_s} qtime={submit_s} etime={submit_s} Resource_List.walltime={limit}"
)
_LSF = (
    '"JOB_FINISH" "10.1" {end_s} {number} 1001 33554434 {slots} {start_s} 0 0 {start_s} "{user}" "normal" "" "" "" '
    '"login" "/home/{user}" "" "" "" "{number}.sh" 0 {many} "32*{quotes}" 64 60.0 "{name}" "run"'
)
# See accounting(5).
_SGE = (
    "all.q:{host}:users:{user}:{name}:{number}:sge:0:{start_s}:{start_s}:{end_s}:0:0:{run_s}" + 17 * ":0"
    + ":project:default:mpi:{slots}:0:0:0:0:NONE:0:{task}:0:0:0"
)  # fmt: skip
_COBALT = "{number}.cobalt,made-up,{start:%F %T},", ',{many},"{commas}"'
# What each scheduler writes: of which jobs (those that have ended, or still run), what lines are sorted by, and their
# text, filled with the entries of a job (`_jobs`). With {host} in it, each host of a job has a line.
RECORDS = {
    "slurm": [
        ("ended", "number", "{end:%FT%T}|COMPLETED".join(_SLURM)),
        ("running", "number", "Unknown|RUNNING".join(_SLURM)),
    ],
    "pbs": [
        ("ended running", "start_s", "{start:%m/%d/%Y %T};S;" + _PBS),
        ("ended", "end_s", "{end:%m/%d/%Y %T};E;" + _PBS + " end={end_s} Exit_status=0"),
    ],
    "lsf": [("ended", "by_end", _LSF)],
    "sge": [("ended", "by_end", _SGE)],
    "cobalt": [
        ("ended", "number", "{end:%F %T}".join(_COBALT)),
        ("running", "number", "".join(_COBALT)),
    ],
    "flux": [
        ("ended", "latest_first", "f{number}|{host_list}|{start_s:.1f}|{end_s:.1f}"),
        ("running", "latest_first", "f{number}|{host_list}|{start_s:.1f}|0.0"),
    ],
}  # fmt: skip


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
    if scheduler not in RECORDS:
        raise InputError(f"no log of {scheduler!r}, expected {' or '.join(RECORDS)}")
    if gpus_per_node and scheduler != "slurm":
        raise InputError(f"a log of {scheduler} is made without GPUs; slurm has them")
    header, lines = HEADERS.get(scheduler, "").splitlines(), []
    for job in _jobs(nodes, days, seed, start, load, gpus_per_node):
        job |= {name: mark.join(job["hosts"]) for name, mark in MARKS.items()}
        for states, order, text in RECORDS[scheduler]:
            if job["state"] in states:
                for task, host in enumerate(job["hosts"] if "{host}" in text else [""]):
                    job |= {"host": host, "task": f"{task}.{host}" if task else "NONE"}
                    lines.append((job[order], text.format_map(job)))
    if lines and gpus_per_node:
        header[0] += "|AllocTRES"
    return "\n".join([*header, *(line for _, line in sorted(lines))]) + "\n"


def _jobs(
    nodes: int, days: float, seed: int, start: str, load: float, gpus_per_node: int
) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a machine, in the order of their starts, as the entries that texts of `RECORDS` name."""
    per = max(1, gpus_per_node)
    rng, limits = np.random.default_rng(seed), np.random.default_rng((seed, 1))
    digits = [f"{node:0{len(str(nodes))}}" for node in range(1, nodes + 1)]
    origin_s = int(np.datetime64(start, "s").astype(int))
    end_s, largest = round(days * 86_400), max(1, nodes // 2) * per
    sizes = [_units(largest**share, per) for share in np.linspace(0, 1, 1001)]
    gap_s = MEAN_S * float(np.mean(sizes)) / (nodes * per * load)
    # When each GPU, or each node, is free again.
    free = np.zeros((nodes, per), dtype=int)
    submit = begin = 0.0
    for number in count(1000):
        submit += rng.exponential(gap_s)
        size = _units(largest ** rng.random(), per)
        length = 60 + int(rng.exponential(MEAN_S - 60))
        gpus = min(size, per)
        back = np.sort(free, axis=1)[:, gpus - 1]  # when each node has so many to give
        taken = np.sort(np.argsort(back, kind="stable")[: size // gpus])
        begin = max(begin, submit, float(back[taken].max()) + 1)
        if begin >= end_s:
            return
        first, last = int(begin), min(int(begin) + length, end_s)
        for node in taken.tolist():
            free[node, np.flatnonzero(free[node] <= first)[:gpus]] = last
        hours, half = divmod(math.ceil(length * limits.uniform(1, 4) / 1800), 2)
        tres = f"|cpu={8 * size},gres/gpu={size},node={len(taken)}"
        running = last < first + length
        job: dict[str, Any] = {
            "number": number,
            "name": f"run{number % 1000 % 7}",
            "user": f"u{number % 5}",
            "hosts": [f"cn{digits[node]}" for node in taken],
            "host_list": _host_list(taken, digits),
            "many": len(taken),
            "slots": 32 * len(taken),
            "tres": tres if gpus_per_node else "",
            "state": "running" if running else "ended",
            "limit": f"{hours:02}:{30 * half:02}:00",
            "run_s": last - first,
            "by_end": (last, number),
            "latest_first": (not running, -last, -number),
        }
        for name, second in (("submit", int(submit)), ("start", first), ("end", last)):
            job[f"{name}_s"] = origin_s + second
            job[name] = datetime.fromtimestamp(origin_s + second, UTC)
        yield job


def _units(wanted: float, per: int) -> int:
    """GPUs that a job gets: some of one node, or all of several; whole nodes where `per` is 1.

    >>> _units(2.6, 4), _units(9.4, 4), _units(2.6, 1)
    (3, 8, 3)
    """
    return round(wanted) if round(wanted) < per else round(wanted / per) * per


def _host_list(taken: NDArray[np.int64], digits: list[str]) -> str:
    """Return nodes, given by their positions and the digits of their names, as a host list in Slurm's notation."""
    ranges = []
    for run in np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1):
        ends = dict.fromkeys((digits[run[0]], digits[run[-1]]))
        ranges.append("-".join(ends))
    return f"cn[{','.join(ranges)}]" if len(taken) > 1 else f"cn{ranges[0]}"
