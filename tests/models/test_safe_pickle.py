"""Reading pickles: nothing is executed, damaged ones are refused, and genuine ones of any pandas are read."""

from __future__ import annotations

import copyreg
import functools
import io
import operator
import os
import pickle
import runpy
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bft.models import InputError
from bft.models.limited_reading import Budget
from bft.models.pickles.safe_pickle import ALLOWED, read_frame

PICKLES = Path(__file__).parents[1] / "data" / "pickles"
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def read(data: bytes) -> pd.DataFrame:
    return read_frame(io.BytesIO(data), file="x.pkl")


def complaint(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(data)
    assert caught.value.file == "x.pkl"
    return str(caught.value)


# An assembler, to write what no pickler would.


class Call(NamedTuple):
    name: str
    args: Any = ()
    state: Any = ...


class Raw(NamedTuple):
    code: bytes


def assemble(value: Any) -> bytes:
    """Write opcodes of protocol 4 for a value; a Call is a REDUCE, and a BUILD if it has a state."""
    match value:
        case Raw(code):
            return code
        case Call(name, args, state):
            built = b"" if state is ... else assemble(state) + b"b"
            return named(name) + assemble(args) + b"R" + built
        case None | True | False:
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int():
            data = value.to_bytes(9 + value.bit_length() // 8, "little", signed=True)
            return b"\x8a" + bytes([len(data)]) + data
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return b"\x8d" + struct.pack("<Q", len(value.encode())) + value.encode()
        case bytes():
            return b"\x8e" + struct.pack("<Q", len(value)) + value
        case tuple():
            return b"(" + b"".join(map(assemble, value)) + b"t"
        case list():
            return b"(" + b"".join(map(assemble, value)) + b"l"
        case dict():
            return (
                b"("
                + b"".join(assemble(k) + assemble(v) for k, v in value.items())
                + b"d"
            )
    raise TypeError(value)


def named(name: str) -> bytes:
    module, _, attribute = name.partition(":")
    return assemble(module) + assemble(attribute) + b"\x93"


def pickled(value: Any) -> bytes:
    return b"\x80\x04" + assemble(value) + b"."


def dtype_of(code: Any, order: str = "<", flags: int = 0) -> Call:
    return Call(
        "numpy:dtype", (code, False, True), (3, order, None, None, None, -1, -1, flags)
    )


INT64, OBJECT = dtype_of("i8"), dtype_of("O8", "|", 63)


def array_of(
    data: Any,
    shape: Any,
    dtype: Any = INT64,
    *,
    fortran: bool = False,
    version: int = 1,
) -> Call:
    start = (Raw(named("numpy:ndarray")), (0,), b"b")
    return Call(
        "numpy.core.multiarray:_reconstruct",
        start,
        (version, shape, dtype, fortran, data),
    )


def index_of(*labels: Any) -> Call:
    data = array_of(list(labels), (len(labels),), OBJECT)
    return new_index("Index", {"data": data, "name": None})


def new_index(kind: str, state: Any) -> Call:
    return Call(
        "pandas.core.indexes.base:_new_Index", (Raw(named(f"pandas:{kind}")), state)
    )


def frame_of(*blocks: Any, axes: Any = None, **state: Any) -> Call:
    """Make a frame of two rows and one column `a` by default."""
    axes = [index_of("a"), index_of("r", "s")] if axes is None else axes
    manager = Call("pandas.core.internals.managers:BlockManager", (blocks, axes))
    return Call("pandas:DataFrame", (), {"_mgr": manager, "_typ": "dataframe", **state})


def block_of(values: Any, where: Any = None) -> Call:
    where = Call("builtins:slice", (0, 1, 1)) if where is None else where
    return Call("pandas._libs.internals:_unpickle_block", (values, where, 2))


def cells_of(*cells: Any) -> Call:
    return block_of(array_of(list(cells), (1, len(cells)), OBJECT))


TWO = struct.pack("<qq", 5, -6)


def test_the_assembler_writes_what_pandas_and_the_reader_agree_on() -> None:
    data = pickled(frame_of(block_of(array_of(TWO, (1, 2)))))
    pd.testing.assert_frame_equal(pickle.loads(data), read(data))
    assert read(data)["a"].tolist() == [5, -6]


# Nothing runs.


class Watch:
    """Notes the interpreter's own audit events, which no code can do without."""

    def __init__(self) -> None:
        self.events: list[str] | None = None
        self.hooked = False

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        if not self.hooked:  # a hook stays for the life of the process
            sys.addaudithook(self._note)
            self.hooked = True
        self.events = noted = []
        try:
            yield noted
        finally:
            self.events = None

    def _note(self, event: str, _: object) -> None:
        if self.events is not None:
            self.events.append(event)


WATCH = Watch()


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    complaint(
        b"Vx\n."
    )  # imports the codec that lines of text are in, if this is the first
    return tmp_path / "ran"


def refusal(data: bytes, canary: Path) -> str:
    """Read a hostile pickle; show that nothing was imported, opened, compiled or run meanwhile."""
    with WATCH.watching() as events, pytest.raises(InputError) as caught:
        read(data)
    assert not canary.exists()
    assert not [
        event
        for event in events
        if event.split(".")[0]
        in ("os", "subprocess", "import", "exec", "compile", "open", "pickle", "ctypes")
    ]
    text = str(caught.value)
    assert text.startswith("x.pkl: refused: this pickle ")
    assert "Parquet or CSV" in text
    return text


class Evil:
    """Pickles as a call of `function`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.args


def test_the_canary_sings_when_such_a_pickle_is_opened_by_pickle(canary: Path) -> None:
    with WATCH.watching() as events:
        pickle.loads(pickle.dumps(Evil(os.system, f"touch {canary}")))
    assert canary.exists()
    assert {"os.system", "pickle.find_class"} <= set(events)


HOSTILE = [
    "os:system",
    "posix:system",
    "nt:system",
    "subprocess:Popen",
    "subprocess:check_output",
    "builtins:eval",
    "builtins:exec",
    "builtins:getattr",
    "builtins:__import__",
    "builtins:compile",
    "builtins:open",
    "__builtin__:eval",
    "importlib:import_module",
    "runpy:run_path",
    "operator:attrgetter",
    "operator:methodcaller",
    "functools:partial",
    "types:FunctionType",
    "copyreg:__newobj__",
    "copyreg:_extension_registry",
    "pickle:loads",
    "_pickle:loads",
    "ctypes:CDLL",
    "socket:create_connection",
    "numpy:load",
    "numpy:fromfile",
    "numpy:ndarray.tofile",
    "numpy:memmap",
    "numpy.core.multiarray:_reconstruct.__globals__",
    "numpy.f2py:compile",
    "numpy.f2py.crackfortran:getlincoef",
    "numpy.testing:runstring",
    "numpy.testing._private.utils:runstring",
    "pandas:read_pickle",
    "pandas:eval",
    "pandas:DataFrame.to_csv",
    "pandas.io.common:get_handle",
    "pandas.io.pickle:read_pickle",
    "pandas.core.computation.eval:eval",
    "pandas.core.frame:DataFrame.eval",
    "pandas.core.internals.managers:BlockManager.__init__",
    "pyarrow:PyExtensionType",
    "pyarrow.lib:open_file",
    "datetime:sys",
    "_codecs:lookup",
    "",
    "pandas:",
    ":system",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_outside_of_the_list_is_refused_by_name_however_it_is_called(
    name: str, canary: Path
) -> None:
    module, _, attribute = name.partition(":")
    argument = f"touch {canary}"
    text = f"V{argument}\n".encode()
    line = f"{module}\n{attribute}\n".encode()
    for data in (
        b"c" + line + b"(" + text + b"tR.",  # GLOBAL, REDUCE
        b"(S'" + argument.encode() + b"'\ni" + line + b".",  # INST
        b"(c" + line + text + b"o.",  # OBJ
        b"\x80\x02c" + line + b"(" + text + b"t\x81.",  # NEWOBJ
        pickled(Call(name, (argument,))),  # STACK_GLOBAL
        b"\x80\x04"
        + named(name)
        + assemble((argument,))
        + assemble({})
        + b"\x92.",  # NEWOBJ_EX
        b"\x80\x04"
        + named(name)
        + assemble({"__setstate__": argument})
        + b"b.",  # BUILD
        b"\x80\x04" + named(name) + b".",
    ):
        assert f"would call {module}.{attribute}, which a node trace" in refusal(
            data, canary
        )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, f"{os.system.__module__}.system"),
        (subprocess.Popen, ".Popen"),
        (eval, "eval"),
        (functools.partial(os.system), "functools.partial"),
        (operator.attrgetter("system"), "operator.attrgetter"),
        (pd.read_pickle, "pandas"),
        (np.load, "numpy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_object_anywhere_in_a_genuine_frame_is_refused(
    protocol: int, function: Callable[..., Any], name: str, canary: Path
) -> None:
    evil = Evil(function, f"touch {canary}")

    in_cell = pd.DataFrame({"a": pd.Series([1, evil], dtype=object)})
    deep_in_cell = pd.DataFrame({"a": pd.Series([[1, {"k": (evil,)}]], dtype=object)})
    in_array = pd.DataFrame(
        {"a": pd.Series([np.array([evil, 1], dtype=object)], dtype=object)}
    )
    in_index = pd.DataFrame({"a": [1]}, index=pd.Index([evil], dtype=object))
    in_name = pd.DataFrame({"a": [1]}, index=pd.RangeIndex(1, name=evil))
    in_columns = pd.DataFrame([[1]], columns=pd.Index([evil], dtype=object))
    in_attrs = pd.DataFrame({"a": [1]})
    in_attrs.attrs["k"] = evil
    for frame in (
        in_cell,
        deep_in_cell,
        in_array,
        in_index,
        in_name,
        in_columns,
        in_attrs,
    ):
        assert name in refusal(pickle.dumps(frame, protocol), canary)
    assert name in refusal(pickle.dumps([evil], protocol), canary)


def test_a_hostile_state_of_an_allowed_object_is_refused(canary: Path) -> None:
    evil = Call("os:system", (f"touch {canary}",))
    for value in (
        Call("pandas:DataFrame", (), evil),
        frame_of(block_of(array_of(TWO, (1, 2), Call("numpy:dtype", ("i8",), evil)))),
        frame_of(block_of(array_of(evil, (1, 2)))),
        frame_of(_metadata=[evil], _flags={"x": evil}),
    ):
        assert "would call os.system" in refusal(pickled(value), canary)


# What NumPy believes of a type of objects whose flags say that its values are plain bytes: that they are addresses.
ADDRESSES = dtype_of("O8", "|", 0)


def test_bytes_are_never_taken_for_addresses_of_objects() -> None:
    # With pandas' own Unpickler and NumPy's constructors, the second makes a function of an address and calls it.
    address = struct.pack("<Q", id(os.system))
    in_array = pickled(frame_of(block_of(array_of(address * 2, (1, 2), ADDRESSES))))
    scalar = assemble(Call("numpy.core.multiarray:scalar", (ADDRESSES, address)))
    called = b"\x80\x04" + scalar + assemble(("exit 1",)) + b"R."
    in_cell = pickled(frame_of(cells_of(1, Raw(scalar))))
    for data in (in_array, called, in_cell):
        assert "not a readable" in complaint(data)


def test_a_state_cannot_change_a_class_or_what_is_called() -> None:
    # Setting state on a placeholder of a class, calling what was made, setting state twice.
    assert "state" in complaint(
        pickled(Raw(named("pandas:DataFrame") + assemble({"__init__": 1}) + b"b"))
    )
    made = assemble(Call("_codecs:encode", ("a", "latin1")))
    assert "not a function" in complaint(b"\x80\x04" + made + b")R.")
    assert "state" in complaint(
        pickled(Raw(assemble(Call("pandas:DataFrame", (), {})) + b"}b"))
    )
    assert "not a pandas DataFrame" in complaint(
        pickled(Raw(named("pandas:DataFrame")))
    )
    assert "list" in complaint(b"\x80\x04" + named("pandas:DataFrame") + b"K\x01a.")
    assert "dict" in complaint(
        b"\x80\x04" + named("pandas:DataFrame") + b"K\x01K\x01s."
    )


@pytest.mark.parametrize(
    ("code", "number"),
    [(b"\x82\xf0", 240), (b"\x83\xf0\x01", 496), (b"\x84\xf0\x00\x00\x01", 16777456)],
)
def test_extension_codes_are_refused_though_registered(
    code: bytes, number: int, canary: Path
) -> None:
    copyreg.add_extension("os", "system", number)
    try:
        text = refusal(
            b"\x80\x02" + code + f"(V touch {canary}\n".encode() + b"tR.", canary
        )
    finally:
        copyreg.remove_extension("os", "system", number)
    assert f"extension code {number}" in text


def test_persistent_ids_and_buffers_outside_are_refused(canary: Path) -> None:
    assert "persistent object evil" in refusal(b"Pevil\n.", canary)
    assert "persistent object evil" in refusal(
        b"\x80\x04" + assemble("evil") + b"Q.", canary
    )
    assert "buffers" in refusal(b"\x80\x05\x97.", canary)


def test_a_pickle_inside_of_a_cell_stays_bytes(canary: Path) -> None:
    inner = pickle.dumps(Evil(os.system, f"touch {canary}"))
    frame = pd.DataFrame({"a": pd.Series([inner, inner * 100_000], dtype=object)})
    for protocol in PROTOCOLS:
        assert read(pickle.dumps(frame, protocol))["a"].tolist() == frame["a"].tolist()
    assert not canary.exists()


def test_no_name_that_the_terminal_would_act_upon_is_printed() -> None:
    text = complaint(b"c\x1b[2Jos\nsystem\n.")
    assert "\x1b" not in text
    assert len(complaint(b"c" + b"x" * 10_000 + b"\ny\n.")) < 500


def test_what_is_allowed_is_data_by_name() -> None:
    modules = {module for module, _ in ALLOWED}
    assert not modules & {
        "os",
        "posix",
        "sys",
        "subprocess",
        "importlib",
        "operator",
        "functools",
        "pickle",
    }
    builtin = {
        name for module, name in ALLOWED if module in ("builtins", "__builtin__")
    }
    assert builtin == {"slice", "bytearray", "bytes", "object"}
    assert not [name for _, name in ALLOWED if "." in name]


# Damage, contradiction and excess.


@pytest.mark.parametrize(
    ("code", "order"),
    [
        ("O8", "<"),
        ("O", "|"),
        ("V8", "|"),
        ("i8,i8", "<"),
        ("c16", "<"),
        ("f16", "<"),
        ("U", "<"),
        ("S99999999", "|"),
        ("i8\n", "<"),
        (">i8", "<"),
        ("(2,)i8", "<"),
        ("object", "|"),
        ("i8", "@"),
        ("M8", "<"),
        (8, "<"),
        (None, "<"),
    ],
)
def test_raw_bytes_are_only_taken_for_plain_types(code: Any, order: str) -> None:
    assert "not a readable table" in complaint(
        pickled(frame_of(block_of(array_of(TWO, (1, 2), dtype_of(code, order)))))
    )


@pytest.mark.parametrize(
    "shape",
    [
        (1, 3),
        (1, -2),
        (-1, -2),
        (1, 10**15),
        (10**15, 1),
        (2**63, 2**63),
        (1, 2.0),
        (True, 2),
        (1,) * 40,
        2,
        (0, 2),
    ],
)
def test_a_shape_that_is_not_that_of_the_bytes_is_refused(shape: Any) -> None:
    assert "not a readable table" in complaint(
        pickled(frame_of(block_of(array_of(TWO, shape))))
    )


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(
            frame_of(block_of(array_of([1, 2, 3], (1, 2), OBJECT))),
            id="more objects than the shape",
        ),
        pytest.param(
            frame_of(block_of(array_of([1], (1, 10**12), OBJECT))), id="fewer objects"
        ),
        pytest.param(
            frame_of(block_of(array_of("text", (1, 2), OBJECT))),
            id="objects of no list",
        ),
        pytest.param(
            frame_of(block_of(array_of(TWO, (1, 2), version=2))),
            id="array of another version",
        ),
        pytest.param(
            frame_of(block_of(array_of(b"\0\2", (1, 2), dtype_of("b1", "|")))),
            id="bool of 2",
        ),
        pytest.param(
            frame_of(block_of(array_of(b"\xff" * 8, (1, 2), dtype_of("U1")))),
            id="no character",
        ),
        pytest.param(frame_of(), id="no block"),
        pytest.param(
            frame_of(*[block_of(array_of(TWO, (1, 2)))] * 2),
            id="two blocks in one place",
        ),
        pytest.param(
            frame_of(
                block_of(array_of(TWO, (1, 2)), Call("builtins:slice", (0, 10**15, 1)))
            ),
            id="far place",
        ),
        pytest.param(
            frame_of(
                block_of(array_of(TWO, (1, 2)), Call("builtins:slice", (0, 1, 0)))
            ),
            id="step 0",
        ),
        pytest.param(frame_of(block_of(array_of(TWO, (1, 2)), "0")), id="no place"),
        pytest.param(
            frame_of(block_of(array_of(TWO, (1, 1, 2)))), id="three dimensions"
        ),
        pytest.param(
            frame_of(axes=[index_of(), index_of(), index_of()]), id="three axes"
        ),
        pytest.param(
            frame_of(
                axes=[
                    index_of(),
                    new_index(
                        "RangeIndex",
                        {"start": 0, "stop": 10**15, "step": 1, "name": None},
                    ),
                ]
            ),
            id="endless rows",
        ),
        pytest.param(
            frame_of(
                axes=[
                    new_index(
                        "RangeIndex",
                        {"start": 0, "stop": 10**8, "step": 1, "name": None},
                    ),
                    index_of(),
                ]
            ),
            id="100 million columns",
        ),
        pytest.param(
            frame_of(
                axes=[
                    index_of(),
                    new_index(
                        "RangeIndex", {"start": 0, "stop": 1, "step": 0, "name": None}
                    ),
                ]
            ),
            id="range of step 0",
        ),
        pytest.param(
            frame_of(axes=[index_of(), new_index("DataFrame", {})]),
            id="index of another class",
        ),
        pytest.param(
            frame_of(axes=[index_of(), index_of([1])]), id="a list for a label"
        ),
        pytest.param(
            frame_of(cells_of(1, Call("pandas:DataFrame", (), {}))),
            id="frame in a cell",
        ),
        pytest.param(
            frame_of(cells_of(1, Call("datetime:datetime", (b"\xff" * 10,)))),
            id="no such day",
        ),
        pytest.param(
            frame_of(
                cells_of(1, Call("numpy.core.multiarray:scalar", (dtype_of("i8"), b"")))
            ),
            id="scalar",
        ),
        pytest.param(frame_of(attrs=[1]), id="attributes of no dict"),
        pytest.param(frame_of(attrs={(1, 2): 1}), id="a tuple for a key"),
        pytest.param(Call("pandas:DataFrame", (), {"_mgr": None}), id="no manager"),
        pytest.param(Call("pandas:DataFrame", ()), id="no state"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(value: Any) -> None:
    assert "not a readable" in complaint(pickled(value))


def arrow_strings(
    buffers: Any, length: Any = 2, offset: Any = 0, alias: str = "string"
) -> Call:
    parts = [
        None if part is None else Call("pyarrow.lib:py_buffer", (part,))
        for part in buffers
    ]
    array = Call(
        "pyarrow.lib:_restore_array",
        (
            (
                Call("pyarrow.lib:type_for_alias", (alias,)),
                length,
                0,
                offset,
                parts,
                [],
                None,
            ),
        ),
    )
    dtype = Call("pandas:StringDtype", ("pyarrow", float("nan")))
    return Call(
        "pandas.arrays:ArrowStringArray", (), {"_pa_array": array, "_dtype": dtype}
    )


def test_arrow_strings_are_read_with_offset_and_gaps() -> None:
    offsets = struct.pack("<iiii", 0, 2, 3, 5)
    frame = read(
        pickled(
            frame_of(block_of(arrow_strings([b"\x05", offsets, b"xxyzz"], offset=1)))
        )
    )
    assert frame["a"].tolist()[1] == "zz"
    assert frame["a"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("buffers", "rest"),
    [
        ([None, struct.pack("<iii", 0, 1, 9), b"ab"], {}),
        ([None, struct.pack("<iii", -1, 1, 2), b"ab"], {}),
        ([None, struct.pack("<iii", 2, 1, 2), b"ab"], {}),
        ([None, struct.pack("<ii", 0, 1), b"ab"], {}),
        ([None, struct.pack("<iii", 0, 1, 2), b"\xff\xff"], {}),
        ([b"", struct.pack("<iii", 0, 1, 2), b"ab"], {"length": 10**12}),
        ([b"\1", struct.pack("<" + "i" * 21, *range(21)), b"a" * 20], {"length": 20}),
        ([None, struct.pack("<iii", 0, 1, 2), b"ab"], {"offset": -1}),
        ([None, struct.pack("<iii", 0, 1, 2), b"ab"], {"alias": "int32"}),
        ([None, b"ab"], {}),
    ],
)
def test_arrow_strings_outside_of_their_buffers_are_refused(
    buffers: Any, rest: dict[str, Any]
) -> None:
    assert "not a readable table" in complaint(
        pickled(frame_of(block_of(arrow_strings(buffers, **rest))))
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(
            b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".", id="lists in lists"
        ),
        pytest.param(
            b"\x80\x04)" + b"\x85" * 300_000 + b"\x94K\x01\x86.", id="tuples in tuples"
        ),
        pytest.param(
            b"\x80\x04})" + b"\x85" * 300_000 + b"K\x01s.",
            id="hash of tuples in tuples",
        ),
        pytest.param(
            b"\x80\x04})" + b"\x94h\x00\x86" * 1 + b"K\x01s.", id="hash of a tuple"
        ),
        pytest.param(b"\x80\x04K\x01r\xff\xff\xff\xff.", id="memo of 4 billion"),
        pytest.param(b"\x80\x04K\x01p999999999999999\n.", id="memo of 10**15"),
        pytest.param(
            b"\x80\x04\x8e" + struct.pack("<Q", 10**15) + b"abc", id="bytes of 10**15"
        ),
        pytest.param(
            b"\x80\x04\x8d" + struct.pack("<Q", 2**64 - 1) + b"abc", id="text of 2**64"
        ),
        pytest.param(
            b"\x80\x05\x96" + struct.pack("<Q", 10**12) + b"abc",
            id="bytearray of 10**12",
        ),
        pytest.param(
            b"\x80\x04\x8b" + struct.pack("<I", 2**31) + b"abc", id="integer of 2 GiB"
        ),
        pytest.param(
            b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N.", id="frame of 2**63"
        ),
        pytest.param(b"I" + b"9" * 100_000 + b"\n.", id="integer of 100,000 digits"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\x80", id="one byte"),
        pytest.param(b".", id="nothing on the stack"),
        pytest.param(b"(.", id="a mark"),
        pytest.param(b"t.", id="no mark"),
        pytest.param(b"0.", id="pop of nothing"),
        pytest.param(b"h\x00.", id="nothing in the memo"),
        pytest.param(b"(\x85.", id="tuple of a mark"),
        pytest.param(b"\x80\x04\x8f.", id="set"),
        pytest.param(b"\xff\xfe", id="no opcode"),
        pytest.param(b"S'a\\x41'\n.", id="string of Python 2"),
        pytest.param(b"X\x01\x00\x00\x00\xff.", id="no UTF-8"),
        pytest.param(b"name,Jmin\nJ0,1\n", id="a CSV file"),
        pytest.param(b"PAR1" + bytes(100), id="a Parquet file"),
        pytest.param(pickle.dumps({"a": [1]}), id="a dict"),
        pytest.param(pickle.dumps([1, 2]), id="a list"),
        pytest.param(pickle.dumps(pd.Series([1, 2])), id="a Series"),
        pytest.param(pickle.dumps(np.arange(3)), id="an array"),
        pytest.param(pickle.dumps(None), id="None"),
    ],
)
def test_what_is_no_frame_or_a_bomb_is_refused_in_a_sentence(data: bytes) -> None:
    assert "not a readable" in complaint(data)


def test_structures_that_contain_themselves_or_unfold_without_end_are_refused() -> None:
    # A list in its own cell: EMPTY_LIST, MEMOIZE, get, append.
    loop = Raw(b"]\x94h\x00a")
    assert "contains itself" in complaint(pickled(frame_of(cells_of(1, loop))))
    # Each level holds the one below twice: 2**40 items in 200 bytes.
    laughs = Raw(
        b"K\x01\x85"
        + b"".join(
            b"r" + struct.pack("<I", i) + b"j" + struct.pack("<I", i) + b"\x86"
            for i in range(40)
        )
    )
    assert "unfolds" in complaint(pickled(frame_of(cells_of(1, laughs))))
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert "nested" in complaint(pickled(frame_of(cells_of(1, deep))))
    # An index of a Categorical of categories that are such an index, and so on; spelled out, since
    # writing it takes no recursion.
    codes = assemble("_ndarray") + assemble(array_of(b"", (0,), dtype_of("i1", "|")))
    before = (
        named("pandas.core.indexes.base:_new_Index")
        + (b"(" + named("pandas:Index") + b"(" + assemble("data"))
        + (named("pandas:Categorical") + b")R(" + codes + assemble("_dtype"))
        + (named("pandas:CategoricalDtype") + b")R(" + assemble("categories"))
    )
    indexes = Raw(before * 2000 + assemble(index_of("x")) + b"dbdbdtR" * 2000)
    assert "nested without end" in complaint(
        pickled(frame_of(axes=[index_of(), indexes]))
    )


def test_shared_parts_stay_shared() -> None:
    shared = [1, 2]
    frame = read(
        pickle.dumps(pd.DataFrame({"a": pd.Series([shared, shared], dtype=object)}))
    )
    assert frame["a"][0] is frame["a"][1]


GENUINE = [path.read_bytes() for path in sorted(PICKLES.glob("*.pkl"))]


@pytest.mark.parametrize(
    "path", sorted(PICKLES.glob("*-protocol5.pkl")), ids=lambda path: path.name
)
def test_a_pickle_cut_short_anywhere_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for end in range(0, len(data), 7):
        assert "not a readable pickle" in complaint(data[:end])


@examples(300)
@given(data=st.data())
def test_a_damaged_pickle_is_a_frame_or_an_input_error(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(GENUINE)))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    with suppress(InputError):
        assert isinstance(read(bytes(content)), pd.DataFrame)


# Genuine pickles.


def same(left: Any, right: Any) -> bool:
    """Compare cells with their types; pandas' own comparison is lenient with nested ones."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            same(left[key], right[key]) for key in left
        )
    if isinstance(left, np.ndarray):
        return bool(
            left.dtype == right.dtype
            and left.shape == right.shape
            and same(left.tolist(), right.tolist())
        )
    return bool(left is right or left == right or (left != left and right != right))


def assert_same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    assert left.columns.dtype == right.columns.dtype
    assert left.attrs == right.attrs
    objects = [
        at
        for at, dtype in enumerate(right.dtypes)
        if dtype.kind == "O" and dtype.name == "object"
    ]
    for at in objects:
        assert left.dtypes.iloc[at].name == "object"
        assert same(left.iloc[:, at].tolist(), right.iloc[:, at].tolist())
    others = [at for at in range(right.shape[1]) if at not in objects]
    pd.testing.assert_frame_equal(
        left.iloc[:, others], right.iloc[:, others], check_freq=False, check_exact=True
    )
    assert left.columns.equals(right.columns)
    assert left.columns.name == right.columns.name


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
MOMENTS = st.datetimes(
    pd.Timestamp(1900, 1, 1).to_pydatetime(), pd.Timestamp(2200, 1, 1).to_pydatetime()
)
STAMPS = MOMENTS.map(pd.Timestamp) | MOMENTS.map(
    lambda moment: pd.Timestamp(moment, tz="UTC")
)
NUMBERS = (
    npst.integer_dtypes()
    | npst.unsigned_integer_dtypes()
    | npst.floating_dtypes(sizes=(32, 64))
)
SCALARS = NUMBERS.flatmap(lambda dtype: npst.from_dtype(dtype.newbyteorder("=")))
ARRAYS = npst.arrays(
    npst.boolean_dtypes() | NUMBERS.map(lambda dtype: dtype.newbyteorder("=")),
    npst.array_shapes(max_dims=2, max_side=3),
)
CELLS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.binary(max_size=5)
    | STAMPS
    | SCALARS
    | ARRAYS
    | st.sampled_from(
        [
            pd.NaT,
            pd.NA,
            pd.Timedelta(5, "s"),
            np.datetime64("2021-02-10", "s"),
            np.bool_(True),
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXT, inner, max_size=2)
    ),
    max_leaves=5,
)


def objects(cells: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(cells), object)
    for at, cell in enumerate(cells):
        array[at] = cell
    return array


def columns(rows: int) -> st.SearchStrategy[Any]:
    """Make a column of `rows` values, of any type that is read."""

    def of(
        elements: st.SearchStrategy[Any], make: Callable[[list[Any]], Any]
    ) -> st.SearchStrategy[Any]:
        return st.lists(elements, min_size=rows, max_size=rows).map(make)

    units = st.sampled_from(["s", "ms", "us", "ns"])
    moments = st.tuples(
        st.lists(MOMENTS | st.none(), min_size=rows, max_size=rows), units
    )
    maybe_text = TEXT | st.none()
    return st.one_of(
        npst.arrays(
            st.sampled_from(
                ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "?"]
            ),
            rows,
        ),
        of(CELLS, lambda cells: pd.Series(objects(cells), dtype=object)),
        moments.map(
            lambda drawn: pd.DatetimeIndex(np.array(drawn[0], "M8[us]")).as_unit(
                drawn[1]
            )
        ),
        moments.map(
            lambda drawn: (
                pd.DatetimeIndex(np.array(drawn[0], "M8[us]"))
                .as_unit(drawn[1])
                .tz_localize("UTC")
            )
        ),
        of(
            st.integers(-(10**15), 10**15),
            lambda values: pd.TimedeltaIndex(np.array(values, "m8[ns]")),
        ),
        of(maybe_text, lambda texts: pd.array(texts, dtype="str")),
        of(
            maybe_text,
            lambda texts: pd.array(
                texts, dtype=pd.StringDtype("python", na_value=np.nan)
            ),
        ),
        of(maybe_text, lambda texts: pd.array(texts, dtype=pd.StringDtype("pyarrow"))),
        of(maybe_text, lambda texts: pd.array(texts, dtype=pd.StringDtype("python"))),
        of(
            st.integers(0, 255) | st.none(),
            lambda values: pd.array(values, dtype="UInt8"),
        ),
        of(
            st.floats(allow_nan=False) | st.none(),
            lambda values: pd.array(values, dtype="Float64"),
        ),
        of(st.booleans() | st.none(), lambda values: pd.array(values, dtype="boolean")),
        of(
            st.sampled_from(["a", "b", None]),
            lambda values: pd.Categorical(values, ["b", "a"], ordered=True),
        ),
    )


def indexes(length: int) -> st.SearchStrategy[Any]:
    """Make an index of `length` labels, of any type that is read."""
    unique = {"min_size": length, "max_size": length, "unique": True}
    moments = st.lists(MOMENTS, **unique)
    return st.one_of(
        st.integers(-5, 5).map(
            lambda start: pd.RangeIndex(start, start + 2 * length, 2)
        ),
        st.lists(TEXT, **unique).map(lambda labels: pd.Index(labels, dtype="str")),
        st.lists(TEXT, **unique).map(lambda labels: pd.Index(labels, dtype=object)),
        st.lists(st.integers(-9, 99), **unique).map(
            lambda labels: pd.Index(labels, dtype="int64")
        ),
        st.lists(st.floats(allow_nan=False), **unique).map(
            lambda labels: pd.Index(labels, dtype="float64")
        ),
        moments.map(lambda labels: pd.DatetimeIndex(labels, dtype="M8[us]")),
        moments.map(
            lambda labels: pd.DatetimeIndex(labels, dtype="M8[ns]").tz_localize("UTC")
        ),
        st.just(pd.date_range("2021-02-10", periods=length, freq="h", tz="UTC")),
    )


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    rows, width = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    frame = pd.DataFrame(
        dict(enumerate(draw(columns(rows)) for _ in range(width))),
        index=pd.RangeIndex(rows),
    )
    frame.index, frame.columns = draw(indexes(rows)), draw(indexes(width))
    frame.index.name = draw(TEXT | st.none() | st.integers())
    frame.attrs = draw(
        st.dictionaries(TEXT, st.integers() | TEXT | st.lists(TEXT), max_size=2)
    )
    if width and draw(st.booleans()):  # blocks out of order, and in pieces
        frame = frame.iloc[:, draw(st.permutations(range(width)))]
    return frame


@pytest.mark.slow
@examples(300)
@given(frame=frames(), protocol=st.sampled_from(PROTOCOLS))
def test_what_this_pandas_writes_is_read_back_equal(
    frame: pd.DataFrame, protocol: int
) -> None:
    assert_same(read(pickle.dumps(frame, protocol)), frame)


@given(
    values=npst.arrays(
        st.sampled_from(["i1", "f8", "?"]),
        st.tuples(st.integers(0, 5), st.integers(0, 5)),
    ),
    protocol=st.sampled_from(PROTOCOLS),
    order=st.sampled_from("CF"),
    step=st.sampled_from([1, 2, -1]),
)
def test_matrices_of_any_memory_order_are_read_back_equal(
    values: Any, protocol: int, order: Any, step: int
) -> None:
    frame = pd.DataFrame(np.asarray(values, order=order)[::step, ::step])
    assert_same(read(pickle.dumps(frame, protocol)), frame)
    cells = frame.astype(object)
    assert_same(read(pickle.dumps(cells, protocol)), cells)


def test_bytes_in_the_other_order_are_turned() -> None:
    frame = read(
        pickled(
            frame_of(
                block_of(
                    array_of(struct.pack(">qq", 5, -6), (1, 2), dtype_of("i8", ">"))
                )
            )
        )
    )
    assert frame["a"].tolist() == [5, -6]
    assert frame["a"].dtype == np.dtype("int64")
    assert frame["a"].dtype.isnative


def test_the_layout_of_pandas_1_0_to_1_2_is_read() -> None:
    # Like the published files: axes and blocks in a dict, and a DatetimeArray's state another one.
    unit = (Raw(assemble({})), (b"ns", 1, 1, 1))
    dtype = Call(
        "numpy:dtype", ("M8", False, True), (4, "<", None, None, None, -1, -1, 0, unit)
    )
    zone = Call(
        "pandas.core.dtypes.dtypes:DatetimeTZDtype",
        (),
        {"unit": "ns", "tz": Call("pytz:_UTC")},
    )
    moments = Call(
        "pandas.core.arrays.datetimes:DatetimeArray",
        (),
        {"_data": array_of(TWO, (2,), dtype), "_dtype": zone},
    )
    axes = [
        index_of("a", "t"),
        new_index("Index", {"data": array_of(TWO, (2,)), "name": "i"}),
    ]
    state = {
        "axes": axes,
        "blocks": [
            {"values": moments, "mgr_locs": Call("builtins:slice", (1, 2, 1))},
            {
                "values": array_of(TWO, (1, 2)),
                "mgr_locs": array_of(struct.pack("<q", 0), (1,)),
            },
        ],
    }
    manager = Call(
        "pandas.core.internals.managers:BlockManager",
        (),
        (axes, [], [], {"0.14.1": state}),
    )
    for key in ("_mgr", "_data"):
        frame = read(
            pickled(
                Call(
                    "pandas.core.frame:DataFrame",
                    (),
                    {key: manager, "_typ": "dataframe"},
                )
            )
        )
        assert list(frame.columns) == ["a", "t"]
        assert frame["a"].tolist() == frame.index.tolist() == [5, -6]
        assert frame["t"].tolist() == [
            pd.Timestamp(5, tz="UTC"),
            pd.Timestamp(-6, tz="UTC"),
        ]


def test_times_of_another_zone_are_refused() -> None:
    zone = Call("datetime:timezone", (Call("datetime:timedelta", (0, 3600, 0)),))
    text = complaint(
        pickled(
            frame_of(
                cells_of(
                    1, Call("datetime:datetime", (b"\7\xe5\2\n\0\0\0\0\0\0", zone))
                )
            )
        )
    )
    assert "time zone other than UTC" in text


EXPECTED = runpy.run_path(str(PICKLES / "make_pickles.py"))


def plain(value: Any) -> Any:
    """Reduce a cell to what every pandas means by it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | str):
        return value
    if pd.isna(value):
        return None
    return (
        value.isoformat(timespec="nanoseconds")
        if isinstance(value, pd.Timestamp)
        else value
    )


def test_fixtures_of_every_generation_are_there() -> None:
    writers = {path.name.split("-")[1] for path in PICKLES.glob("*.pkl")}
    assert {
        "pandas1.5.3",
        "pandas2.0.3",
        "pandas2.2.3",
        "pandas2.3.3",
        "pandas3.0.0",
    } <= writers


@pytest.mark.parametrize(
    "path", sorted(PICKLES.glob("*.pkl")), ids=lambda path: path.name
)
def test_pickles_of_older_pandas_keep_their_content(path: Path) -> None:
    frame = read(path.read_bytes())
    expected = EXPECTED[path.name.split("-")[0]]()
    assert list(frame.columns) == list(expected.columns)
    assert [plain(label) for label in frame.index] == [
        plain(label) for label in expected.index
    ]
    assert frame.index.name == expected.index.name
    assert frame.attrs == expected.attrs
    for column in expected:
        assert [plain(cell) for cell in frame[column]] == [
            plain(cell) for cell in expected[column]
        ], column
        assert frame[column].dtype.kind == expected[column].dtype.kind, column
    if "Tsub" in expected:
        assert str(frame["deadline"].dtype).endswith("UTC]")
        assert frame["Tsub"].dt.tz is None
        assert frame["class"].cat.ordered
        assert list(frame["class"].cat.categories) == ["a", "b"]
        assert frame["few"].dtype == np.uint8
        assert frame["half"].dtype == np.float32
        assert str(frame["gpus"].dtype) == "Int64"


# Memory.


def test_a_large_matrix_is_a_read_only_view_and_a_small_one_may_be_written_to() -> None:
    large = pd.DataFrame(np.zeros((1024, 2048), np.int8))
    for protocol in (4, 5):
        values = read(pickle.dumps(large, protocol)).to_numpy()
        assert values.base is not None
        frame = read(pickle.dumps(large, protocol))
        assert_same(frame, large)
        with pytest.raises(ValueError, match="read-only"):
            frame.iloc[0, 0] = 1
        frame = frame.copy()
        frame.iloc[0, 0] = 1
        small = read(pickle.dumps(large.iloc[:2], protocol))
        small.iloc[0, 0] = 1
        assert small.iloc[0, 0] == 1


class Counting(io.BytesIO):
    """Counts what is asked for at once."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        self.most = max(
            self.most, size if size is not None and size >= 0 else sys.maxsize
        )
        return super().read(size)


def test_no_more_is_asked_for_at_once_than_a_chunk() -> None:
    for data in (
        pickle.dumps(pd.DataFrame(np.zeros((1024, 4096)))),
        b"\x80\x04\x8e" + struct.pack("<Q", 10**15),
    ):
        source = Counting(data)
        with suppress(InputError):
            read_frame(source, file="x.pkl")
        assert source.most <= 1 << 20


def test_the_stream_below_may_fail() -> None:
    class Broken(io.BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            raise EOFError("Compressed file ended")

    with pytest.raises(
        InputError, match=r"x\.pkl: cannot be read to its end: Compressed file ended"
    ):
        read_frame(Broken(), file="x.pkl")


def test_a_table_beyond_the_memory_is_told_how_to_raise_it() -> None:
    """The limit's own message, not that the parts of the pickle do not fit together."""
    content = pickle.dumps(pd.DataFrame({"a": range(50_000)}, dtype=object))
    budget = Budget("x.pkl")
    budget.limit = 2**20
    with pytest.raises(InputError) as caught:
        read_frame(io.BytesIO(content), file="x.pkl", budget=budget)
    assert caught.value.what == "its content would take more than 1 MiB of memory"
    assert "--max-input raises the limit" in str(caught.value.hint)
