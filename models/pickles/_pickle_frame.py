"""From the recorded tree of a pickled DataFrame to a DataFrame made by public constructors.

How pandas pickles a frame: a state dict with a block manager, whose axes are the two indexes and
whose blocks hold columns of one type as the rows of an array, with their positions in the frame.
pandas up to 1.2 keeps axes and blocks in a dict under "0.14.1", later ones in the arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import pandas as pd

from bft.models.pickles._pickle_values import (
    MAX_LENGTH,
    Array,
    Values,
    binary,
    described,
    integer,
    label,
    made,
    mapping,
    sequence,
    utc,
)
from bft.models.pickles._unpickler import MalformedError, Record

# A block or an index is made from an array, or from one of pandas' typed one-dimensional arrays.
Column: TypeAlias = Any

_BACKED: Final = ("DatetimeArray", "TimedeltaArray", "StringArray", "Categorical")
_MASKED: Final = ("IntegerArray", "FloatingArray", "BooleanArray")
_INDEXES: Final = frozenset(
    {"Index", "RangeIndex", "DatetimeIndex", "TimedeltaIndex", "CategoricalIndex"}
)
_FAR: Final = 1 << 62
_MAX_COLUMNS: Final = 1 << 22  # an empty block may claim any number
# Older ones have no type for strings with NaN for what is missing, or a provisional one: objects then.
_NAN_STRINGS: Final = tuple(int(part) for part in pd.__version__.split(".")[:2]) >= (
    3,
    0,
)


def decode(root: object) -> pd.DataFrame:
    """Make the DataFrame of a recorded pickle.

    Raises
    ------
    MalformedError
        If it is none, or of parts that do not fit together.
    """
    root = made(root) if isinstance(root, Record) else root
    if not isinstance(root, Record) or root.maker != "DataFrame":
        raise MalformedError(f"it holds {described(root)}, not a pandas DataFrame")
    return _Frames().frame(mapping(root.state))


class _Frames:
    """Decodes indexes, columns and blocks."""

    def __init__(self) -> None:
        self.values = Values()

    def frame(self, state: dict[object, object]) -> pd.DataFrame:
        """Make a frame of a DataFrame's state; `_data` is what pandas 1.0 called `_mgr`."""
        axes, pairs = _manager(
            made(state.get("_mgr", state.get("_data")), "BlockManager")
        )
        columns, index = (self.index(axis) for axis in sequence(axes, 2))
        if len(columns) > _MAX_COLUMNS:
            raise MalformedError(
                f"it has {len(columns):,} columns, more than {_MAX_COLUMNS:,}"
            )
        blocks = [
            (_placement(where, len(columns)), self.block(values))
            for values, where in pairs
        ]
        if sorted(itertools.chain.from_iterable(where for where, _ in blocks)) != list(
            range(len(columns))
        ):
            raise MalformedError(
                f"its blocks do not make up its {len(columns)} columns"
            )
        frame = _joined(blocks, len(index))
        frame.index, frame.columns = index, columns
        attrs = state.get("attrs")
        frame.attrs = {} if attrs is None else self.values.cell(mapping(attrs))
        return frame

    def block(self, node: object) -> list[Column] | Array:
        """Decode a block: an array of shape (columns, rows), or a list of columns."""
        column = self.column(node)
        if isinstance(column, np.ndarray) and column.ndim == 2:
            return column
        return column if isinstance(column, list) else [column]

    def column(self, node: object) -> Column:
        """Decode the values of a block or an index; UTC times of a block as a list of columns."""
        if isinstance(node, Record) and node.maker == "frombuffer":
            return self.values.array(node)
        kind = made(node).maker
        if kind == "ndarray":
            return self.values.array(node)
        if kind in _BACKED:
            dtype, array = self._backed(made(node))
            if kind == "DatetimeArray":
                return _times(dtype, array)
            if kind == "StringArray":
                return _strings(dtype, array.tolist())
            if kind == "Categorical":
                return self._categorical(dtype, array)
            return _expect(array, "m")
        if kind == "ArrowStringArray":
            state = mapping(made(node).state)
            dtype = state.get("_dtype")
            return _strings(
                dtype, _arrow_strings(state.get("_pa_array", state.get("_data")))
            )
        if kind in _MASKED:
            state = mapping(made(node).state)
            data, mask = (
                self.values.array(state.get("_data")),
                self.values.array(state.get("_mask")),
            )
            return getattr(pd.arrays, kind)(data.copy(), mask.copy())
        raise MalformedError(f"it holds {described(node)} where a column is expected")

    def _backed(self, node: Record) -> tuple[object, Array]:
        """Find the type and the array in the state of a typed array, which changed with the versions."""
        state = node.state
        if isinstance(state, dict):  # up to pandas 1.2
            for key in ("_ndarray", "_data", "_codes"):
                if key in state:
                    return state.get("_dtype"), self.values.array(state[key])
            raise MalformedError(f"{described(node)} in it is without values")
        parts = sequence(state, 2, 3)
        swap = isinstance(parts[0], Record) and parts[0].maker in (
            "reconstruct",
            "frombuffer",
        )
        return parts[1 if swap else 0], self.values.array(parts[0 if swap else 1])

    def _categorical(self, dtype: object, codes: Array) -> Column:
        state = mapping(made(dtype, "CategoricalDtype").state)
        ordered = state.get("ordered")
        if codes.ndim != 1 or codes.dtype.kind != "i":
            raise MalformedError(
                "the codes of a Categorical in it are not whole numbers"
            )
        return pd.Categorical.from_codes(
            cast("Any", codes),
            categories=self.index(state.get("categories")),
            ordered=ordered is True,
        )

    def index(self, node: object) -> Any:
        """Decode an index; a DatetimeIndex comes without its frequency, which is only a hint."""
        node = made(node, "new_Index", "new_DatetimeIndex", "new_TimedeltaIndex")
        kind, given = sequence(node.args, 2)
        if not isinstance(kind, type) or kind.__name__ not in _INDEXES:
            raise MalformedError(
                f"it holds {described(kind)} where an index is expected"
            )
        state = mapping(given)
        name = label(self.values.cell(state.get("name")))
        if kind.__name__ == "RangeIndex":
            bounds = (
                integer(state.get(key), low=-_FAR, high=_FAR)
                for key in ("start", "stop", "step")
            )
            start, stop, step = bounds
            if step == 0 or len(range(start, stop, step)) > MAX_LENGTH:
                raise MalformedError("a RangeIndex in it has no end")
            return pd.RangeIndex(start, stop, step, name=name)
        column = self.column(state.get("data"))
        if isinstance(column, list) and len(column) == 1:
            column = column[0]
        if not isinstance(column, np.ndarray):
            return pd.Index(column, name=name)
        if column.ndim != 1 or column.dtype.kind not in "biufMmO":
            raise MalformedError(
                f"an index in it has {column.ndim} dimensions of type {column.dtype}"
            )
        if column.dtype.hasobject:
            for value in column:
                label(value)
        return pd.Index(column, dtype=column.dtype, name=name, tupleize_cols=False)


def _manager(node: Record) -> tuple[object, list[tuple[object, object]]]:
    """Give the axes of a block manager, and (values, placement) of its blocks."""
    if not node.has_state:
        blocks, axes = sequence(node.args, 2)
        contents = []
        for block in sequence(blocks):
            block = made(block, "unpickle_block")
            values, placement, _ = sequence(block.args, 3)
            contents.append((values, placement))
        return axes, contents
    state = mapping(mapping(sequence(node.state, 4)[3]).get("0.14.1"))
    parts = [mapping(block) for block in sequence(state.get("blocks"))]
    return state.get("axes"), [
        (part.get("values"), part.get("mgr_locs")) for part in parts
    ]


def _placement(node: object, columns: int) -> list[int]:
    """Decode the positions of a block's columns in the frame."""
    if isinstance(node, Record) and node.maker == "slice":
        # Bounds as of a slice of the columns: the end may be beyond them, or None going backward.
        far = 2 * columns + 2
        bounds = [
            None if part is None else integer(part, low=-far, high=far)
            for part in sequence(node.args, 3)
        ]
        if bounds[2] == 0:
            raise MalformedError("a block of it has no position")
        return list(range(columns))[slice(*bounds)]
    array = Values().array(node)
    if array.ndim != 1 or array.dtype.kind != "i":
        raise MalformedError("a block of it has no position")
    return cast("list[int]", array.tolist())


def _joined(
    blocks: list[tuple[list[int], list[Column] | Array]], rows: int
) -> pd.DataFrame:
    """Put blocks together; a frame of one block, such as a matrix, keeps that block's memory."""
    index = pd.RangeIndex(rows)
    parts = []
    for where, values in blocks:
        if len(values) != len(where) or any(
            len(column) != rows for column in values[:1]
        ):
            raise MalformedError("a block of it has not the shape of its columns")
        if isinstance(values, np.ndarray):
            if values.dtype.kind not in "biufMmO":
                raise MalformedError(f"a block of it has the type {values.dtype}")
            kind = (
                values.dtype if values.dtype.hasobject else None
            )  # else pandas guesses at strings
            parts.append(pd.DataFrame(values.T, index, where, dtype=kind, copy=False))
            continue
        for position, column in zip(where, values, strict=True):
            kind = (
                column.dtype
                if isinstance(column, np.ndarray) and column.dtype.hasobject
                else None
            )
            if getattr(column, "ndim", 1) != 1 or len(column) != rows:
                raise MalformedError("a column of it has not the length of its index")
            parts.append(pd.Series(column, index, dtype=kind, name=position).to_frame())
    if not parts:
        return pd.DataFrame(index=index)
    frame = parts[0] if len(parts) == 1 else pd.concat(parts, axis=1)
    order = [position for where, _ in blocks for position in where]
    return frame if order == sorted(order) else frame[list(range(len(order)))]


def _expect(array: Array, kind: str) -> Array:
    if array.dtype.kind != kind:
        raise MalformedError(f"times in it are of type {array.dtype}")
    return array


def _times(dtype: object, array: Array) -> Column:
    """Give times without a zone as they are, and UTC times as typed columns."""
    _expect(array, "M")
    dtype = made(dtype, "dtype", "DatetimeTZDtype")
    if dtype.maker == "dtype":
        return array
    zone = (
        mapping(dtype.state).get("tz")
        if dtype.has_state
        else sequence(dtype.args, 2)[1]
    )
    if utc(zone) is None:
        raise MalformedError("times in it lack their time zone")
    rows = [array] if array.ndim == 1 else list(array)
    return [pd.DatetimeIndex(row).tz_localize("UTC").array for row in rows]


def _strings(dtype: object, values: Sequence[object]) -> Column:
    """Make a column of strings, of the type that the file states."""
    node = made(dtype, "StringDtype")
    if node.has_state:
        state = mapping(node.state)
        storage, missing = state.get("storage"), state.get("_na_value")
    else:
        args = sequence(node.args, 0, 1, 2)
        storage, missing = (
            (*args, "python", None)[:2] if len(args) != 1 else (args[0], None)
        )
    if storage not in ("python", "pyarrow", "pyarrow_numpy"):
        raise MalformedError("strings in it are of an unknown storage")
    nan = storage == "pyarrow_numpy" or isinstance(missing, float)
    absent: Any = np.nan if nan else pd.NA
    texts = []
    for value in values:
        gap = (
            value is None
            or value is pd.NA
            or (isinstance(value, float) and value != value)
        )
        if not gap and not isinstance(value, str):
            raise MalformedError(f"a string in it is {described(value)}")
        texts.append(absent if gap else value)
    kept: Any = "python" if storage == "python" else "pyarrow"
    if not nan:
        return pd.array(cast("Any", texts), dtype=pd.StringDtype(kept))
    if _NAN_STRINGS:
        return pd.array(cast("Any", texts), dtype=pd.StringDtype(kept, na_value=np.nan))
    objects = np.empty(len(texts), object)
    objects[:] = texts
    return objects


def _arrow_strings(node: object) -> list[str | None]:
    """Decode an Arrow array of strings, which Arrow checks in full."""
    import pyarrow as pa

    if isinstance(node, Record) and node.maker == "chunked_array":
        chunks = sequence(sequence(node.args, 1, 2)[0])
        return [text for chunk in chunks for text in _arrow_strings(chunk)]
    kind, length, _, offset, buffers, children, dictionary = sequence(
        sequence(made(node, "restore_array").args, 1)[0], 7
    )
    alias = sequence(made(kind, "type_for_alias").args, 1)[0]
    kinds = {"string": pa.string(), "large_string": pa.large_string()}
    if alias not in kinds or children != [] or dictionary is not None:
        raise MalformedError("an Arrow array in it is not one of strings")
    parts = [
        part and pa.py_buffer(binary(sequence(made(part, "py_buffer").args, 1)[0]))
        for part in sequence(buffers, 3)
    ]
    array = pa.Array.from_buffers(
        kinds[alias], integer(length), parts, offset=integer(offset)
    )
    array.validate(full=True)
    return cast("list[str | None]", array.to_pylist())
