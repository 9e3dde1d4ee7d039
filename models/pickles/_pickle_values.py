"""From the recorded tree of a pickle to NumPy arrays and the contents of cells."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.pickles._unpickler import MalformedError, Record

Array: TypeAlias = NDArray[Any]

# No void (structured), complex or long double types, and no strings of no length.
_DTYPE: Final = re.compile(r"b1|[iu][1248]|f[248]|O8|[Mm]8|[US][1-9][0-9]{0,5}")
_TIME_UNITS: Final = frozenset({"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"})
# Codes of NPY_DATETIMEUNIT in pickled Timestamps; before pandas 2 there were nanoseconds only.
_RESOLUTION: Final = {7: "s", 8: "ms", 9: "us", 10: "ns"}
MAX_LENGTH: Final = (
    1 << 28
)  # of an array or index in one dimension; an empty one may claim any
_MAX_DEPTH: Final = 50
_MAX_EXPANDED: Final = (
    10_000_000  # items of one cell, shared ones counted wherever they appear
)


def made(node: object, *makers: str) -> Record:
    """Check that a node was made by one of `makers`, and give it with that maker's label.

    Protocols 0 and 1 write objects as `copyreg._reconstructor(class, object, None)`, Cython classes
    as an unpickling function of the class; either way the class is the first argument.
    """
    if isinstance(node, Record) and node.maker in (
        "reconstructor",
        "unpickle_backed",
        "reconstruct",
    ):
        if not node.args or not isinstance(node.args[0], type):
            raise MalformedError("an object in it is made of no class")
        plain = node.args[0]()
        plain.state, plain.has_state = node.state, node.has_state
        node = plain
    if not isinstance(node, Record) or (makers and node.maker not in makers):
        raise MalformedError(
            f"it holds {described(node)} where {' or '.join(makers)} is expected"
        )
    return node


def described(node: object) -> str:
    """Name a node in an error, as "a list" or "a Timestamp"."""
    message = (
        node.maker
        if isinstance(node, Record)
        else node.__name__
        if isinstance(node, type)
        else type(node).__name__
    )
    return f"{'an' if message[:1].lower() in 'aeio' else 'a'} {message}"


def integer(node: object, *, low: int = 0, high: int = MAX_LENGTH) -> int:
    """Check that a node is a whole number (no bool) from `low` to `high`."""
    if type(node) is not int or not low <= node <= high:
        raise MalformedError(
            f"a number in it is {node if type(node) is int else described(node)}, not {low} to {high}"
        )
    return node


def sequence(node: object, *lengths: int) -> Sequence[object]:
    """Check that a node is a list or tuple, of one of `lengths` if any is given."""
    if not isinstance(node, list | tuple) or (lengths and len(node) not in lengths):
        raise MalformedError(
            f"it holds {described(node)} where {' or '.join(map(str, lengths)) or 'some'} items are expected"
        )
    return node


def mapping(node: object) -> dict[object, object]:
    """Check that a node is a dict."""
    if not isinstance(node, dict):
        raise MalformedError(f"it holds {described(node)} where a dict is expected")
    return node


def binary(node: object) -> bytes | bytearray:
    """Give the bytes of a node; protocols 0 to 2 write them as Latin-1 text to be encoded."""
    if isinstance(node, bytes | bytearray):
        return node
    if isinstance(node, Record) and not node.has_state:
        if node.maker == "bytes" and node.args == ():
            return b""
        # codecs.encode(text, "latin1"), and bytearray(text, "latin-1") or bytearray(bytes)
        if node.maker in ("encode", "bytearray") and len(node.args) == 2:
            text, coding = node.args
            if isinstance(text, str) and coding in ("latin1", "latin-1"):
                return text.encode("latin-1")
        if (
            node.maker == "bytearray"
            and len(node.args) == 1
            and not (
                isinstance(node.args[0], Record) and node.args[0].maker == "bytearray"
            )
        ):
            return binary(node.args[0])
        if node.maker == "bytearray" and node.args == ():
            return b""
    raise MalformedError(f"it holds {described(node)} where bytes are expected")


def dtype(node: object) -> np.dtype[Any]:
    """Make a NumPy dtype of a pickled one: kind and size, byte order, and the unit of times."""
    node = made(node, "dtype")
    code = node.args[0] if node.args else None
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        raise MalformedError(
            f"an array in it has the type {code if isinstance(code, str) else described(code)}"
        )
    state = sequence(node.state, 8, 9)
    order = state[1]
    if order not in ("<", ">", "|") or any(part is not None for part in state[2:5]):
        raise MalformedError("an array in it has a structured type")
    if code == "O8":
        return np.dtype(object)
    unit = ""
    if code in ("M8", "m8"):
        parts = sequence(sequence(state[-1], 2)[1], 4)
        unit = binary(parts[0]).decode("ascii", "replace")
        if unit not in _TIME_UNITS or parts[1:] != (1, 1, 1):
            raise MalformedError("an array in it has times of an unknown unit")
        unit = f"[{unit}]"
    return np.dtype(f"{order}{code}{unit}")


def raw_array(
    data: bytes | bytearray,
    kind: np.dtype[Any],
    shape: Sequence[object],
    *,
    fortran: bool,
) -> Array:
    """Make an array of raw bytes.

    Returns
    -------
    Array
        Of `shape`, in native byte order; a read-only view when the data is large (over 1 MiB comes
        as a bytearray), a copy that may be written to otherwise.
    """
    if len(shape) > 32:
        raise MalformedError(f"an array in it has {len(shape)} dimensions")
    lengths = tuple(integer(length) for length in shape)
    if kind.hasobject or math.prod(lengths) * kind.itemsize != len(data):
        raise MalformedError(
            f"an array of {' x '.join(map(str, lengths))} values of type {kind} has {len(data)} bytes"
        )
    if not data:
        return np.empty(lengths, kind.newbyteorder("="))
    flat = np.frombuffer(data, kind)
    if kind.kind == "b" and int(flat.view(np.uint8).max()) > 1:
        raise MalformedError("a bool in it is neither true nor false")
    if kind.kind == "U" and int(flat.view(flat.dtype.str[0] + "u4").max()) > 0x10FFFF:
        raise MalformedError("a string in it has characters that do not exist")
    array = flat.reshape(lengths, order="F" if fortran else "C")
    if not kind.isnative:
        return array.astype(kind.newbyteorder("="))
    if isinstance(data, bytes):
        return array.copy(order="K")
    array.flags.writeable = False
    return array


def utc(node: object) -> dt.timezone | None:
    """Give UTC for a pickled time zone that is UTC, None for None."""
    if node is None:
        return None
    zone = made(node)
    if zone.maker == "utc" and not zone.args:
        return dt.UTC
    if (
        zone.maker == "timezone"
        and len(zone.args) == 1
        and _duration(made(zone.args[0], "timedelta")) == dt.timedelta()
    ):
        return dt.UTC
    raise MalformedError("a time in it has a time zone other than UTC")


def _duration(node: Record) -> dt.timedelta:
    days, seconds, microseconds = (
        integer(part, low=-(10**9), high=10**9) for part in sequence(node.args, 3)
    )
    return dt.timedelta(days, seconds, microseconds)


def _date(node: Record) -> dt.date:
    # Four bytes: year (2, big-endian), month, day.
    data = binary(sequence(node.args, 1)[0])
    if len(data) != 4:
        raise MalformedError("a date in it is damaged")
    return dt.date(int.from_bytes(data[:2]), data[2], data[3])


def _datetime(node: Record) -> dt.datetime:
    # Ten bytes: year (2), month (its top bit is `fold`), day, hour, minute, second, microsecond (3).
    args = sequence(node.args, 1, 2)
    data = binary(args[0])
    if len(data) != 10:
        raise MalformedError("a time in it is damaged")
    zone = utc(args[1]) if len(args) == 2 else None
    year, microsecond = int.from_bytes(data[:2]), int.from_bytes(data[7:])
    month, day, hour, minute, second = (
        data[2] & 0x7F,
        data[3],
        data[4],
        data[5],
        data[6],
    )
    return dt.datetime(
        year, month, day, hour, minute, second, microsecond, zone, fold=data[2] >> 7
    )


def _since(value: object, unit: object) -> tuple[int, Any]:
    """Check a count of nanoseconds or of a coarser unit, and name the unit."""
    name = _RESOLUTION.get(integer(unit))
    if name is None:
        raise MalformedError("a time in it has an unknown resolution")
    return integer(value, low=-(1 << 63) + 1, high=(1 << 63) - 1), name


def _timestamp(node: Record) -> Any:
    # value, freq (gone since pandas 2), tz, resolution (new in pandas 1.5)
    value, _, zone, unit = (*sequence(node.args, 3, 4), 10)[:4]
    stamp = pd.Timestamp(np.datetime64(*_since(value, unit)))
    return stamp if utc(zone) is None else stamp.tz_localize("UTC")


def _timedelta(node: Record) -> Any:
    value, unit = (*sequence(node.args, 1, 2), 10)[:2]
    return pd.Timedelta(np.timedelta64(*_since(value, unit)))


def _scalar(node: Record) -> Any:
    args = sequence(node.args, 2)
    return raw_array(bytes(binary(args[1])), dtype(args[0]), (1,), fortran=False)[0]


def label(value: Any) -> Any:
    """Check that the name of a row or column is one value, hence hashed in no time."""
    if isinstance(value, list | tuple | dict | bytearray | np.ndarray):
        raise MalformedError(f"a label in it is {described(value)}")
    return value


class Values:
    """Decodes cells and arrays; shared parts once, so that they stay shared and take no more time.

    Containers may nest 50 deep, not contain themselves, and not unfold to more than ten million
    items in one cell: what comes out can be printed, compared and copied.
    """

    def __init__(self) -> None:
        # Recorded nodes outlive this object (the caller holds the root), so their ids stay theirs.
        self._done: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()
        self._scalars: dict[str, Callable[[Record], Any]] = {
            "scalar": _scalar,
            "Timestamp": _timestamp,
            "Timedelta": _timedelta,
            "NaT": lambda _: pd.NaT,
            "datetime": _datetime,
            "date": _date,
            "timedelta": _duration,
            "timezone": utc,
            "utc": utc,
            "encode": lambda node: bytes(binary(node)),
            "bytes": lambda node: bytes(binary(node)),
            "bytearray": lambda node: bytearray(binary(node)),
        }

    def cell(self, node: object) -> Any:
        """Decode what a cell, an attribute or an index name holds."""
        return self._sized(node)[0]

    def array(self, node: object) -> Array:
        """Decode an array; of objects too."""
        array = self._shared(node, self._array)[0]
        if not isinstance(array, np.ndarray):
            raise MalformedError(
                f"it holds {described(node)} where an array is expected"
            )
        return array

    def _sized(self, node: object) -> tuple[Any, int]:
        """Decode a node, and count the items that the node unfolds to."""
        if node is None or isinstance(node, str | int | float | bytes):
            return node, 1
        if isinstance(node, bytearray):
            return bytes(node), 1
        value, size = self._shared(node, self._container)
        if size > _MAX_EXPANDED:
            raise MalformedError(
                f"a cell in it unfolds to more than {_MAX_EXPANDED:,} items"
            )
        return value, size

    def _shared(
        self, node: object, decode: Callable[[object], tuple[Any, int]]
    ) -> tuple[Any, int]:
        key = id(node)
        if key in self._done:
            return self._done[key]
        if key in self._open:
            raise MalformedError("an object in it contains itself")
        if len(self._open) >= _MAX_DEPTH:
            raise MalformedError(
                f"objects in it are nested more than {_MAX_DEPTH} deep"
            )
        self._open.add(key)
        result = decode(node)
        self._open.remove(key)
        self._done[key] = result
        return result

    def _container(self, node: object) -> tuple[Any, int]:
        if isinstance(node, list | tuple):
            parts = [self._sized(part) for part in node]
            items = [value for value, _ in parts]
            return (items if isinstance(node, list) else tuple(items)), 1 + sum(
                size for _, size in parts
            )
        if isinstance(node, dict):
            entries = {key: self._sized(value) for key, value in node.items()}
            return {key: value for key, (value, _) in entries.items()}, 1 + sum(
                n for _, n in entries.values()
            )
        if isinstance(node, type) and node.__name__ == "NA":
            return pd.NA, 1
        if isinstance(node, Record):
            if node.maker in ("reconstruct", "frombuffer"):
                return self._array(node)
            if node.maker in self._scalars and not node.has_state:
                return self._scalars[node.maker](node), 1
        raise MalformedError(f"a cell or label in it holds {described(node)}")

    def _array(self, node: object) -> tuple[Array, int]:
        if isinstance(node, Record) and node.maker == "frombuffer":  # protocol 5
            data, kind, shape, order = sequence(node.args, 4)
            if order not in ("C", "F"):
                raise MalformedError("an array in it has no order")
            array = raw_array(
                binary(data), dtype(kind), sequence(shape), fortran=order == "F"
            )
            return array, 1 + array.size
        version, shape, kind, fortran, data = sequence(made(node, "ndarray").state, 5)
        if version != 1:
            raise MalformedError("an array in it is of an unknown version")
        element = dtype(kind)
        if not element.hasobject:
            array = raw_array(
                binary(data), element, sequence(shape), fortran=bool(fortran)
            )
            return array, 1 + array.size
        lengths = tuple(integer(length) for length in sequence(shape))
        if (
            not isinstance(data, list)
            or len(lengths) > 32
            or math.prod(lengths) != len(data)
        ):
            raise MalformedError(
                f"an array of {' x '.join(map(str, lengths))} objects does not have as many"
            )
        flat = np.empty(len(data), object)
        size = 1
        for i, item in enumerate(data):
            flat[i], expanded = self._sized(item)
            size += expanded
        # Objects are listed in C order also when the array was in Fortran order.
        return flat.reshape(lengths), size
