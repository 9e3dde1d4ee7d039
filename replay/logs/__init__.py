"""From a scheduler's own logs to a node trace: one reader per format, and what they share.

A reader is a function of one `Reading`, named by a `LogFormat`. It yields a record for each row: a job ran, a node was
down, a row was skipped and why. `collect` turns the records of all files into intervals and accounts for every line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.replay.logs.collector import Collector, Plan
    from bft.replay.logs.diagnosis import Diagnosis
    from bft.replay.logs.formats import (
        LogFormat,
        detect,
        format_names,
        log_format,
        read_log,
    )
    from bft.replay.logs.hostlists import HostListError
    from bft.replay.logs.hostlists import expand as expand_hosts
    from bft.replay.logs.intake import collect, each_record
    from bft.replay.logs.log_files import open_log
    from bft.replay.logs.reading import (
        Foreign,
        Ignored,
        JobPlanned,
        JobRan,
        LeftOut,
        NodesIdle,
        Outage,
        Reading,
        Record,
        Settings,
        Skipped,
        Unusable,
        each_line,
        host_names,
        in_order,
    )
    from bft.replay.logs.times import Clock
    from bft.replay.logs.to_trace import Coverage, node_trace
else:
    __getattr__, __dir__, _ = public_names(__name__)

__all__ = [
    "Clock",
    "Collector",
    "Coverage",
    "Diagnosis",
    "Foreign",
    "HostListError",
    "Ignored",
    "JobPlanned",
    "JobRan",
    "LeftOut",
    "LogFormat",
    "NodesIdle",
    "Outage",
    "Plan",
    "Reading",
    "Record",
    "Settings",
    "Skipped",
    "Unusable",
    "collect",
    "detect",
    "each_line",
    "each_record",
    "expand_hosts",
    "format_names",
    "host_names",
    "in_order",
    "log_format",
    "node_trace",
    "open_log",
    "read_log",
]
