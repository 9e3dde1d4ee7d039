"""Job logs in the Standard Workload Format, version 2.2: `--jobs-format swf` (docs/formats.md).

Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bft.models.cells import MAX_SECONDS, SECOND_NS, read_number
from bft.models.errors import InputError
from bft.models.jobs import MAX_UNITS, Job, JobTable
from bft.models.limited_reading import lines, opened
from bft.models.workloads.rigid_jobs import rigid_job, rigid_table

FIELDS: Final = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
_HEADER: Final = re.compile(r";\s*([A-Za-z]+)\s*:\s*(\d{1,12})\b", re.ASCII)
# Submit times beyond are epochs (1985): no log spans 15 years. Others are seconds since UnixStartTime.
_EPOCHS_FROM_S: Final = 5e8
# Lines for the parts of a job that was checkpointed; another line covers the whole of it.
_PARTS: Final = ("2", "3", "4")
_UNKNOWN: Final = "-1"
# Contents of Job.extra, and the numbers of their fields.
_FURTHER: Final = (
    ("requested_s", 9),
    ("status", 11),
    ("group", 13),
    ("executable", 14),
    ("queue", 15),
)


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
    return rigid_table(path, _entries(path, processors_per_unit))


def _entries(
    path: str | Path, processors_per_unit: int | None
) -> Iterator[tuple[int, Job | str]]:
    """Yield the number of each line that states a job, and the job or why it is left out."""
    header: dict[str, int] = {}
    with opened(path) as stream:
        _refuse_binary(stream.peek(1), path)
        for line, text in enumerate(lines(stream, str(path)), start=1):
            if text.startswith(";"):
                entry = _HEADER.match(text)
                if entry:
                    header[entry[1]] = int(entry[2])
            elif text.strip():
                units = processors_per_unit or _per_node(header)
                yield line, _job(text.split(), line, str(path), header, units)


def _refuse_binary(block: bytes, path: str | Path) -> None:
    if not block.strip():
        raise InputError("is empty", file=path)
    if b"\0" in block:
        raise InputError("is no text file", file=path)


def _job(
    fields: list[str],
    line: int,
    file: str,
    header: dict[str, int],
    processors_per_unit: int,
) -> Job | str:
    """Return the job of a line, or why it is left out."""
    if len(fields) < len(FIELDS):
        message = (
            f"expected {len(FIELDS)} fields separated by blanks, not {len(fields)}"
        )
        raise InputError(message, file=file, row=line)

    def wrong(field: int, message: str) -> InputError:
        return InputError(
            message,
            file=file,
            row=line,
            column=f"{field} ({FIELDS[field - 1]})",
            job=fields[0],
        )

    def number(field: int) -> float:
        value = read_number(fields[field - 1])
        if not abs(value) < MAX_SECONDS:
            raise wrong(
                field, f"expected a finite number, not {fields[field - 1][:40]!r}"
            )
        return value

    submit_s, seconds, processors = number(2), number(4), number(5)
    if fields[10] in _PARTS:
        return "that are parts of others (status 2 to 4)"
    if seconds in (0, -1):
        return "that never ran"
    if processors <= 0:
        processors = number(8)
    if processors <= 0:
        raise wrong(5, "neither this field nor field 8 says how many processors it has")
    if submit_s < 0 or seconds < 0:
        raise wrong(
            2 if submit_s < 0 else 4,
            f"expected a number >= 0, not {min(submit_s, seconds):g}",
        )
    units = math.ceil(processors / processors_per_unit)
    if units > MAX_UNITS:
        raise wrong(5, f"expected at most {MAX_UNITS:,} units, not {units}")
    begin_s = 0 if submit_s >= _EPOCHS_FROM_S else header.get("UnixStartTime", 0)
    if begin_s + submit_s + seconds >= MAX_SECONDS:
        raise wrong(2, "it would run until after the year 2261")
    extra: dict[str, Any] = {
        name: fields[column - 1]
        for name, column in _FURTHER
        if fields[column - 1] != _UNKNOWN
    }
    if "requested_s" in extra:
        extra["requested_s"] = number(9)
    return rigid_job(
        fields[0],
        begin_s * SECOND_NS + round(submit_s * SECOND_NS),
        units,
        seconds,
        user=_known(fields[11]),
        vc=_known(fields[15]),
        extra=extra,
    )


def _known(value: str) -> str:
    return "" if value == _UNKNOWN else value


def _per_node(header: dict[str, int]) -> int:
    nodes, processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
    return max(1, math.ceil(processors / nodes)) if nodes else 1
