"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2: counts of processors, no names of nodes.

Feitelson, Tsafrir, Krakov: Experience with using the Parallel Workloads Archive, JPDC 74 (2014); 18 fields a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.formats import Settings
from bft.replay.logs.records import Foreign, LeftOut, Unusable, each_record
from bft.replay.logs.times import MOST_EPOCH_S, Clock
from bft.replay.trace import SECOND_NS

_HEADER = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*\S)")
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
_FIELDS = 18
_MOST_PROCESSORS = 10**9
# Submit times beyond are epochs (1985): no log spans 15 years. Others are seconds since UnixStartTime.
_EPOCHS_FROM_S = 5e8


def read(
    lines: Iterable[str], file: str, settings: Settings, into: Collector, diagnosis: Diagnosis, clock: Clock
) -> None:
    """Read a workload; see `Reader` for parameters and errors.

    Jobs are counted, not placed: nodes = ceil(processors / processors per node). These are given, or follow from
    MaxProcs and MaxNodes of the header, or are 1.
    """
    header: dict[str, int] = {}

    def told() -> Iterable[str]:
        for line in lines:
            if line.startswith(";"):
                found = _HEADER.match(line)
                number = _NUMBER.match(found[2]) if found else None
                if found and number:
                    header[found[1]] = int(number[0])
                elif found and found[1] == "Computer":
                    into.machine = into.machine or found[2][:200].encode("ascii", "replace").decode()
            yield line

    def record(text: str, line: int) -> None:
        row = text.split()
        if len(row) < _FIELDS:
            raise Foreign(f"has not {_FIELDS} fields separated by blanks", f"{len(row)} fields")
        if row[10] in ("2", "3", "4"):
            raise LeftOut("a part of a job (status 2 to 4), which the line of the whole job covers")
        submit_s, wait_s, run_s = (_number(row, index) for index in (1, 2, 3))
        processors = _number(row, 4)
        if processors <= 0:
            processors = _number(row, 7)
        if run_s == -1 or wait_s == -1:
            what = "wait" if wait_s == -1 else "run"
            if row[10] == "5":
                raise LeftOut("a cancelled job (status 5) without a wait or run time")
            raise Unusable(
                f"the {what} time, field {3 if what == 'wait' else 4}, is not known (-1)", f"job {row[0][:40]}"
            )
        if not 0 < processors <= _MOST_PROCESSORS:
            raise Unusable("neither field 5 nor 8 says how many processors", f"{row[4][:40]}, {row[7][:40]}")
        if min(submit_s, wait_s, run_s) < 0:
            raise Unusable("a time is negative", f"fields 2 to 4: {' '.join(row[1:4])[:60]}")
        start_s = submit_s + wait_s + (0 if submit_s >= _EPOCHS_FROM_S else header.get("UnixStartTime", 0))
        if start_s + run_s >= MOST_EPOCH_S:
            raise Unusable("ends later than the year 2262", f"fields 2 to 4: {' '.join(row[1:4])[:60]}")
        if submit_s < _EPOCHS_FROM_S and "UnixStartTime" not in header:
            diagnosis.note("no UnixStartTime in the header: times count from 1970-01-01", file, line)
        nodes = math.ceil(processors / _per_node(header, settings))
        into.count(nodes, _ns(start_s), _ns(start_s + run_s))

    each_record(told(), file, diagnosis, record, comment=";")
    nodes = _machine_nodes(header, settings)
    if nodes:
        into.machine_nodes = max(nodes, into.machine_nodes or 0)


def _per_node(header: dict[str, int], settings: Settings) -> int:
    if settings.processors_per_node is not None:
        return settings.processors_per_node
    nodes, processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
    return max(1, math.ceil(processors / nodes)) if nodes else 1


def _machine_nodes(header: dict[str, int], settings: Settings) -> int:
    if "MaxNodes" in header and settings.processors_per_node is None:
        return header["MaxNodes"]
    return math.ceil(header.get("MaxProcs", 0) / _per_node(header, settings)) or header.get("MaxNodes", 0)


def _number(row: list[str], index: int) -> float:
    """A field; whole seconds stay exact: doubles hold them to 2^53."""
    try:
        value = float(row[index])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Unusable(f"field {index + 1} is no number", ascii(row[index][:40]))
    return value


def _ns(seconds: float) -> int:
    whole = math.floor(seconds)
    return whole * SECOND_NS + round((seconds - whole) * 1000) * (SECOND_NS // 1000)
