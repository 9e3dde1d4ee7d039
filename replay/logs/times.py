"""Times in logs, and time limits of jobs, as schedulers write them: columns of text as UTC nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.checks import did_you_mean
from bft.replay.trace.node_trace import SECOND_NS

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]
# Of a time that is not stated; and the end of what is still running when the log ends.
NONE: Final = -1
OPEN: Final = 2**63 - 1
# What schedulers write where they know no time, and what dumps of their data bases have for it.
MISSING: Final = frozenset(
    {"", "Unknown", "None", "N/A", "NONE", "UNKNOWN", "(null)", "-", "0", "NULL", "\\N", "0.0"}
)  # fmt: skip
# 0 as a data base prints it where times are converted: near the begin of 1970, by the zone.
_EPOCH_DAYS = ("1970-01-01", "1969-12-31")
# Nanoseconds in 64 bits end in 2262; no scheduler's log is older than 1971.
MOST_EPOCH_S: Final = 9_200_000_000
_FIRST_S, _DAY_S = 365 * 86_400, 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_TEXT = re.compile(r"(\d{9,10})(?:\.(\d{1,9})\d*)?", re.ASCII)
# Python knows stamps such as 2021W07 and days without a time; they are none of a scheduler's.
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:[^.,]*?)(?:[.,](\d{1,9})\d*)?( ?(?:z|Z|UTC|GMT|[+-]\d\d[\d:]*))?", re.ASCII
)  # fmt: skip


class Times(NamedTuple):
    """UTC nanoseconds of each cell, `NONE` where it states none; and where it holds what is no time."""

    ns: Whole
    bad: Mask


def by_word(column: pa.Array, of: Callable[[str], Any]) -> NDArray[Any]:
    """What a function returns for each cell of a column of text; it is called once a word.

    >>> by_word(pa.array(["a", "bb", "a"]), len).tolist()
    [1, 2, 1]
    """
    cells = column.dictionary_encode()
    words = cells.dictionary.to_pylist() or [""]
    found: NDArray[Any] = np.array([of(word) for word in words])[cells.indices]
    return found


class Clock:
    """Turns the times of a log into UTC nanoseconds.

    Local times are ambiguous during the hour that is repeated when clocks go back: the first pass is taken, unless
    that would be before the start, where the end is read; they do not exist in the hour that is left out when clocks
    go forward: they are taken as if the clocks had not been changed yet. Both are noted.

    Parameters
    ----------
    zone
        The zone of times that state none, such as Europe/Berlin; None: UTC, which is noted as a guess.

    Examples
    --------
    >>> Clock("Europe/Berlin").times(pa.array(["2021-02-10T01:00:00", "Unknown"])).ns.tolist()
    [1612915200000000000, -1]
    """

    def __init__(self, zone: str | None) -> None:
        try:
            self.zone: tzinfo = UTC if zone is None else ZoneInfo(zone)
        except (KeyError, ValueError, OSError) as error:
            raise InputError(
                f"--tz: unknown time zone {zone!r}{did_you_mean(zone, available_timezones())}",
                hint="names are such as UTC, Europe/Berlin or America/Chicago",
            ) from error
        self._is_guess = zone is None

    def time(self, text: str, note: Callable[[str], None] = lambda why: None) -> int:
        """UTC nanoseconds of one text, `NONE` where it is no time."""
        column = pa.array([text.encode("utf-8", "replace").decode()])
        return int(self.times(column, lambda rows, why: note(why)).ns[0])

    def times(
        self,
        texts: pa.Array,
        note: Callable[[Mask, str], None] = lambda rows, why: None,
        not_before: Whole | None = None,
    ) -> Times:
        """Read ISO stamps (T or blank, fraction and zone optional) and seconds since 1970, with a fraction or not.

        Parameters
        ----------
        texts
            The cells; empty ones, and what schedulers write for no time (`MISSING`), state none.
        note
            Is told which rows something is worth telling of, and what.
        not_before
            Starts, where the ends are read, UTC nanoseconds.
        """
        lengths = pc.binary_length(texts).to_numpy()
        local = _cast(texts, lengths == 19, pa.timestamp("s"), _FIRST_S)
        utc = _cast(texts, lengths == 10, pa.int64(), 1)
        below = np.zeros(len(texts), dtype=np.int64)
        bad = np.zeros(len(texts), dtype=bool)
        rest = np.flatnonzero((local == NONE) & (utc == NONE) & (lengths > 0))
        if len(rest):
            read = by_word(texts.take(pa.array(rest)), _odd)
            local[rest], utc[rest], below[rest] = read[:, :3].T
            bad[rest] = read[:, 3]
        stated = local != NONE
        if stated.any():
            utc[stated] = self._utc(local, stated, note, not_before)[stated]
        return Times(np.where(utc == NONE, NONE, utc * SECOND_NS + below), bad)

    def _utc(
        self,
        local: Whole,
        stated: Mask,
        note: Callable[[Mask, str], None],
        not_before: Whole | None,
    ) -> Whole:
        """UTC seconds of local ones, where they are stated."""
        if self._is_guess:
            self._is_guess = False
            first = np.arange(len(local)) == stated.argmax()
            why = "times state no zone and are taken as UTC: --tz names the machine's"
            note(first, why)
        if self.zone is UTC:
            return local
        days = local[stated] // _DAY_S
        offset, *changes = _changes(self.zone, int(days.min()), int(days.max()))
        at, before, after = np.array(changes, dtype=np.int64).reshape(-1, 3).T
        offsets = np.append(offset[2], after)
        # Of the two passes of a time that comes twice the first ends later by the clock, and the second begins earlier.
        ahead = np.maximum(before, after), np.minimum(before, after)
        first, second = (
            local - offsets[np.searchsorted(at + by, local, side="right")]
            for by in ahead
        )
        twice = stated & (first < second)
        jumped = stated & (first > second)
        for rows, why in (
            (jumped, "a local time does not exist: clocks went forward over it"),
            (twice, "a local time came twice, when clocks went back"),
        ):
            if rows.any():
                note(rows, why)
        least = 0 if not_before is None else not_before
        utc: Whole = np.where(twice & (first * SECOND_NS < least), second, first)
        return utc


@cache
def _changes(zone: tzinfo, first: int, last: int) -> list[tuple[int, int, int]]:
    """When clocks change between two days since 1970: UTC seconds, how far they are ahead before and from then on.

    The first entry is none, and says how far they are ahead at the begin.
    """

    def ahead(seconds: int) -> int:
        offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone).utcoffset()
        return round((offset or timedelta()).total_seconds())

    begin = (first - 2) * _DAY_S
    found = [(begin, ahead(begin), ahead(begin))]
    for low in range(begin, (last + 3) * _DAY_S, _DAY_S):
        before = found[-1][2]
        if ahead(low + _DAY_S) != before:
            minutes = range(low, low + _DAY_S + 1, 60)
            at = next(second for second in minutes if ahead(second) != before)
            found.append((at, before, ahead(at)))
    return found


def _cast(texts: pa.Array, mine: Mask, kind: pa.DataType, least: int) -> Whole:
    """The cells of one length as seconds, `NONE` where they are none; of all where Arrow cannot read one."""
    nothing = np.full(len(texts), NONE, dtype=np.int64)
    if not mine.any():
        return nothing
    try:
        told = pc.if_else(pa.array(mine), texts, None).cast(kind)
    except pa.ArrowInvalid:
        return nothing
    seconds = pc.fill_null(told.cast(pa.int64()), NONE).to_numpy()
    fine = (seconds >= least) & (seconds < MOST_EPOCH_S)
    return np.where(fine, seconds, nothing)


def _odd(text: str) -> tuple[int, int, int, bool]:
    """Local or UTC seconds of a cell of an unusual form, nanoseconds below, and whether it is neither time nor none."""
    text = text.strip()
    no_time = NONE, NONE, 0, not is_missing(text)
    epoch, stamp = _EPOCH_TEXT.fullmatch(text), _STAMP.fullmatch(text)
    if epoch and 0 < int(epoch[1]) < MOST_EPOCH_S:
        return NONE, int(epoch[1]), int((epoch[2] or "0").ljust(9, "0")), False
    if stamp is None:
        return no_time
    zone = (stamp[3] or "").strip()
    try:
        time = datetime.fromisoformat(stamp[1] + ("Z" if zone.isalpha() else zone))
    except ValueError:
        return no_time
    if not 1970 < time.year < 2262:
        return no_time
    since = (time if zone else time.replace(tzinfo=UTC)) - _EPOCH
    seconds, below = since // timedelta(seconds=1), int((stamp[2] or "0").ljust(9, "0"))
    return (NONE, seconds, below, False) if zone else (seconds, NONE, below, False)


def is_missing(text: str) -> bool:
    """Whether a text stands for a time that is not known, or that has not come.

    >>> is_missing("Unknown"), is_missing("1970-01-01 01:00:00"), is_missing("soon")
    (True, True, False)
    """
    return text in MISSING or text.startswith(_EPOCH_DAYS)


def are_missing(column: pa.Array) -> Mask:
    """Where a column has texts that stand for no time, see `is_missing`."""
    words = pc.is_in(column, pa.array(sorted(MISSING)))
    days = pc.or_(*(pc.starts_with(column, day) for day in _EPOCH_DAYS))
    missing: Mask = pc.or_(words, days).to_numpy(zero_copy_only=False)
    return missing


def no_time(text: str) -> str:
    """Describe for a message what a column of times holds instead."""
    return f"{text[:80]!a}: expected 2024-01-31T12:00:00, or seconds (no milliseconds) since 1970"


# What Slurm writes instead of a limit.
UNLIMITED: Final = frozenset({"UNLIMITED", "Partition_Limit", "INVALID"})
_LIMIT = re.compile(
    r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(?:(\d{1,6}):)?(\d{1,9})(?:\.\d+)?", re.ASCII
)


def limit_ns(text: str, *, minutes: bool = False) -> int:
    """Nanoseconds of [DAYS-]HOURS:MINUTES:SECONDS, MINUTES:SECONDS or SECONDS; `NONE` when a text is none of these.

    Parameters
    ----------
    text
        As a scheduler prints it.
    minutes
        A single number is of minutes, as in Slurm's TimelimitRaw.

    Examples
    --------
    >>> [limit_ns(text) // 10**9 for text in ("1-00:30:00", "02:00:00", "10:00", "90")]
    [88200, 7200, 600, 90]
    >>> limit_ns("UNLIMITED")
    -1
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        return NONE
    days, first, second, last = (int(part or 0) for part in match.groups())
    if match[2] is None:
        return last * (60 if minutes else 1) * SECOND_NS
    hours, middle = (first, second) if match[3] else (0, first)
    return (((days * 24 + hours) * 60 + middle) * 60 + last) * SECOND_NS


def limits(texts: pa.Array, *, minutes: bool = False) -> Times:
    """Nanoseconds of each limit, `NONE` without one; and where a cell holds neither a limit nor a word for none."""
    ns = by_word(texts, lambda word: limit_ns(word, minutes=minutes))
    none = by_word(texts, lambda word: word in UNLIMITED or is_missing(word))
    return Times(np.where(ns > 0, ns, NONE), (ns == NONE) & ~none)
