"""From a scheduler's own logs to a node trace: one reader per format, and the rules that hold for all.

A reader is a function of one `Log`, named by a `LogFormat`. It yields what rows state, as `Block`s of columns or as
dictionaries. All rows become one table of numbers (`records`), which passes through short functions: `runs` finds which
records state the same run, `machine` which nodes there are, `trace` what is left idle, `doubts` what is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.replay.logs.formats import (
        LogFormat,
        detect,
        format_names,
        log_format,
    )
    from bft.replay.logs.hosts import HostListError
    from bft.replay.logs.hosts import expand as expand_hosts
    from bft.replay.logs.ingest import Ingested, IngestOptions, ingested
    from bft.replay.logs.records import (
        Account,
        Block,
        Foreign,
        LeftOut,
        Log,
        Row,
        Settings,
        Unusable,
        Why,
        each_line,
        each_object,
    )
    from bft.replay.logs.times import NONE, Clock
    from bft.replay.logs.trace import Coverage
else:
    __getattr__, __dir__, _ = public_names(__name__)

__all__ = [
    "NONE",
    "Account",
    "Block",
    "Clock",
    "Coverage",
    "Foreign",
    "HostListError",
    "IngestOptions",
    "Ingested",
    "LeftOut",
    "Log",
    "LogFormat",
    "Row",
    "Settings",
    "Unusable",
    "Why",
    "detect",
    "each_line",
    "each_object",
    "expand_hosts",
    "format_names",
    "ingested",
    "log_format",
]
