"""From a scheduler's own logs to a node trace: one reader a format, and what they share.

A reader is a module with one function `read` (`Reader` gives its signature). It turns lines into intervals during
which nodes were busy or unavailable, hands them to a `Collector`, and accounts for every line in a `Diagnosis`.
"""

from __future__ import annotations

from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.formats import FORMATS, Reader, Settings, detect, reader
from bft.replay.logs.opening import open_log
from bft.replay.logs.times import Clock
from bft.replay.logs.to_trace import Coverage, node_trace

__all__ = [
    "FORMATS",
    "Clock",
    "Collector",
    "Coverage",
    "Diagnosis",
    "Reader",
    "Settings",
    "detect",
    "node_trace",
    "open_log",
    "reader",
]
