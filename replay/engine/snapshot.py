"""The state of an object for a checkpoint: its dataclass fields, so that a new field cannot be forgotten."""

from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

# Metadata of a field that is not stored, because it follows from others or is passed in again.
NOT_STORED = MappingProxyType({"stored": False})


def snapshot(thing: Any, *, inner: bool = False) -> dict[str, Any]:
    """The fields of a dataclass as JSON values.

    Parameters
    ----------
    thing
        The object. Its fields may hold numbers, texts, containers and arrays of these, dataclasses, and objects
        with a `state()` of their own.
    inner
        Only the fields that its constructor does not take: for a policy, all but its constants.
    """
    state = {}
    for name in _names(thing.__class__, inner=inner):
        state[name] = _plain(getattr(thing, name))
    return state


def restore_snapshot(
    thing: Any, state: Mapping[str, Any], *, inner: bool = False
) -> None:
    """Set the fields of a dataclass to values from `snapshot`.

    Raises
    ------
    KeyError
        When `state` lacks a field.
    """
    hints = _hints(thing.__class__)
    for name in _names(thing.__class__, inner=inner):
        value = restored(hints[name], state[name], getattr(thing, name))
        setattr(thing, name, value)


class StoredState:
    """A base class of dataclasses whose fields beyond the constructor's are their state for a checkpoint."""

    def state(self) -> dict[str, Any]:
        """The fields that the constructor does not take, as JSON values."""
        return snapshot(self, inner=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        restore_snapshot(self, state, inner=True)


@cache
def _names(cls: type, *, inner: bool) -> tuple[str, ...]:
    names = []
    for field in fields(cls):
        passed_in = inner and field.init
        if field.metadata.get("stored", True) and not passed_in:
            names.append(field.name)
    return tuple(names)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _plain(value: Any) -> Any:
    """Return a value as JSON; `restored` recovers it from the field's type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        return {
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "values": value.ravel().tolist(),
        }
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(entry)] for key, entry in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(entry) for entry in value), key=repr)
    if isinstance(value, (list, tuple, deque)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "state"):
        return value.state()
    return snapshot(value)


def restored(hint: Any, value: Any, present: Any = None) -> Any:
    """Return the value of type `hint` of which `snapshot` made JSON; `present` is the present one."""
    if hasattr(present, "restore"):
        present.restore(value)
        return present
    origin = get_origin(hint) or hint
    if hasattr(origin, "__value__"):  # an alias, as NumPy's NDArray is from 2.5 on
        return restored(origin.__value__, value)
    of = get_args(hint)
    if origin in (Union, UnionType):
        if value is None:
            return None
        inner = next(one for one in of if one is not type(None))
        return restored(inner, value)
    if origin is np.ndarray:
        return np.array(value["values"], dtype=value["dtype"]).reshape(value["shape"])
    if origin in (dict, Mapping):
        return {restored(of[0], key): restored(of[1], entry) for key, entry in value}
    if origin is tuple and of[-1] is not Ellipsis:
        return tuple(restored(one, entry) for one, entry in zip(of, value, strict=True))
    if origin in (list, set, tuple, deque):
        return origin(restored(of[0], entry) for entry in value)
    if hasattr(hint, "_make"):
        return hint._make(value)
    if hasattr(hint, "restored"):
        return hint.restored(value)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        values = {name: restored(hints[name], value[name]) for name in value}
        taken = {field.name for field in fields(hint) if field.init}
        made = hint(**{name: values[name] for name in values if name in taken})
        for name in values.keys() - taken:
            setattr(made, name, values[name])
        return made
    return value
