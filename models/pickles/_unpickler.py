"""Python's own unpickler in Python, whose calls make inert records and whose memory is counted.

The C unpickler would build a memo as large as the file asks for; and both would hash tuples as deep as the file nests
them, which overflows the C stack.
Here the memo is a dict, and a dict's keys are text or numbers.
Bandit warns of the import (B403); of the module a class is used, of which every call is replaced.
"""

from __future__ import annotations

import pickle  # nosec B403
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

# Memory of what an opcode leaves behind, in bytes; what a number or text has of bytes in the file comes on top. Those
# that leave nothing count as if they did, which bounds time: some 50 million of them to a GiB, less than a minute.
_ANY: Final = 20
_COSTS: Final = {
    **dict.fromkeys(b"JMIFG", 40),
    **dict.fromkeys(b"L\x8a\x8bc\x93", 56),
    **dict.fromkeys(b"STUVX\x8c\x8dBC\x8e\x96", 64),
    **dict.fromkeys(b"]}tld\x85\x86\x87", 72),
    **dict.fromkeys(b"R\x81io", 80),
    **dict.fromkeys(b"pqr\x94", 110),
}
_ITEM: Final = 50
# Costs are reported when they have come to this.
_REPORTED: Final = 1 << 20
_CHUNK: Final = 1 << 20
_MAX_LINE: Final = 1 << 26
# Types allowed as dict keys: these are hashed in bounded time. A tuple's hash takes as long as its nesting.
_KEYS: Final = (str, bytes, int, float, type(None))


# What Python's operations raise of values that they do not expect.
ODD_VALUES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)


class RefusedError(Exception):
    """The pickle would do what data never does; the text goes on from "this pickle"."""


class MalformedError(pickle.UnpicklingError):
    """A pickle of something else than a table, or of parts that do not fit together; the text says which."""


class Record:
    """A call that was recorded: its arguments, and the state set afterwards; what is called is a subclass."""

    __slots__ = ("args", "has_state", "state")

    def __init__(self, *args: object) -> None:
        self.args, self.has_state = args, False
        self.state: object = None

    @property
    def maker(self) -> str:
        """What was called, as the list of allowed names labels it."""
        return type(self).__name__


class _Reader:
    """Reading that trusts no length that the file states before the bytes have arrived."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    def read(self, size: int) -> bytes | bytearray:
        """Read `size` bytes; more than a chunk of them come as one bytearray, grown as they arrive."""
        if size < 0:
            raise MalformedError("a length in it is negative")
        data = self._source.read(min(size, _CHUNK))
        if len(data) == size:
            return data
        # One copy in memory: a growing bytearray of this size is remapped by the allocator, not copied.
        payload = bytearray(data)
        while len(payload) < size:
            chunk = self._source.read(min(_CHUNK, size - len(payload)))
            if not chunk:
                raise MalformedError(
                    f"it is cut short: {len(payload)} of {size} bytes are there"
                )
            payload += chunk
        return payload

    def readline(self) -> bytes:
        """Read a line of text, an argument in protocol 0."""
        line = self._source.readline(_MAX_LINE)
        if not line.endswith(b"\n"):
            raise MalformedError("a line of text in it has no end")
        return line


# Opcodes of protocols 0 to 5 that make plain values, or reach only what is overridden below. A later protocol may have
# others; they are refused.
_AS_THE_LIBRARY: Final = (
    b"\x80\x95.(012N\x88\x89IJKML\x8a\x8bFGSTUVX\x8c\x8dBC\x8e)]}t\x85\x86\x87lpqr\x94ghjc\x93io"
    b"\x82\x83\x84PQ"
)
# The type stubs do not know it, which pandas too builds upon.
_Unpickler: Any = getattr(pickle, "_Unpickler")  # noqa: B009


class Unpickler(_Unpickler):  # type: ignore[misc]
    """Reads one pickle as plain values, and as what the allowed names stand for.

    Parameters
    ----------
    source
        The pickle, read once and forward.
    allowed
        By (module, qualified name): what stands for it.
        Nothing else can be called, since nothing else comes onto the stack.
    take
        Called with bytes of memory as they are needed; raises InputError when they are too many.
    """

    def __init__(
        self,
        source: BinaryIO,
        allowed: Mapping[tuple[str, str], object],
        take: Callable[[int], None],
    ) -> None:
        super().__init__(_Reader(source), encoding="latin-1")
        self._allowed, self._take, self._spent = allowed, take, 0

    def spend(self, size: int) -> None:
        """Count memory."""
        self._spent += size
        if self._spent > _REPORTED:
            self._take(self._spent)
            self._spent = 0

    def find_class(self, module: str, name: str) -> object:
        """Give what stands for an allowed name."""
        if (module, name) not in self._allowed:
            raise RefusedError(f"would call {_printable(f'{module}.{name}')}")
        return self._allowed[module, name]

    def get_extension(self, code: int) -> None:
        """Refuse an extension code."""
        raise RefusedError(
            f"would call whatever is registered under extension code {code}"
        )

    def persistent_load(self, pid: object) -> object:
        """Refuse an object kept elsewhere."""
        name = str(pid) if isinstance(pid, _KEYS) else "?"
        raise RefusedError(f"asks for the persistent object {_printable(name)}")

    def load_buffer(self) -> None:
        """Refuse a buffer kept elsewhere."""
        raise RefusedError("asks for buffers that are kept outside of it")

    def load_unknown(self) -> None:
        """Refuse a byte without meaning."""
        raise MalformedError("a byte in it is no opcode of the pickle language")

    def load_set(self) -> None:
        """Refuse a set, which would hash its items."""
        raise MalformedError("it holds a set, which is not read here")

    def load_reduce(self) -> None:
        """Record a call."""
        args, maker = self.stack.pop(), self.stack.pop()
        if not isinstance(maker, type) or not isinstance(args, tuple):
            raise MalformedError("it calls something that is not a function")
        self.append(maker(*args))

    def _instantiate(self, maker: object, args: list[object]) -> None:
        self.stack += [maker, tuple(args)]
        self.load_reduce()

    def load_newobj_ex(self) -> None:
        """Record a call with keyword arguments, of which there are none."""
        if self.stack.pop() != {}:
            raise MalformedError(
                "it makes an object with keyword arguments, as no table does"
            )
        self.load_reduce()

    def load_build(self) -> None:
        """Record the state of an object."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, Record) or target.has_state:
            raise MalformedError("it sets the state of something that has none")
        target.state, target.has_state = state, True

    def load_append(self) -> None:
        """Append one item to a list."""
        self._extend([self.stack.pop()])

    def load_appends(self) -> None:
        """Append the items since the last mark to a list."""
        self._extend(self.pop_mark())

    def _extend(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise MalformedError("it appends to something that is not a list")
        target.extend(items)

    def load_dict(self) -> None:
        """Make a dict of the items since the last mark."""
        items = self.pop_mark()
        self.append({})
        self._set(items)

    def load_setitem(self) -> None:
        """Set one item of a dict."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self) -> None:
        """Set the items since the last mark."""
        self._set(self.pop_mark())

    def _set(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise MalformedError("it sets items of something that is not a dict")
        self.spend(_ITEM * len(items))
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise MalformedError(
                    f"a dict in it has a key that is neither text nor a number ({type(key).__name__})"
                )
            target[key] = value

    # Bytes of all kinds are read alike: the library's BYTEARRAY8 would reserve what it states.
    dispatch = {  # noqa: RUF012 - as the library has it
        **dict.fromkeys(range(256), load_unknown),
        **{code: _Unpickler.dispatch[code] for code in _AS_THE_LIBRARY},
        **dict.fromkeys(b"\x8f\x90\x91", load_set),
        **dict.fromkeys(b"\x97\x98", load_buffer),
        **dict.fromkeys(b"R\x81", load_reduce),
        ord("\x92"): load_newobj_ex,
        ord("b"): load_build,
        ord("a"): load_append,
        ord("e"): load_appends,
        ord("d"): load_dict,
        ord("s"): load_setitem,
        ord("u"): load_setitems,
        pickle.BYTEARRAY8[0]: _Unpickler.load_binbytes8,
    }


def _counted(
    code: int, load: Callable[[Unpickler], None]
) -> Callable[[Unpickler], None]:
    """Make an operation count the memory of what it leaves."""
    cost = _COSTS.get(code, _ANY)

    def loaded(self: Unpickler) -> None:
        self.spend(cost)
        load(self)

    return loaded


Unpickler.dispatch = {
    code: _counted(code, load) for code, load in Unpickler.dispatch.items()
}


def _printable(text: str) -> str:
    """Cut, and escape what a terminal would act upon."""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 200 else text[:200] + "..."
