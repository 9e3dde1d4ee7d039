"""From a scheduler's own logs to a node trace: one reader per format, and what they share.

A reader is a function of one `Reading`, named by a `LogFormat`. It turns lines into intervals during which nodes were
busy or unavailable, hands them to a `Collector`, and accounts for every line in a `Diagnosis`.
"""

from __future__ import annotations

from bft.replay.logs.collector import Collector
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
from bft.replay.logs.log_files import open_log
from bft.replay.logs.reading import Reading, Settings
from bft.replay.logs.records import (
    Foreign,
    LeftOut,
    Unusable,
    each_record,
    host_names,
    in_order,
)
from bft.replay.logs.times import Clock
from bft.replay.logs.to_trace import Coverage, node_trace
from bft.replay.logs.walltimes import Plan

__all__ = [
    "Clock",
    "Collector",
    "Coverage",
    "Diagnosis",
    "Foreign",
    "HostListError",
    "LeftOut",
    "LogFormat",
    "Plan",
    "Reading",
    "Settings",
    "Unusable",
    "detect",
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
