"""The data part of the pickle language: an interpreter that records calls and makes none.

`pickle.Unpickler` with an allow-list in `find_class` would still build a memo as large as the file
asks for and hash tuples as deep as the file nests them, and either takes the process down (out of
memory, C stack overflow). This machine bounds both, and it has nothing in it that could import or
call: a GLOBAL becomes a `Name`, a REDUCE becomes a `Made`.

The opcodes are those of Python's `pickletools`, protocols 0 to 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

from bft.models.errors import InputError

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
_MAX_INT_BYTES: Final = 1 << 10
_MARK: Final = object()
# Types allowed as dict keys: these are hashed in bounded time. A tuple's hash takes as long as its nesting.
_KEYS: Final = (str, bytes, int, float, type(None))


class RefusedError(Exception):
    """The pickle would do what data never does; the text goes on from "this pickle"."""


class MalformedError(Exception):
    """Not a pickle, a damaged one, or one whose parts do not fit together; the text says which."""


class Name:
    """An allowed global, by its label in the allow-list; it represents nothing else."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label


class Made:
    """A call that was recorded: the maker's label, its arguments, and the state set afterwards."""

    __slots__ = ("args", "has_state", "maker", "state")

    def __init__(self, maker: str, args: tuple[object, ...]) -> None:
        self.maker, self.args = maker, args
        self.state: object = None
        self.has_state = False


class _Reader:
    """Buffered reading that trusts no length the file states before the bytes have arrived."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._data, self._at, self._start = source, b"", 0, 0

    def _fill(self) -> None:
        """Append a chunk to what is buffered and not yet taken."""
        rest = self._data[self._at :]
        chunk = self._source.read(_CHUNK)
        if not chunk:
            end = self._start + len(self._data)
            raise MalformedError(
                f"it ends after {end} bytes, in the middle of its content"
                if end
                else "it is empty"
            )
        self._start += self._at
        self._data, self._at = rest + chunk, 0

    def byte(self) -> int:
        if self._at >= len(self._data):
            self._fill()
        value = self._data[self._at]
        self._at += 1
        return value

    def take(self, count: int) -> bytes:
        while len(self._data) - self._at < count:
            self._fill()
        self._at += count
        return self._data[self._at - count : self._at]

    def take_large(self, count: int) -> bytes | bytearray:
        """Take `count` bytes; more than a chunk of them come as one bytearray, grown as they arrive."""
        if count <= _CHUNK:
            return self.take(count)
        # One copy in memory: a growing bytearray of this size is remapped by the allocator, not copied.
        payload = bytearray(self._data[self._at : self._at + count])
        self._at += len(payload)
        while len(payload) < count:
            chunk = self._source.read(min(_CHUNK, count - len(payload)))
            if not chunk:
                raise MalformedError(
                    f"it is cut short: {len(payload)} of an array's {count} bytes are there"
                )
            payload += chunk
            self._start += len(chunk)
        return payload

    def number(self, size: int) -> int:
        """Take an unsigned little-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def line(self) -> str:
        """Take a line of text, an argument in protocol 0, without its end."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > _MAX_LINE:
                raise MalformedError("a line of text in it has no end")
            self._fill()
        text, self._at = self._data[self._at : end], end + 1
        return text.decode("raw_unicode_escape")


class _Machine:
    """The stack, the marks and the memo; one method for each family of opcodes."""

    def __init__(
        self,
        source: BinaryIO,
        names: Mapping[tuple[str, str], str],
        take: Callable[[int], None],
    ) -> None:
        self.reader, self.names, self.take = _Reader(source), names, take
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        byte, stack, costs = self.reader.byte, self.stack, _COSTS
        spent = 0
        while True:
            code = byte()
            spent += costs.get(code, _ANY)
            if spent > _REPORTED:
                self.take(spent)
                spent = 0
            if code == _STOP:
                if len(stack) != 1:
                    raise MalformedError("it ends without exactly one object")
                return stack[0]
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise MalformedError(
                    f"no opcode of the pickle language is 0x{code:02x}"
                )
            operation(self)

    def _items(self) -> list[object]:
        """Pop everything above the topmost mark, and the mark."""
        index = len(self.stack) - 1
        while self.stack[index] is not _MARK:
            index -= 1
            if index < 0:
                raise IndexError
        items = self.stack[index + 1 :]
        del self.stack[index:]
        return items

    def _pop(self) -> object:
        value = self.stack.pop()
        if value is _MARK:
            raise IndexError
        return value

    def _top(self) -> object:
        return self.stack[-1]

    # Values

    def int_line(self) -> None:
        text = self.reader.line()
        self.stack.append(
            {"00": False, "01": True}[text] if text in ("00", "01") else int(text)
        )

    def long_line(self) -> None:
        self.stack.append(int(self.reader.line().removesuffix("L")))

    def long_binary(self, size: int) -> None:
        count = self.reader.number(size)
        if count > _MAX_INT_BYTES:
            raise MalformedError(f"it holds an integer of {count} bytes")
        self.stack.append(
            int.from_bytes(self.reader.take(count), "little", signed=True)
        )

    def string_line(self) -> None:
        # Strings of Python 2 occur only in old hand-made pickles; their escapes are not parsed.
        text = self.reader.line()
        if len(text) < 2 or text[0] not in "\"'" or text[0] != text[-1] or "\\" in text:
            raise MalformedError("it holds a string as Python 2 wrote it")
        self.stack.append(text[1:-1])

    def text(self, size: int) -> None:
        self.stack.append(
            self.reader.take_large(self.reader.number(size)).decode(
                "utf-8", "surrogatepass"
            )
        )

    def string(self, size: int) -> None:
        self.stack.append(
            self.reader.take_large(self.reader.number(size)).decode("latin-1")
        )

    def binary(self, size: int) -> None:
        self.stack.append(self.reader.take_large(self.reader.number(size)))

    # Containers

    def mark_tuple(self) -> None:
        self.stack.append(tuple(self._items()))

    def short_tuple(self, count: int) -> None:
        items = self.stack[-count:]
        if len(items) < count or _MARK in items:
            raise IndexError
        self.stack[-count:] = [tuple(items)]

    def mark_list(self) -> None:
        self.stack.append(self._items())

    def mark_dict(self) -> None:
        items = self._items()
        self.stack.append({})
        self._set(items)

    def append(self) -> None:
        self._extend([self._pop()])

    def appends(self) -> None:
        self._extend(self._items())

    def _extend(self, items: list[object]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise MalformedError("it appends to something that is not a list")
        target.extend(items)

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def set_items(self) -> None:
        self._set(self._items())

    def _set(self, items: list[object]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(items) % 2:
            raise MalformedError("it sets items of something that is not a dict")
        self.take(_ITEM * len(items))
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _KEYS):
                raise MalformedError(
                    f"a dict in it has a key that is neither text nor a number ({type(key).__name__})"
                )
            target[key] = value

    def a_set(self) -> None:
        raise MalformedError("it holds a set, which is not read here")

    # The memo and the stack

    def put(self, index: int) -> None:
        self.memo[index] = self._top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise MalformedError(
                f"it refers to object {index} of its memo, which it has not put there"
            )
        self.stack.append(self.memo[index])

    # Globals that a pickle may name, and calls it may ask for

    def _name(self, module: str, name: str) -> Name:
        label = self.names.get((module, name))
        if label is None:
            raise RefusedError(f"would call {_printable(f'{module}.{name}')}")
        return Name(label)

    def global_line(self) -> None:
        module = self.reader.line()
        self.stack.append(self._name(module, self.reader.line()))

    def global_stack(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise MalformedError("it names a function by something that is not text")
        self.stack.append(self._name(module, name))

    def _make(self, maker: object, args: object) -> None:
        if not isinstance(maker, Name) or not isinstance(args, tuple):
            raise MalformedError("it calls something that is not a function")
        self.stack.append(Made(maker.label, args))

    def reduce(self) -> None:
        args = self._pop()
        self._make(self._pop(), args)

    def new_with_keywords(self) -> None:
        if self._pop() != {}:
            raise MalformedError(
                "it makes an object with keyword arguments, as no table does"
            )
        self.reduce()

    def instance_line(self) -> None:
        module = self.reader.line()
        maker = self._name(module, self.reader.line())
        self._make(maker, tuple(self._items()))

    def instance(self) -> None:
        items = self._items()
        self._make(items[0], tuple(items[1:]))

    def build(self) -> None:
        state, target = self._pop(), self._top()
        if not isinstance(target, Made) or target.has_state:
            raise MalformedError("it sets the state of something that has none")
        target.state, target.has_state = state, True

    def extension(self, size: int) -> None:
        raise RefusedError(
            f"would call whatever is registered under extension code {self.reader.number(size)}"
        )

    def persistent_line(self) -> None:
        raise RefusedError(
            f"asks for the persistent object {_printable(self.reader.line())}"
        )

    def persistent(self) -> None:
        pid = self._pop()
        raise RefusedError(
            f"asks for the persistent object {_printable(str(pid) if isinstance(pid, _KEYS) else '?')}"
        )

    def out_of_band(self) -> None:
        raise RefusedError("asks for buffers that are kept outside of it")


def _printable(text: str) -> str:
    """Cut, and escape what a terminal would act upon."""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 200 else text[:200] + "..."


_BY_CODE: Final[Mapping[bytes, Callable[[_Machine], object]]] = {
    b"\x80": lambda s: s.reader.byte(),  # PROTO
    b"\x95": lambda s: s.reader.take(
        8
    ),  # FRAME: a hint for reading ahead, which we do anyway
    b"(": lambda s: s.stack.append(_MARK),
    b"0": lambda s: s.stack.pop(),
    b"1": _Machine._items,  # POP_MARK
    b"2": lambda s: s.stack.append(s._top()),
    b"N": lambda s: s.stack.append(None),
    b"\x88": lambda s: s.stack.append(True),
    b"\x89": lambda s: s.stack.append(False),
    b"I": _Machine.int_line,
    b"J": lambda s: s.stack.append(
        int.from_bytes(s.reader.take(4), "little", signed=True)
    ),
    b"K": lambda s: s.stack.append(s.reader.byte()),
    b"M": lambda s: s.stack.append(s.reader.number(2)),
    b"L": _Machine.long_line,
    b"\x8a": lambda s: s.long_binary(1),
    b"\x8b": lambda s: s.long_binary(4),
    b"F": lambda s: s.stack.append(float(s.reader.line())),
    b"G": lambda s: s.stack.append(struct.unpack(">d", s.reader.take(8))[0]),
    b"S": _Machine.string_line,
    b"T": lambda s: s.string(4),
    b"U": lambda s: s.string(1),
    b"V": lambda s: s.stack.append(s.reader.line()),
    b"X": lambda s: s.text(4),
    b"\x8c": lambda s: s.text(1),
    b"\x8d": lambda s: s.text(8),
    b"B": lambda s: s.binary(4),
    b"C": lambda s: s.binary(1),
    b"\x8e": lambda s: s.binary(8),
    b"\x96": lambda s: s.binary(8),  # BYTEARRAY8
    b")": lambda s: s.stack.append(()),
    b"]": lambda s: s.stack.append([]),
    b"}": lambda s: s.stack.append({}),
    b"t": _Machine.mark_tuple,
    b"\x85": lambda s: s.short_tuple(1),
    b"\x86": lambda s: s.short_tuple(2),
    b"\x87": lambda s: s.short_tuple(3),
    b"l": _Machine.mark_list,
    b"d": _Machine.mark_dict,
    b"a": _Machine.append,
    b"e": _Machine.appends,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
    b"\x8f": _Machine.a_set,
    b"\x90": _Machine.a_set,
    b"\x91": _Machine.a_set,
    b"p": lambda s: s.put(int(s.reader.line())),
    b"q": lambda s: s.put(s.reader.byte()),
    b"r": lambda s: s.put(s.reader.number(4)),
    b"\x94": lambda s: s.put(len(s.memo)),
    b"g": lambda s: s.get(int(s.reader.line())),
    b"h": lambda s: s.get(s.reader.byte()),
    b"j": lambda s: s.get(s.reader.number(4)),
    b"c": _Machine.global_line,
    b"\x93": _Machine.global_stack,
    b"R": _Machine.reduce,
    b"\x81": _Machine.reduce,  # NEWOBJ
    b"\x92": _Machine.new_with_keywords,
    b"i": _Machine.instance_line,
    b"o": _Machine.instance,
    b"b": _Machine.build,
    b"\x82": lambda s: s.extension(1),
    b"\x83": lambda s: s.extension(2),
    b"\x84": lambda s: s.extension(4),
    b"P": _Machine.persistent_line,
    b"Q": _Machine.persistent,
    b"\x97": _Machine.out_of_band,
    b"\x98": _Machine.out_of_band,
}
_STOP: Final = ord(".")
_OPERATIONS: Final = {code[0]: operation for code, operation in _BY_CODE.items()}


def record(
    source: BinaryIO,
    names: Mapping[tuple[str, str], str],
    take: Callable[[int], None] = lambda size: None,
) -> object:
    """Read one pickle as a tree of plain values, `Name` and `Made`.

    Parameters
    ----------
    source
        The pickle, read once and forward; what follows its end is left alone, up to a chunk.
    names
        The allow-list: (module, qualified name) to a label of the caller's.
    take
        Called with bytes of memory as they are needed; raises InputError when they are too many.

    Returns
    -------
    object
        None, bool, int, float, str, bytes, bytearray (binary of over 1 MiB), list, tuple, dict with
        scalar keys, `Name`, `Made`; possibly shared or containing itself.

    Raises
    ------
    RefusedError
        For a name outside of the allow-list, an extension code, a persistent object.
    MalformedError
        For everything that is not a well-formed pickle within bounds.
    """
    try:
        return _Machine(source, names, take).run()
    except InputError:  # of the bounds
        raise
    except IndexError:
        raise MalformedError(
            "it takes more from its stack than it has put there"
        ) from None
    except (ValueError, OverflowError) as error:  # numbers and UTF-8 that are none
        raise MalformedError(f"a value in it is not readable ({error})") from None
