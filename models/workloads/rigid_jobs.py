"""Jobs that state only a size and a duration: `--jobs-format tiresias`, `venus`, `philly`, `swf` (docs/formats.md).

`venus` (Helios, as in Lucid's artifact) has job_id, gpu_num, submit_time (date, or seconds from 2020-04-01), duration
(s); optional user, vc, model, batchsize, amp (the model is then `MODEL+amp`), gmem (MiB). A job runs on gpu_num units
at rate 1; jobs without GPUs or duration are left out. `tiresias` has the same with num_gpu; optional model_name, skew,
spread_slowdown. Of `philly` a job has the largest number of GPUs of an attempt, and the seconds of all; times are
Pacific. Of `swf` allocated processors count, else requested ones, in nodes where the header gives MaxNodes and
MaxProcs; jobs that never ran and parts of jobs (status 2 to 4) are left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from bft.models.cells import MAX_SECONDS, SECOND_NS, Row, Rows, shown
from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.files import lines, opened, read_json
from bft.models.job_tables import unknown_columns
from bft.models.jobs import Job, JobTable
from bft.models.tables import read_table


def rigid_job(
    name: str, tsub_ns: int, units: int, seconds: float, **further: Any
) -> Job:
    """A job that runs on `units`, no more and no less, for `seconds`: Pmax is the duration, at a rate of 1.

    `further` are fields of `Job`. It costs nothing to start or stop it.

    >>> job = rigid_job("a", tsub_ns=0, units=4, seconds=600.0, user="u1")
    >>> job.jmin, job.jmax, float(job.rates[4]), job.user
    (4, 4, 1.0, 'u1')
    """
    curve = _full_rate(units)
    return Job(
        name=name,
        tsub_ns=tsub_ns,
        jmin=units,
        jmax=units,
        pmax=seconds,
        tcup_s=0.0,
        tcdw_s=0.0,
        scalability=curve,
        objective=curve,
        jreq=units,
        **further,
    )


# Why a row of a table has no job.
UNUSED = "without GPUs or duration"


@lru_cache(maxsize=4096)
def _full_rate(units: int) -> Curve:
    """A rate of 1 on all requested units."""
    return Curve(np.array([0.0, float(units)]), np.array([0.0, 1.0]))


def rigid_table(
    rows: Rows,
    job: Callable[[Row], Job | str | None],
    columns: Mapping[str, str] = MappingProxyType({}),
) -> JobTable:
    """The jobs of one file; what did not run is left out, counted by reason, and noted in the table.

    Parameters
    ----------
    rows
        The table; its job column names the jobs.
    job
        From a row to a job; the reason why it is left out; or None for a row that states none.
    columns
        What the table calls the fields that a job checks itself: name in a native table -> column.

    Raises
    ------
    InputError
        What `job` raises; also for a name that is taken, and when no job is left.
    """
    jobs: dict[str, Job] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            made = job(row)
        except InputError as error:
            raise row.placed(error, columns.get(error.column or "")) from error
        if isinstance(made, str):
            left_out[made] += 1
        elif made is not None:
            if row.name(rows.job) in jobs:
                raise row.error(rows.job, "the name appears twice; expected once")
            jobs[made.name] = made
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
    if not jobs:
        raise rows.error(f"has no job to replay{': ' + reasons if reasons else ''}")
    notes = (f"jobs left out: {reasons}",) if reasons else ()
    return JobTable(tuple(jobs.values()), rows.file, notes)


# Where seconds count from that a table of Helios has for a submit time: its traces begin on 2020-04-01 (UTC).
VENUS_ORIGIN_NS: Final = 1_585_699_200 * SECOND_NS
MIB_PER_GIB: Final = 1024


def read_tiresias_jobs(path: str | Path) -> JobTable:
    r"""Read a trace of Tiresias' simulator (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                | becomes                                                                       |
    |-----------------------|-------------------------------------------------------------------------------|
    | job_id                | name                                                                          |
    | num_gpu               | Jmin = Jmax = Jreq, in units                                                  |
    | submit_time           | Tsub: seconds from the begin of the trace, which is taken for 1970-01-01      |
    | duration              | Pmax: seconds of work at a rate of 1 on num_gpu units                         |
    | model_name            | model                                                                         |
    | skew, spread_slowdown | the same: skew is the share of a model's largest tensor in its parameters     |

    Further columns (iterations, interval) are kept in `Job.extra`. Jobs without a GPU or without duration did not run:
    they are left out, and the table's notes count them.

    Raises
    ------
    InputError
        Naming file, row, column and job; also when no job is left.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "trace.csv")
    ...     _ = file.write_text("job_id,num_gpu,submit_time,duration,model_name\n1,4,60,3600,vgg19\n")
    ...     [(job.name, job.request, job.pmax) for job in read_tiresias_jobs(file)]
    [('1', 4, 3600.0)]
    """

    def fields(row: Row) -> dict[str, Any]:
        return {
            "model": row.name("model_name", ""),
            "skew": row.number("skew", None),
            "spread_slowdown": row.number("spread_slowdown", 1.0),
        }

    optional = ("model_name", "skew", "spread_slowdown", "iterations", "interval")
    return _read(path, "num_gpu", 0, fields, optional[:3], optional[3:])


def read_venus_jobs(path: str | Path) -> JobTable:
    r"""Read a Helios job table (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                        | becomes                                                                    |
    |-------------------------------|----------------------------------------------------------------------------|
    | job_id                        | name                                                                       |
    | gpu_num                       | Jmin = Jmax = Jreq, in units                                               |
    | submit_time                   | Tsub: date and time (UTC where it names no zone), or s from 2020-04-01     |
    | duration                      | Pmax: seconds of work at a rate of 1 on gpu_num units                      |
    | user, vc, batchsize           | user, vc, batch_size                                                       |
    | model, amp                    | model, with `+amp` behind it where amp is 1: it computes otherwise         |
    | gmem                          | memory_gib: memory of a unit, in MiB                                       |

    Further columns (cpu_num, state, dataset, gpu_util, gmem_util and so on), amp and gmem are kept in `Job.extra`. Jobs
    without a GPU or without duration did not run on units: they are left out, and the table's notes count them.

    Raises
    ------
    InputError
        Naming file, row, column and job; also when no job is left.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "venus.csv")
    ...     _ = file.write_text("job_id,gpu_num,submit_time,duration,user,vc\n1,8,2020-09-01 08:00,600,u1,vc1\n")
    ...     [(job.request, job.pmax, job.vc) for job in read_venus_jobs(file)]
    [(8, 600.0, 'vc1')]
    """

    def fields(row: Row) -> dict[str, Any]:
        memory_mib = row.number("gmem", None, min=0)
        return {
            "model": label(row.name("model", ""), mixed=is_mixed(row, "amp")),
            "user": row.name("user", ""),
            "vc": row.name("vc", ""),
            "batch_size": row.number("batchsize", None, min=0),
            "memory_gib": None if memory_mib is None else memory_mib / MIB_PER_GIB,
        }

    taken = ("model", "user", "vc", "batchsize")
    return _read(path, "gpu_num", VENUS_ORIGIN_NS, fields, taken, ("amp", "gmem"))


def _read(
    path: str | Path,
    units: str,
    origin_ns: int,
    fields: Callable[[Row], dict[str, Any]],
    taken: Sequence[str],
    kept: Sequence[str],
) -> JobTable:
    """Read a table; of its optional columns those `taken` become fields of Job, those `kept` stay in `Job.extra`."""
    required = ("job_id", units, "submit_time", "duration")
    rows = Rows(read_table(path), path, job="job_id").require(required, (*taken, *kept))
    unknown_columns(rows, (*required, *taken, *kept))  # misspelt ones are refused

    def job(row: Row) -> Job | str:
        count = row.whole(units, min=0)
        seconds = row.number("duration", min=0, below=MAX_SECONDS)
        submit_ns = row.instant("submit_time", origin_ns=origin_ns)
        if submit_ns < 0:
            raise row.error("submit_time", "expected an instant from 1970 on")
        if not count or not seconds:
            return UNUSED
        extra = row.further((*required, *taken))
        return rigid_job(row.job, submit_ns, count, seconds, extra=extra, **fields(row))

    return rigid_table(rows, job, {"Jmax": units, "model": taken[0]})


def is_mixed(row: Row, column: str) -> bool:
    """Whether a job computes in mixed precision: true for 1 or true, otherwise false."""
    value = row.value(column)
    return (
        value if isinstance(value, bool) else bool(row.whole(column, 0, min=0, max=1))
    )


def label(model: str, *, mixed: bool) -> str:
    """The model's name in ξ tables: mixed precision makes it another load."""
    return f"{model}+amp" if model and mixed else model


# --- Microsoft's Philly clusters ---
#
# Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019; the file
# `cluster_job_log` of its published traces.

# Times in the log name no zone; those of the same traces' utilisation say PST and PDT.
ZONE: Final = ZoneInfo("America/Los_Angeles")
_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_EXPECTED: Final = "a date and time such as 2017-10-07 01:11:39"
_NOTHING: Final = (None, "", "None")


def read_philly_jobs(path: str | Path) -> JobTable:
    """Read a job log, a JSON array, gzip-compressed or not: one rigid job an entry, in the order of the file.

    | key            | becomes                                                                                    |
    |----------------|--------------------------------------------------------------------------------------------|
    | jobid          | name                                                                                       |
    | submitted_time | Tsub                                                                                       |
    | attempts       | Jmin = Jmax = Jreq: the most GPUs of an attempt; Pmax: seconds of all attempts, at rate 1  |
    | user, vc       | user, vc                                                                                   |
    | status         | in `Job.extra`, with the number of attempts                                                |

    An attempt without GPUs, start or end does not count: those that ran when the log was taken have no end. Jobs of
    which no attempt counts are left out, and the table's notes count them.

    Raises
    ------
    InputError
        Naming file, entry (row, from 1), key (column) and job; also when no job is left.

    Examples
    --------
    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> attempt = {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 09:00:00"}
    >>> attempt["detail"] = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]
    >>> job = {"jobid": "j1", "submitted_time": "2017-10-09 07:01:00", "attempts": [attempt]}
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "jobs.json")
    ...     _ = file.write_text(json.dumps([job]))
    ...     [(job.request, job.pmax) for job in read_philly_jobs(file)]
    [(2, 3600.0)]
    """
    entries = read_json(path)
    if not _objects(entries):
        raise InputError("expected a JSON array of objects, one a job", file=path)
    return rigid_table(
        Rows(pd.DataFrame(entries, dtype=object), path, job="jobid"),
        _philly_job,
        {"Jmax": "detail"},
    )


def _philly_job(row: Row) -> Job | str:
    """Return the job of an entry, or why it is left out."""
    name = row.name("jobid")
    submitted_ns = _instant(row, row.value("submitted_time"), "submitted_time")
    if submitted_ns is None:
        raise row.error("submitted_time", f"expected {_EXPECTED}, not nothing")
    attempts = row.value("attempts")
    if not _objects(attempts):
        raise row.error("attempts", "expected a list of objects")
    counted: list[tuple[int, float]] = []
    for attempt in attempts:
        gpus = _gpus(row, attempt)
        start_ns, end_ns = (
            _instant(row, attempt.get(key), key) for key in ("start_time", "end_time")
        )
        if gpus and start_ns is not None and end_ns is not None and end_ns > start_ns:
            counted.append((gpus, (end_ns - start_ns) / SECOND_NS))
    if not counted:
        return "without an attempt that has GPUs, start and end"
    user, vc, status = (
        "" if row.value(key) in _NOTHING else row.name(key)
        for key in ("user", "vc", "status")
    )
    return rigid_job(
        name,
        submitted_ns,
        max(gpus for gpus, _ in counted),
        math.fsum(seconds for _, seconds in counted),
        user=user,
        vc=vc,
        extra={"status": status, "attempts": len(counted)},
    )


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _gpus(row: Row, attempt: Mapping[str, Any]) -> int:
    """Different GPUs of an attempt."""
    nodes = attempt.get("detail") or []
    if not _objects(nodes) or not all(isinstance(n.get("gpus"), list) for n in nodes):
        raise row.error("detail", "expected a list of objects with ip and a list gpus")
    return sum(len(set(map(str, node["gpus"]))) for node in nodes)


def _instant(row: Row, value: object, key: str) -> int | None:
    """UTC nanoseconds, None where nothing is known."""
    if value in _NOTHING:
        return None
    try:
        stamp = datetime.strptime(str(value).strip(), _FORMAT).replace(tzinfo=ZONE)
    except ValueError as error:
        raise row.error(key, f"expected {_EXPECTED}, not {shown(value)}") from error
    return round(stamp.timestamp()) * SECOND_NS


# --- the Standard Workload Format, version 2.2 ---
#
# Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line.

# Names of the fields as messages have them, in their order.
(JOB, SUBMIT, _, RUN, PROCESSORS, _, _, REQUESTED, REQUESTED_S, _, STATUS, USER, GROUP, EXECUTABLE, QUEUE, PARTITION,
 _, _) = FIELDS = tuple(f"{number} ({name})" for number, name in enumerate((
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
), start=1))  # fmt: skip
_HEADER: Final = re.compile(r";\s*([A-Za-z]+)\s*:\s*(\d{1,12})\b", re.ASCII)
# Submit times beyond are epochs (1985): no log spans 15 years. Others are seconds since UnixStartTime.
_EPOCHS_FROM_S: Final = 5e8
# Lines for the parts of a job that was checkpointed; another line covers the whole of it.
_PARTS: Final = ("2", "3", "4")
_UNKNOWN: Final = "-1"
# Contents of Job.extra, and their fields.
_FURTHER: Final = {
    "status": STATUS,
    "group": GROUP,
    "executable": EXECUTABLE,
    "queue": QUEUE,
}


def read_swf_jobs(
    path: str | Path, *, processors_per_unit: int | None = None
) -> JobTable:
    r"""Read a workload, gzip-compressed or not: one rigid job a line, in the order of the file.

    | field                           | becomes                                                                |
    |---------------------------------|------------------------------------------------------------------------|
    | 1 job number                    | name                                                                   |
    | 2 submit time                   | Tsub: seconds after the header's UnixStartTime; or since 1970          |
    | 4 run time                      | Pmax: seconds of work at a rate of 1                                   |
    | 5 allocated processors, or else | Jmin = Jmax = Jreq: units, rounded up                                  |
    | 8 requested processors          |                                                                        |
    | 12 user, 16 partition           | user, vc                                                               |
    | 9, 13, 14, 15, 11               | in `Job.extra`: requested_s, group, executable, queue, status          |

    Jobs that never ran (run time 0 or unknown), and lines for parts of a job, are left out, and the table's notes count
    them.

    Parameters
    ----------
    path
        The workload.
    processors_per_unit
        None: what the header says of a node (MaxProcs over MaxNodes, rounded up), else 1.

    Raises
    ------
    InputError
        Naming file, line and field; also when no job is left.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "log.swf")
    ...     _ = file.write_text("; MaxNodes: 4\n; MaxProcs: 16\n1 0 5 600 8" + " -1" * 13 + "\n")
    ...     [(job.request, job.pmax) for job in read_swf_jobs(file)]
    [(2, 600.0)]
    """
    header: dict[str, int] = {}
    records: list[dict[str, str]] = []  # one a line, so that a row's number is a line's
    with opened(path) as stream:
        if not stream.peek(1).strip():
            raise InputError("is empty", file=path)
        for line, text in enumerate(lines(stream, str(path)), start=1):
            entry = _HEADER.match(text)
            if entry:
                header[entry[1]] = int(entry[2])
            cells = [] if text.startswith(";") else text.split()
            if cells and len(cells) < len(FIELDS):
                raise InputError(
                    f"expected {len(FIELDS)} fields separated by blanks, not {len(cells)}",
                    file=path,
                    row=line,
                )
            stated = zip(FIELDS, cells, strict=False)
            records.append({name: cell for name, cell in stated if cell != _UNKNOWN})
    nodes, processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
    per_node = max(1, math.ceil(processors / nodes)) if nodes else 1
    units = processors_per_unit or per_node
    start_s = header.get("UnixStartTime", 0)
    return rigid_table(
        Rows(pd.DataFrame(records, dtype=object), path, job=JOB),
        lambda row: _swf_job(row, start_s, units) if records[row.index] else None,
        {"Jmax": PROCESSORS},
    )


def _swf_job(row: Row, start_s: int, processors_per_unit: int) -> Job | str:
    """Return the job of a line, or why it is left out."""
    submit_s = row.number(SUBMIT, min=0, below=MAX_SECONDS)
    if row.value(STATUS) in _PARTS:
        return "that are parts of others (status 2 to 4)"
    ran = row.given(RUN)
    seconds = row.number(RUN, min=0, below=MAX_SECONDS) if ran else 0.0
    if not seconds:
        return "that never ran"
    processors = row.number(PROCESSORS, 0.0) or row.number(REQUESTED, 0.0)
    if processors <= 0:
        raise row.error(
            PROCESSORS, "neither this field nor field 8 says how many processors it has"
        )
    begin_s = 0 if submit_s >= _EPOCHS_FROM_S else start_s
    extra: dict[str, Any] = {
        name: row.value(column)
        for name, column in _FURTHER.items()
        if row.given(column)
    }
    if row.given(REQUESTED_S):
        extra["requested_s"] = row.number(REQUESTED_S)
    return rigid_job(
        row.name(JOB),
        begin_s * SECOND_NS + round(submit_s * SECOND_NS),
        math.ceil(processors / processors_per_unit),
        seconds,
        user=row.name(USER, ""),
        vc=row.name(PARTITION, ""),
        extra=extra,
    )
