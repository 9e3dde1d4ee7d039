"""Reading a pickled DataFrame without executing anything that the pickle names.

A pickle is a program: opening one with `pickle` or `pandas.read_pickle` runs whatever it asks for.
The published traces and job tables are pickles nevertheless. Here, a pickle is first *recorded*
(`_unpickler`): names outside of a short list are refused, and those on the list become inert
records, so that not even pandas or NumPy code runs. The recorded tree is then *decoded*
(`_pickle_values`, `_pickle_frame`) by checking every part of it and calling public constructors.
Nothing depends on the pandas that wrote the file, from 1.0 on, or on the one that is installed.
"""

from __future__ import annotations

import zlib
from pickle import UnpicklingError  # nosec B403
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Final

from bft.models.errors import InputError
from bft.models.limited_reading import out_of_memory
from bft.models.pickles._unpickler import (
    ODD_VALUES,
    Record,
    RefusedError,
    Unpickler,
)

if TYPE_CHECKING:
    import pandas as pd

_OFFSETS: Final = "Day Hour Minute Second Milli Micro Nano Week MonthBegin MonthEnd"

# Label: module and name, as versions of pandas (1.0 to 3), NumPy (1, 2) and Python (protocols 0 to 2
# use the names of Python 2) write them. The labels are what the decoder goes by.
_WRITTEN_AS: Final = {
    "DataFrame": "pandas.core.frame:DataFrame pandas:DataFrame",
    "Series": "pandas.core.series:Series pandas:Series",  # to say that it is not a table
    "BlockManager": "pandas.core.internals.managers:BlockManager",
    "SingleBlockManager": "pandas.core.internals.managers:SingleBlockManager",
    "unpickle_block": "pandas._libs.internals:_unpickle_block",
    "new_Index": "pandas.core.indexes.base:_new_Index",
    "new_DatetimeIndex": "pandas.core.indexes.datetimes:_new_DatetimeIndex",
    "new_TimedeltaIndex": "pandas.core.indexes.timedeltas:_new_TimedeltaIndex",
    "Index": "pandas.core.indexes.base:Index pandas:Index pandas.core.indexes.numeric:Int64Index"
    " pandas.core.indexes.numeric:UInt64Index pandas.core.indexes.numeric:Float64Index",
    "RangeIndex": "pandas.core.indexes.range:RangeIndex pandas:RangeIndex",
    "DatetimeIndex": "pandas.core.indexes.datetimes:DatetimeIndex pandas:DatetimeIndex",
    "TimedeltaIndex": "pandas.core.indexes.timedeltas:TimedeltaIndex pandas:TimedeltaIndex",
    "CategoricalIndex": "pandas.core.indexes.category:CategoricalIndex pandas:CategoricalIndex",
    "unpickle_backed": "pandas._libs.arrays:__pyx_unpickle_NDArrayBacked",
    "DatetimeArray": "pandas.core.arrays.datetimes:DatetimeArray pandas.arrays:DatetimeArray",
    "TimedeltaArray": "pandas.core.arrays.timedeltas:TimedeltaArray pandas.arrays:TimedeltaArray",
    "StringArray": "pandas.core.arrays.string_:StringArray pandas.arrays:StringArray",
    "Categorical": "pandas.core.arrays.categorical:Categorical pandas:Categorical",
    "ArrowStringArray": "pandas.core.arrays.string_arrow:ArrowStringArray pandas.arrays:ArrowStringArray"
    " pandas.core.arrays.string_arrow:ArrowStringArrayNumpySemantics",
    "IntegerArray": "pandas.core.arrays.integer:IntegerArray pandas.arrays:IntegerArray",
    "FloatingArray": "pandas.core.arrays.floating:FloatingArray pandas.arrays:FloatingArray",
    "BooleanArray": "pandas.core.arrays.boolean:BooleanArray pandas.arrays:BooleanArray",
    "DatetimeTZDtype": "pandas.core.dtypes.dtypes:DatetimeTZDtype pandas:DatetimeTZDtype",
    "CategoricalDtype": "pandas.core.dtypes.dtypes:CategoricalDtype pandas:CategoricalDtype",
    "StringDtype": "pandas.core.arrays.string_:StringDtype pandas:StringDtype",
    "MaskedDtype": " ".join(
        f"{module}:{sign}{bits}Dtype"
        for signs, sizes, module in (
            ("Int UInt", "8 16 32 64", "pandas.core.arrays.integer"),
            ("Float", "32 64", "pandas.core.arrays.floating"),
            ("Int UInt", "8 16 32 64", "pandas"),
            ("Float", "32 64", "pandas"),
        )
        for sign in signs.split()
        for bits in sizes.split()
    )
    + " pandas.core.arrays.boolean:BooleanDtype pandas:BooleanDtype",
    "NA": "pandas._libs.missing:NA pandas:NA",
    "NaT": "pandas._libs.tslibs.nattype:_nat_unpickle pandas._libs.tslibs.nattype:__nat_unpickle",
    "Timestamp": "pandas._libs.tslibs.timestamps:_unpickle_timestamp"
    " pandas._libs.tslibs.timestamps:Timestamp",  # pandas up to 1.4 names the class
    "Timedelta": "pandas._libs.tslibs.timedeltas:_timedelta_unpickle pandas._libs.tslibs.timedeltas:Timedelta",
    # Frequencies of an index; recorded and left out.
    "frequency": " ".join(
        f"{module}:{name}"
        for module in ("pandas._libs.tslibs.offsets", "pandas.tseries.offsets")
        for name in _OFFSETS.split()
    ),
    "ndarray": "numpy:ndarray",
    "dtype": "numpy:dtype",
    "reconstruct": "numpy.core.multiarray:_reconstruct numpy._core.multiarray:_reconstruct",
    "scalar": "numpy.core.multiarray:scalar numpy._core.multiarray:scalar",
    "frombuffer": "numpy.core.numeric:_frombuffer numpy._core.numeric:_frombuffer",
    "restore_array": "pyarrow.lib:_restore_array",
    "chunked_array": "pyarrow.lib:chunked_array",
    "py_buffer": "pyarrow.lib:py_buffer",
    "type_for_alias": "pyarrow.lib:type_for_alias",
    "datetime": "datetime:datetime",
    "date": "datetime:date",
    "timedelta": "datetime:timedelta",
    "timezone": "datetime:timezone",
    "utc": "pytz:_UTC",
    "slice": "builtins:slice __builtin__:slice",
    "bytearray": "builtins:bytearray __builtin__:bytearray",
    "bytes": "__builtin__:bytes",
    "encode": "_codecs:encode",
    "object": "__builtin__:object builtins:object",
    "reconstructor": "copy_reg:_reconstructor copyreg:_reconstructor",
}


def _allowed() -> dict[tuple[str, str], type[Record]]:
    records: dict[tuple[str, str], type[Record]] = {}
    for label, written in _WRITTEN_AS.items():
        made = type(label, (Record,), {"__slots__": ()})
        for one in written.split():
            module, _, name = one.partition(":")
            records[module, name] = made
    return records


# What stands for each name that a pickle may use.
ALLOWED: Final = MappingProxyType(_allowed())
_HINT: Final = "get the table as Parquet or CSV from whoever made it"


def read_frame(source: BinaryIO, *, file: str) -> pd.DataFrame:
    """Read a pickled DataFrame, executing nothing that the pickle names.

    Read are numbers, bools, times (without a zone, or UTC), strings, categories, nullable integers,
    floats and bools, and objects: None, bool, int, float, str, bytes, Timestamp, NumPy scalars and
    arrays, and lists, tuples and dicts of these; written by pandas 1.0 or newer with any protocol.
    Not read are MultiIndex, periods, sets, complex numbers, other time zones. What changes: the
    frequency of a DatetimeIndex and flags are dropped, byte order becomes native, NaN-marked strings become
    objects where the installed pandas is older than 3.

    Parameters
    ----------
    source
        The pickle, read once, forward.
    file
        Name of the input in errors.

    Returns
    -------
    DataFrame
        Columns that are a block of over 1 MiB on their own (a matrix) are read-only: copy the
        frame to write to it. Memory is that of the data, once, if it is of one type.

    Raises
    ------
    InputError
        If the pickle would call anything but the constructors of such a table, before anything of
        it is called; if it is damaged, or holds something else.
    """
    part = "pickle"
    try:
        root = Unpickler(source, ALLOWED, lambda size: None).load()
        part = "table"
        # Decoding needs pandas, which takes long to import: not before a pickle has passed.
        from bft.models.pickles._pickle_frame import decode

        return decode(root)
    except RefusedError as refusal:
        raise InputError(
            f"refused: this pickle {refusal}, which a node trace or job table never needs",
            file=file,
            hint=f"such a pickle runs code when opened; {_HINT}",
        ) from None
    except UnpicklingError as fault:
        raise InputError(
            f"not a readable {part}: {fault}", file=file, hint=_HINT
        ) from None
    except RecursionError:
        raise InputError(
            f"not a readable {part}: its parts are nested without end",
            file=file,
            hint=_HINT,
        ) from None
    except ODD_VALUES as error:
        raise InputError(
            f"not a readable {part}: its parts do not fit together: {error}",
            file=file,
            hint=_HINT,
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        # Of the stream below, say a truncated gzip file.
        raise InputError(f"cannot be read to its end: {error}", file=file) from error
    except MemoryError as error:
        raise out_of_memory(error, file) from None
