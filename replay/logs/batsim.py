"""The jobs of a simulation by Batsim, as evalys reads them: CSV with allocated_resources, numbers of hosts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from bft.models import InputError
from bft.models.cells import read_number
from bft.replay.logs.hostlists import MOST_HOSTS
from bft.replay.logs.reading import (
    MOST_EPOCH_S,
    JobRan,
    LeftOut,
    Reading,
    Record,
    Unusable,
    below_header,
    columns_of,
    each_line,
    in_order,
)
from bft.replay.logs.tables import split_fields
from bft.replay.trace.node_trace import SECOND_NS

# Older releases say jobID and allocated_processors.
_COLUMNS = {
    "job_id": ("job_id", "jobid"),
    "starting_time": ("starting_time",),
    "finish_time": ("finish_time",),
    "allocated_resources": ("allocated_resources", "allocated_processors"),
}
_NONE = frozenset({"", "-1", "nan", "NaN"})
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def read(reading: Reading) -> Iterator[Record]:
    """Read jobs.csv; see `LogFormat` for errors.

    Times are seconds since the begin of the simulation and count from 1970-01-01, which is noted. Hosts are numbers
    (`0-3 7`) and get the names n0, n1, ...
    """
    columns: dict[str, int] = {}
    delimiter = ""
    file = reading.file

    def begin(line: str) -> bool:
        nonlocal columns, delimiter
        delimiter = reading.settings.delimiter or next(
            (mark for mark in ",;\t" if mark in line), ","
        )
        names = [name.strip().lower() for name in split_fields(line, delimiter)]
        columns = columns_of(names, _COLUMNS)
        for column, place in columns.items():
            if place < 0:
                raise InputError(
                    f"is no jobs.csv of Batsim: it has no column {column}, but {', '.join(names)[:200]}",
                    file=file,
                )
        return True

    def record(text: str, line: int) -> Iterator[Record]:
        row = split_fields(text, delimiter)
        if len(row) <= max(columns.values()):
            raise Unusable("has fewer fields than columns", str(len(row)))
        job, start, end, resources = (row[columns[name]].strip() for name in _COLUMNS)
        if start in _NONE or not resources:
            raise LeftOut("job that never started")
        start_ns = _time(start, "starting_time")
        end_ns = None if end in _NONE else _time(end, "finish_time")
        in_order(start_ns, end_ns)
        reading.note(
            "times are seconds of a simulation and count from 1970-01-01", line
        )
        nodes = reading.nodes(_hosts(resources))
        yield JobRan(line, ("batsim", job), nodes, start_ns, end_ns)

    yield from each_line(below_header(reading, begin), record)
    if not columns:
        raise InputError(
            "holds no jobs of Batsim: expected a header with job_id and allocated_resources",
            file=file,
        )


def _time(text: str, column: str) -> int:
    value = read_number(text)
    if math.isnan(value) or not 0 <= value < MOST_EPOCH_S:
        raise Unusable(f"{column} is no time in seconds", ascii(text[:40]))
    whole = math.floor(value)
    return whole * SECOND_NS + round((value - whole) * 1_000_000) * 1000


def _hosts(text: str) -> tuple[str, ...]:
    """Names of the hosts of an interval set such as `0-3 7`."""
    ranges = []
    for part in re.split(r"[\s,]+", text.strip()):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise Unusable(
                "allocated_resources holds no set of numbers such as 0-3 7",
                ascii(text[:80]),
            )
        ranges.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    if sum(map(len, ranges)) > MOST_HOSTS:
        raise Unusable(
            f"allocated_resources has more than {MOST_HOSTS:,} hosts", ascii(text[:80])
        )
    return tuple(
        dict.fromkeys(f"n{number}" for numbers in ranges for number in numbers)
    )
