"""Job logs in the Standard Workload Format, version 2.2: `--jobs-format swf` (docs/formats.md).

Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Final

from bft.models.cells import MAX_SECONDS, SECOND_NS, Row, Rows
from bft.models.errors import InputError
from bft.models.files import lines, opened
from bft.models.jobs import Job, JobTable
from bft.models.workloads.rigid_jobs import rigid_job, rigid_table

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
        head = stream.peek(1)
        if not head.strip():
            raise InputError("is empty", file=path)
        if b"\0" in head:
            raise InputError("is no text file", file=path)
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
    units = processors_per_unit or _per_node(header)
    start_s = header.get("UnixStartTime", 0)
    return rigid_table(
        Rows.of(records, path, job=JOB),
        lambda row: _job(row, start_s, units) if records[row.index] else None,
        {"Jmax": PROCESSORS},
    )


def _job(row: Row, start_s: int, processors_per_unit: int) -> Job | str:
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
    if begin_s + submit_s + seconds >= MAX_SECONDS:
        raise row.error(SUBMIT, "it would run until after the year 2261")
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


def _per_node(header: dict[str, int]) -> int:
    nodes, processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
    return max(1, math.ceil(processors / nodes)) if nodes else 1
