"""GPUs and cores in Kubernetes: what containers ask for, and what nodes can give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bft.replay.logs.diagnosis import Unusable

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_QUANTITY = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?([mk]?)", re.ASCII)


def thousandths(value: object) -> int:
    """Thousandths of a quantity of GPUs or cores, rounded up.

    Raises
    ------
    Unusable
        When it is none.

    Examples
    --------
    >>> thousandths("2"), thousandths("1500m"), thousandths("0.5"), thousandths(4)
    (2000, 1500, 500, 4000)
    """
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        raise Unusable("a quantity of GPUs or cores is no number", ascii(str(value)[:40]))
    whole, fraction, suffix = match.groups()
    nano = int(whole) * 10**9 + int((fraction or "").ljust(9, "0"))
    return -(-nano // {"m": 10**9, "": 10**6, "k": 10**3}[suffix])


def amounts(resources: Mapping[str, Any]) -> tuple[int, int]:
    """Thousandths of GPUs and of cores in requests, limits, allocatable or the like.

    >>> amounts({"cpu": "500m", "nvidia.com/gpu": "2", "memory": "1Gi"})
    (2000, 500)
    """
    return sum(thousandths(resources[key]) for key in GPUS if key in resources), thousandths(resources.get("cpu", 0))


def of_pod(spec: Mapping[str, Any]) -> tuple[int, int]:
    """GPUs and cores of a pod, rounded up: those of its containers together, or of one that runs before them.

    >>> of_pod({"containers": [{"resources": {"requests": {"cpu": "1500m"}, "limits": {"nvidia.com/gpu": 1}}}] * 2})
    (2, 3)
    """

    def asked(containers: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
        stated = (each.get("resources") or {} for each in containers)
        return [amounts({**(of.get("limits") or {}), **(of.get("requests") or {})}) for of in stated]

    # One that runs before the others and restarts always goes on beside them.
    first = spec.get("initContainers") or []
    beside = [each for each in first if each.get("restartPolicy") == "Always"]
    before = [each for each in first if each.get("restartPolicy") != "Always"]
    together = [sum(column) for column in zip((0, 0), *asked([*spec["containers"], *beside]), strict=True)]
    most = [max(column) for column in zip(together, *asked(before), strict=True)]
    return -(-most[0] // 1000), -(-most[1] // 1000)
