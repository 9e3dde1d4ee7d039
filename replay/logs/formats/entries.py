"""What an object of JSON, or a record of pairs of a key and a value, states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bft.replay.logs.times import is_missing

# Why records are not used of logs that are written as things happen.
OTHER_RECORDS = "other records: they say nothing of when nodes are taken or given back"
NOT_BEGUN = ": what it ends did not begin in these logs"
# Slurm has these for a number that is not known, and for an infinite one, of 32 and of 64 bits.
_UNSET = frozenset({2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1, "Infinity"})


def stated(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first of some fields that states something, as text; empty when none does.

    Dots in a name lead into objects within the object. A list is its items with commas between, and a time to a
    microsecond, as binary fractions have no more of a time of today. null, 0 and unset numbers of Slurm state nothing.

    >>> job = {"time": {"start": {"set": True, "number": 5}, "end": 0}, "nodes": ["n1", "n2"]}
    >>> stated(job, "time.end", "time.start"), stated(job, "nodes"), stated(job, "user")
    ('5', 'n1,n2', '')
    """
    for name in names:
        value: Any = entry
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):  # {"set": true, "infinite": false, "number": 5}
            is_set = value.get("set", True) and not value.get("infinite")
            value = value.get("number") if is_set else None
        if isinstance(value, list):
            value = ",".join(map(str, value))
        elif isinstance(value, float):
            value = f"{value:.6f}" if value else None
        text = "" if value is None or value in _UNSET else str(value)
        if not is_missing(text):
            return text
    return ""
