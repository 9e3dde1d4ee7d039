"""JSON of schedulers, one object at a time, so that a month of jobs need not fit the memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from bft.models import InputError
from bft.replay.logs.hostlists import HostListError
from bft.replay.logs.reading import Reading
from bft.replay.logs.records import LeftOut, Unusable
from bft.replay.logs.times import MOST_EPOCH_S
from bft.replay.trace.node_trace import SECOND_NS

# A job takes some 10 kB, with 10,000 steps some 30 MB; as Python's values at most 25 times as much.
MOST_ELEMENT = 32 << 20
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
# What an object of another shape raises in a reader that takes it for granted.
MISSHAPEN = (KeyError, TypeError, AttributeError, IndexError)


def each_object(
    reading: Reading,
    record: Callable[[dict[str, Any], str, int], None],
    *,
    keys: Collection[str] | None,
    expected: str,
    command: str,
) -> None:
    """Give each object to `record`, with its key and line, and account for it.

    Parameters
    ----------
    reading
        As every reader has it.
    record
        Uses the object, or raises `Unusable` or `LeftOut`.
    keys
        As `elements` has them.
    expected
        What an object of another shape is not, for a message.
    command
        What exports such a file.

    Raises
    ------
    InputError
        When there is no such object.
    """
    file, diagnosis = reading.file, reading.diagnosis
    for number, name, text in elements(reading.lines, keys, file, command, bare=True):
        diagnosis.lines += 1
        diagnosis.rows += 1
        try:
            record(json.loads(text), name, number)
        except InputError:  # of the whole log, such as too many nodes; it is a ValueError as well
            raise
        except Unusable as why:
            diagnosis.skip(why.reason, file, number, why.detail)
        except LeftOut as why:
            diagnosis.leave_out(str(why), file, number)
        except HostListError as error:
            diagnosis.skip("holds no names of nodes", file, number, str(error))
        except (ValueError, RecursionError) as error:
            diagnosis.skip("is not JSON", file, number, str(error))
        except MISSHAPEN as error:
            diagnosis.skip(f"is no {expected}", file, number, repr(error)[:200])
        else:
            diagnosis.used += 1


def instant_ns(value: object) -> int | None:
    """UTC nanoseconds of seconds since 1970, with a fraction or without; None for 0 and for what is missing.

    Raises
    ------
    TypeError
        When it is no time.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no time in seconds since 1970")
    if not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no time in seconds since 1970")
    whole = math.floor(value)
    return whole * SECOND_NS + round((value - whole) * 1_000_000) * 1000 or None


def elements(
    lines: Iterable[str], keys: Collection[str] | None, file: str, command: str, *, bare: bool = False
) -> Iterator[tuple[int, str, str]]:
    """Each object in the list, or in the object, that the outermost object has under one of the keys.

    Yields the line on which it begins, its own key (empty in a list), and its text. `command` exports such a file.

    Parameters
    ----------
    lines
        Of the file; several JSON texts may follow one another.
    keys
        None: all objects that the outermost object holds, whatever their keys.
    file, command
        For messages.
    bare
        Also the objects of an outermost list, and outermost objects that have none of the keys.

    Raises
    ------
    InputError
        When there is no such object or list, or an object in it has no end within reason.
    """
    depth = begun = size = level = 0
    last, name, outer, inside, seen = "", "", "", False, False
    pieces: list[str] = []
    for number, line in enumerate(lines, 1):
        begin = 0  # what of this line belongs to the object begun
        for token in _TOKENS.finditer(line):
            kind = token[0][0]
            if kind == '"':
                if depth == 1:
                    last, name = token[0][1:-1], ""
                elif depth == 2 and inside:
                    name = token[0][1:-1]
            elif kind in "{[":
                depth += 1
                starts = 0
                if depth == 1:
                    outer = kind
                    inside = False
                    starts = int(bare and kind == "{" and keys is not None)
                    last = name = ""
                elif depth == 2 and outer == "[":
                    starts = 2 * (bare and kind == "{")
                elif depth == 2 and keys is None:
                    name, starts = last, 2 * (kind == "{")
                elif depth == 2:
                    inside = last in (keys or ())
                    if inside:
                        seen, begun, pieces = True, 0, []
                elif depth == 3 and inside and kind == "{":
                    starts = 3
                if starts:
                    begun, begin, size, level = number, token.start(), 0, starts
                    seen = True
            else:
                depth = max(0, depth - 1)
                if begun and depth == level - 1:
                    yield begun, name if level > 1 else "", "\n".join([*pieces, line[begin : token.end()]])
                    begun, pieces = 0, []
                if depth == 1:
                    inside = False
        if begun:
            pieces.append(line[begin:])
            size += len(line) - begin + 1
            if size > MOST_ELEMENT:
                raise InputError(f"line {begun}: an object here has no end", file=file)
    if begun:
        yield begun, name if level > 1 else "", "\n".join(pieces)
    if not seen:
        wanted = f"with a list {' or '.join(map(repr, keys))}" if keys else "of objects"
        raise InputError(f"is not JSON {wanted}", file=file, hint=f"export with {command}")
