"""Simulation of time: the event loop, the interface of policies, and the ledger."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

# Former modules, and those that now hold their names. Plugins may import the former ones for one more release.
_MOVED = {
    "admission": "deadlines",
    "asking": "policy_api",
    "columns": "history",
    "course": "history",
    "free_units": "units",
    "holdings": "units",
    "in_play": "running",
    "intervals": "history",
    "memory": "snapshot",
    "motion": "progress",
    "moves": "reallocation",
    "network": "progress",
    "partners": "progress",
    "places": "units",
    "policy_timeout": "policy_api",
    "port": "policy_api",
    "reserve": "units",
    "rooms": "units",
    "sharing_rules": "rules",
    "steering": "workload_driver",
    "sums": "running",
}
_RENAMED = {
    "Course": "ProgressCurve",
    "FreeUnits": "FreeList",
    "NOT_KEPT": "NOT_STORED",
    "Places": "Placement",
    "Rooms": "NodeFreeList",
    "Steering": "WorkloadDriver",
    "asking": "PolicyCall",
    "kept": "snapshot",
    "remember": "restore_snapshot",
}


class _MovedModule(ModuleType):
    """Stand in for a former module: each name taken from it comes from its new home, with a warning."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = f"{__name__}.{_MOVED[self.__name__.rpartition('.')[2]]}"
        new_name = _RENAMED.get(name, name)
        value = getattr(import_module(home), new_name)
        text = f"{self.__name__}.{name} is now {home}.{new_name}; the old path goes with the next release"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return value


for _former in _MOVED:
    sys.modules[f"{__name__}.{_former}"] = globals()[_former] = _MovedModule(
        f"{__name__}.{_former}"
    )
