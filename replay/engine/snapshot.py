"""The state of an object for a checkpoint: its dataclass fields, so that a new field cannot be forgotten."""

from __future__ import annotations

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
        value = _restored(hints[name], state[name], getattr(thing, name))
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
    """Return a value as JSON; `_restored` recovers it from the field's type."""
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


def _restored(hint: Any, value: Any, present: Any = None) -> Any:
    """The value of type `hint` from which `_plain` made `value`; `present` is the present one."""
    if hasattr(present, "restore"):
        present.restore(value)
        return present
    kind = get_origin(hint) or hint
    if hasattr(kind, "__value__"):  # an alias, as NumPy's NDArray is from 2.5 on
        return _restored(kind.__value__, value)
    of = get_args(hint)
    if kind in (Union, UnionType):
        if value is None:
            return None
        inner = next(one for one in of if one is not type(None))
        return _restored(inner, value)
    if kind is np.ndarray:
        return np.array(value["values"], dtype=value["dtype"]).reshape(value["shape"])
    if kind is dict:
        return {_restored(of[0], key): _restored(of[1], entry) for key, entry in value}
    if kind is tuple and of[-1] is not Ellipsis:
        return tuple(
            _restored(one, entry) for one, entry in zip(of, value, strict=True)
        )
    if kind in (list, set, tuple, deque):
        return kind(_restored(of[0], entry) for entry in value)
    if hasattr(hint, "restored"):
        return hint.restored(value)
    if is_dataclass(hint) and isinstance(hint, type):
        made = hint()
        restore_snapshot(made, value)
        return made
    return value


def difference(before: Any, after: Any) -> list[Any] | None:
    """Return the change that turns one JSON value into another, as JSON; None where they are the same to the byte.

    Examples
    --------
    >>> change = difference({"a": 1, "b": [5, 6, 7]}, {"a": 1, "b": [5, 6, 8]})
    >>> change
    ['in', {'b': ['at', 3, {'2': ['is', 8]}]}]
    >>> patched({"a": 1, "b": [5, 6, 7]}, change)
    {'a': 1, 'b': [5, 6, 8]}
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return _difference_of_objects(before, after)
    if isinstance(before, list) and isinstance(after, list):
        return _difference_of_lists(before, after)
    if type(before) is type(after) and repr(before) == repr(
        after
    ):  # 1 is not 1.0, nor 0.0 -0.0
        return None
    return ["is", after]


def _difference_of_objects(
    before: dict[str, Any], after: dict[str, Any]
) -> list[Any] | None:
    """Return the change of a JSON object: of each key, and which keys are gone."""
    old = [key for key in before if key in after]
    new = [key for key in after if key not in before]
    if [*old, *new] != list(after):  # their order has changed, too
        return ["is", after]
    changes = {}
    for key in old:
        change = difference(before[key], after[key])
        if change is not None:
            changes[key] = change
    for key in new:
        changes[key] = ["is", after[key]]
    gone = [key for key in before if key not in after]
    if gone:
        return ["in", changes, gone]
    return ["in", changes] if changes else None


def _difference_of_lists(before: list[Any], after: list[Any]) -> list[Any] | None:
    """Return the change of a JSON list: by position where few have changed, else as a whole."""
    changes = {}
    for position, value in enumerate(after):
        change: list[Any] | None = ["is", value]
        if position < len(before):
            change = difference(before[position], value)
        if change is not None:
            changes[str(position)] = change
    if not changes and len(before) == len(after):
        return None
    if 2 * len(changes) < len(after):
        return ["at", len(after), changes]
    return ["is", after]


def patched(before: Any, change: list[Any]) -> Any:
    """Apply a change from `difference` to a value, which it may change in place, and return the result."""
    kind = change[0]
    if kind == "is":
        return change[1]
    if kind == "in":
        changes = change[1]
        gone = change[2] if len(change) > 2 else ()
        for key in gone:
            del before[key]
        for key, inner in changes.items():
            before[key] = patched(before.get(key), inner)
        return before
    _, length, changes = change
    del before[length:]
    for key, inner in changes.items():
        position = int(key)
        if position < len(before):
            before[position] = patched(before[position], inner)
        else:
            before.append(patched(None, inner))
    return before
