"""Times in logs, and time limits of jobs, as schedulers write them: columns of text as UTC nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.models import InputError
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
# Nanoseconds in 64 bits end in 2262; no scheduler's log is older than 1970.
MOST_EPOCH_S: Final = 9_200_000_000
_FIRST_S, _HOUR_S = 365 * 86_400, 3600
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_TEXT = re.compile(r"(\d{9,10})(?:\.(\d{1,9})\d*)?", re.ASCII)
_UTC = re.compile(r" ?(z|UTC|GMT)$")
_FRACTION = re.compile(r"[.,](\d{1,9})\d*")
# Digits of an epoch of our time in units that are finer than those a log has.
_FINER = {13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}


class Times(NamedTuple):
    """UTC nanoseconds of each cell, `NONE` where it states none; and where it holds what is no time."""

    ns: Whole
    bad: Mask


def distinct(values: Whole) -> Whole:
    """The different values, ascending; for many of them a sort is faster than NumPy's hashes."""
    ordered: Whole = np.sort(values)
    each: Whole = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return each


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
        self.zone: tzinfo = UTC if zone is None else _zone(zone)
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
        local = np.full(len(texts), NONE, dtype=np.int64)
        ns = local.copy()
        usual = lengths == 19
        if not _read_stamps(texts, usual, local):
            usual[:] = False
        usual |= _read_epochs(texts, lengths == 10, ns)
        rest = np.flatnonzero(~usual & (lengths > 0))
        bad = np.zeros(len(texts), dtype=bool)
        if len(rest):
            cells = texts.take(pa.array(rest)).dictionary_encode()
            read = [_odd(text) for text in cells.dictionary.to_pylist()]
            which = cells.indices.to_numpy()
            kinds = np.array([kind for kind, _, _ in read])[which]
            values = np.array([seconds for _, seconds, _ in read])[which]
            below = np.array([fraction for *_, fraction in read])[which]
            local[rest[kinds == "local"]] = values[kinds == "local"]
            ns[rest[kinds == "utc"]] = values[kinds == "utc"] * SECOND_NS
            bad[rest[kinds == "bad"]] = True
        stated = np.flatnonzero(local != NONE)
        if len(stated):
            least = None if not_before is None else not_before[stated]
            ns[stated] = self._utc(local[stated], stated, len(texts), note, least)
        if len(rest):
            ns[rest] += np.where(ns[rest] == NONE, 0, below)
        return Times(ns, bad)

    def _utc(
        self,
        local: Whole,
        rows: Whole,
        total: int,
        note: Callable[[Mask, str], None],
        not_before: Whole | None,
    ) -> Whole:
        """UTC nanoseconds of local seconds; `rows` of `total` are those that `note` is told of."""

        def tell(mine: Mask, why: str) -> None:
            told = np.zeros(total, dtype=bool)
            told[rows[mine]] = True
            note(told, why)

        if self._is_guess:
            self._is_guess = False
            first = np.arange(len(rows)) == 0
            tell(
                first,
                "times state no zone and are taken as UTC: --tz names the machine's",
            )
        if self.zone is UTC:
            return local * SECOND_NS
        hours = local // _HOUR_S
        low = int(hours.min())
        met = np.flatnonzero(np.bincount(hours - low)) + low
        offsets = np.zeros(int(met[-1]) - low + 1, dtype=np.int64)
        changed = np.zeros(len(offsets), dtype=bool)
        for hour in met.tolist():
            found = {
                self._offset(second, fold)
                for second in (hour * _HOUR_S, hour * _HOUR_S + 3599)
                for fold in (0, 1)
            }
            offsets[hour - low], changed[hour - low] = found.pop(), bool(found)
        utc = local - offsets[hours - low]
        odd = np.flatnonzero(changed[hours - low])
        if len(odd):
            seconds, which = np.unique(local[odd], return_inverse=True)
            first, second = (
                np.array(
                    [each - self._offset(each, fold) for each in seconds.tolist()]
                )[which]
                for fold in (0, 1)
            )
            jumped, twice = (
                np.zeros(len(local), dtype=bool),
                np.zeros(len(local), dtype=bool),
            )
            jumped[odd], twice[odd] = first > second, first < second
            later = np.zeros(len(odd), dtype=bool)
            if not_before is not None:
                later = (first < second) & (first * SECOND_NS < not_before[odd])
            utc[odd] = np.where(later, second, first)
            if jumped.any():
                tell(jumped, "a local time does not exist: clocks went forward over it")
            if twice.any():
                tell(twice, "a local time came twice, when clocks went back")
        return utc * SECOND_NS

    def _offset(self, local_s: int, fold: int) -> int:
        """Seconds that local time is ahead of UTC."""
        naive = datetime(1970, 1, 1) + timedelta(seconds=local_s)
        ahead = naive.replace(tzinfo=self.zone, fold=fold).utcoffset()
        return 0 if ahead is None else round(ahead.total_seconds())


def _read_stamps(texts: pa.Array, usual: Mask, into: Whole) -> bool:
    """Read the cells of the usual length as local seconds; False where any of them is something else."""
    if not usual.any():
        return True
    told = texts if usual.all() else pc.if_else(pa.array(usual), texts, None)
    try:
        seconds = told.cast(pa.timestamp("s")).cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    found = pc.fill_null(seconds, NONE).to_numpy()
    # Rows of 1970 stand for no time.
    usual &= (found >= _FIRST_S) & (found < MOST_EPOCH_S)
    into[usual] = found[usual]
    return True


def _read_epochs(texts: pa.Array, mine: Mask, into: Whole) -> Mask:
    """Read cells of ten digits as seconds since 1970; returns which were read."""
    if mine.any():
        told = texts if mine.all() else pc.if_else(pa.array(mine), texts, None)
        try:
            seconds = pc.fill_null(told.cast(pa.int64()), NONE).to_numpy()
        except pa.ArrowInvalid:
            return np.zeros(len(mine), dtype=bool)
        mine = mine & (seconds > 0) & (seconds < MOST_EPOCH_S)
        into[mine] = seconds[mine] * SECOND_NS
    return mine


def _odd(text: str) -> tuple[str, int, int]:
    """Return what a cell of an unusual form holds: none, local, utc or bad; seconds, and nanoseconds below."""
    text = text.strip()
    if is_missing(text):
        return "none", NONE, 0
    epoch = _EPOCH_TEXT.fullmatch(text)
    if epoch:
        whole, below = int(epoch[1]), int((epoch[2] or "0").ljust(9, "0"))
        return ("utc", whole, below) if 0 < whole < MOST_EPOCH_S else ("bad", NONE, 0)
    text = _UTC.sub("Z", text)
    # Python knows stamps such as 2021W07 and days without a time; they are none of a scheduler's.
    if (
        len(text) < 16
        or text[4] != "-"
        or text[7] != "-"
        or text[10] not in "T "
        or not text.isascii()
    ):
        return "bad", NONE, 0
    fraction = _FRACTION.search(text, 16)
    below = 0
    if fraction:
        below = int(fraction[1].ljust(9, "0"))
        text = text[: fraction.start()] + text[fraction.end() :]
    try:
        stamp = datetime.fromisoformat(text)
        since = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return "bad", NONE, 0
    if not 1970 < stamp.year < 2262:
        return "bad", NONE, 0
    return (
        ("utc" if stamp.tzinfo else "local"),
        since.days * 86_400 + since.seconds,
        below,
    )


def is_missing(text: str) -> bool:
    """Whether a text stands for a time that is not known, or that has not come.

    >>> is_missing("Unknown"), is_missing("1970-01-01 01:00:00"), is_missing("soon")
    (True, True, False)
    """
    return text in MISSING or text.startswith(_EPOCH_DAYS)


def are_missing(column: pa.Array) -> Mask:
    """Where a column has texts that stand for no time, see `is_missing`."""
    found = pc.is_in(column, pa.array(sorted(MISSING)))
    for day in _EPOCH_DAYS:
        found = pc.or_(found, pc.starts_with(column, day))
    missing: Mask = found.to_numpy(zero_copy_only=False)
    return missing


def no_time(text: str) -> str:
    """Describe for a message what a column of times holds instead, and what it looks like."""
    shown = ascii(text[:80])
    whole = text.strip().partition(".")[0]
    unit = _FINER.get(len(whole)) if whole.isdecimal() else None
    if unit is None and whole.removeprefix("-").isdecimal():
        return f"{shown}: expected seconds since 1970, or 2024-01-31T12:00:00"
    if unit is None:
        return shown
    return f"{shown} looks like {unit} since 1970: expected seconds, or 2024-01-31T12:00:00"


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InputError(
            f"--tz: unknown time zone {name!r}",
            hint="names are such as UTC, Europe/Berlin or America/Chicago",
        ) from error


# What Slurm writes instead of a limit.
UNLIMITED: Final = frozenset({"UNLIMITED", "Partition_Limit", "INVALID"})
_LIMIT = re.compile(
    r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(?:(\d{1,6}):)?(\d{1,9})(?:\.\d+)?", re.ASCII
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
    days, first, second, last = match.groups()
    if first is None:
        if days is not None:
            return NONE
        return int(last) * (60 if minutes else 1) * SECOND_NS
    hours, middle = (int(first), int(second)) if second is not None else (0, int(first))
    return (((int(days or 0) * 24 + hours) * 60 + middle) * 60 + int(last)) * SECOND_NS


def limits(texts: pa.Array, *, minutes: bool = False) -> Times:
    """Nanoseconds of each limit, `NONE` without one; and where a cell holds neither a limit nor a word for none."""
    cells = texts.dictionary_encode()
    words = cells.dictionary.to_pylist()
    read = np.array(
        [limit_ns(word, minutes=minutes) or NONE for word in words] or [NONE]
    )
    fine = np.array(
        [word in UNLIMITED or is_missing(word) or limit_ns(word) == 0 for word in words]
        or [True]
    )
    which = cells.indices.to_numpy()
    return Times(read[which], (read == NONE)[which] & ~fine[which])
