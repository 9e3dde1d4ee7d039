"""Times in logs, and time limits of jobs, as schedulers write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from bft.models import InputError
from bft.models.cells import read_number
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.trace.node_trace import SECOND_NS

# What schedulers write where they know no time, and what dumps of their data bases have for it.
MISSING = frozenset(
    {"", "Unknown", "None", "N/A", "NONE", "UNKNOWN", "(null)", "-", "0", "NULL", "\\N"}
)
# 0 as a data base prints it where times are converted: near the begin of 1970, by the zone.
_EPOCH_DAYS = ("1970-01-01", "1969-12-31")
# Nanoseconds in 64 bits end in 2262; no scheduler's log is older than 1970.
MOST_EPOCH_S = 9_200_000_000
_TAILS = {
    f":{m:02}:{s:02}": (60 * m + s) * SECOND_NS for m in range(60) for s in range(60)
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)
_CACHED_HOURS = 100_000
_EPOCH_FRACTION = re.compile(r"(\d{9,10})\.(\d+)", re.ASCII)
# Digits of an epoch of our time in units that are finer than those a log has.
_FINER = {13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}
_UTC = re.compile(r" ?(z|UTC|GMT)$")
_FRACTION = re.compile(r"[.,](\d{1,9})\d*")


class Clock:
    """Turns the times of a log into UTC nanoseconds.

    Local times are ambiguous during the hour that is repeated when clocks go back: the first pass is taken, unless
    that would be before `not_before` (the start, where the end is read); they do not exist in the hour that is left
    out when clocks go forward: they are taken as if the clocks had not been changed yet. Both are noted.

    Parameters
    ----------
    zone
        The zone of times that state none, such as Europe/Berlin; None: UTC, which is noted as a guess.
    diagnosis
        What receives the notes.

    Examples
    --------
    >>> from bft.replay.logs import Diagnosis
    >>> clock = Clock("Europe/Berlin", Diagnosis())
    >>> clock.parse("2021-02-10T01:00:00", "sacct.txt", 1) == 1_612_915_200 * 10**9
    True
    """

    def __init__(self, zone: str | None, diagnosis: Diagnosis) -> None:
        self.zone: tzinfo = UTC if zone is None else _zone(zone)
        self._unnoted = zone is None
        self._diagnosis = diagnosis
        self._hours: dict[str, int] = {}
        self._local_hours: dict[int, int | None] = {}

    def parse(
        self, text: str, file: str, line: int, not_before: int | None = None
    ) -> int | None:
        """UTC nanoseconds of an ISO stamp (2021-02-10T20:21:15, T or blank, fraction and zone optional).

        The zone is Z, UTC, GMT or an offset (+01:00, +0100). Seconds since 1970, with a fraction or not, are
        taken too. None when it is neither; compare with `MISSING` before where a missing time
        is no mistake.
        """
        # An hour is looked up, minutes and seconds are added: two dictionaries instead of a parser.
        if len(text) == 19:
            try:
                return self._hours[text[:13]] + _TAILS[text[13:]]
            except KeyError:
                pass
        return self._slowly(text.strip(), file, line, not_before)

    def epoch(self, text: str) -> int | None:
        """UTC nanoseconds of seconds since 1970, whole or with a fraction; None when it is no such number, or 0."""
        if text.isdecimal():
            seconds = int(text) if len(text) < 12 else -1
            return seconds * SECOND_NS if 0 < seconds < MOST_EPOCH_S else None
        value = read_number(text)
        return (
            round(value * 1000) * (SECOND_NS // 1000)
            if 0 < value < MOST_EPOCH_S
            else None
        )

    def local(
        self, naive: datetime, file: str, line: int, not_before: int | None = None
    ) -> int:
        """UTC nanoseconds of a time that states no zone; whole seconds."""
        if self._unnoted:
            self._unnoted = False
            self._diagnosis.note(
                "times state no zone and are taken as UTC: --tz names the machine's",
                file,
                line,
            )
        first, second = (
            _instant(naive.replace(tzinfo=self.zone, fold=fold)) for fold in (0, 1)
        )
        if first == second:
            return first
        if first > second:  # the clocks jumped over it
            self._diagnosis.note(
                "a local time does not exist: clocks went forward over it",
                file,
                line,
                str(naive),
            )
            return first
        self._diagnosis.note(
            "a local time came twice, when clocks went back", file, line, str(naive)
        )
        return second if not_before is not None and first < not_before else first

    def _slowly(
        self, text: str, file: str, line: int, not_before: int | None
    ) -> int | None:
        if text.isdecimal():  # SLURM_TIME_FORMAT=%s
            return self.epoch(text) if len(text) >= 9 else None
        seconds = _EPOCH_FRACTION.fullmatch(text)
        if seconds:
            whole = self.epoch(seconds[1])
            return None if whole is None else whole + int(seconds[2][:9].ljust(9, "0"))
        text = _UTC.sub("Z", text)
        # Python knows stamps such as 2021W07 and days without a time; they are none of a scheduler's.
        if (
            len(text) < 16
            or text[4] != "-"
            or text[7] != "-"
            or text[10] not in "T "
            or not text.isascii()
        ):
            return None
        fraction = _FRACTION.search(text, 16)
        below_ns = 0
        if fraction:
            below_ns = int(fraction[1].ljust(9, "0"))
            text = text[: fraction.start()] + text[fraction.end() :]
        try:
            stamp = datetime.fromisoformat(text)
            if not 1970 < stamp.year < 2262:
                return None
            if stamp.tzinfo is not None:
                return _instant(stamp) + below_ns
        except (ValueError, OverflowError):
            return None
        self._remember(stamp.replace(minute=0, second=0), text[:13])
        return self.local(stamp, file, line, not_before) + below_ns

    def hour_ns(self, hour: int) -> int | None:
        """UTC nanoseconds of the begin of an hour, counted in local hours from 1970.

        None when the clocks are changed during it, or `parse` has a note to make of it.
        """
        if self._unnoted:
            return None
        if hour not in self._local_hours:
            if len(self._local_hours) >= _CACHED_HOURS:
                self._local_hours.clear()
            stamp = datetime(1970, 1, 1) + hour * _HOUR
            plain = self._plain(stamp)
            self._local_hours[hour] = (
                _instant(stamp.replace(tzinfo=self.zone)) if plain else None
            )
        return self._local_hours[hour]

    def _plain(self, hour: datetime) -> bool:
        """Whether the clocks are not changed during an hour."""
        ends = (hour, hour + _HOUR - timedelta(seconds=1))
        return (
            len(
                {
                    end.replace(tzinfo=self.zone, fold=fold).utcoffset()
                    for end in ends
                    for fold in (0, 1)
                }
            )
            == 1
        )

    def _remember(self, hour: datetime, key: str) -> None:
        """Let `parse` look this hour up from now on, if the clocks are not changed during it."""
        if len(self._hours) >= _CACHED_HOURS:
            self._hours.clear()
        if self._plain(hour) and len(key) == 13:
            self._hours[key] = _instant(hour.replace(tzinfo=self.zone))


def is_missing(text: str) -> bool:
    """Whether a text stands for a time that is not known, or that has not come.

    >>> is_missing("Unknown"), is_missing("1970-01-01 01:00:00"), is_missing("soon")
    (True, True, False)
    """
    return text in MISSING or text.startswith(_EPOCH_DAYS)


def no_time(text: str) -> str:
    """Describe for a message what a column of times holds instead, and what it looks like."""
    shown = ascii(text[:80])
    whole = text.strip().partition(".")[0]
    unit = _FINER.get(len(whole)) if whole.isdecimal() else None
    return (
        f"{shown} looks like {unit} since 1970: expected seconds, or 2024-01-31T12:00:00"
        if unit
        else shown
    )


def _instant(stamp: datetime) -> int:
    since = stamp.astimezone(UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND_NS


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InputError(
            f"--tz: unknown time zone {name!r}",
            hint="names are such as UTC, Europe/Berlin or America/Chicago",
        ) from error


# Columns of sacct with the limit, and with the nodes that a job asks for while it waits.
LIMITS = ("timelimit", "timelimitraw")
FEWEST = ("nnodes", "reqnodes")
# What Slurm writes instead of a limit.
UNLIMITED = frozenset({"UNLIMITED", "Partition_Limit", "INVALID"})
_LIMIT = re.compile(
    r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(?:(\d{1,6}):)?(\d{1,9})(?:\.\d+)?", re.ASCII
)


def limit_ns(text: str, *, minutes: bool = False) -> int | None:
    """Nanoseconds of [DAYS-]HOURS:MINUTES:SECONDS, MINUTES:SECONDS or SECONDS; None when a text is none of these.

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
    >>> limit_ns("UNLIMITED") is None
    True
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        return None
    days, first, second, last = match.groups()
    if first is None:
        if days is not None:
            return None
        return int(last) * (60 if minutes else 1) * SECOND_NS
    hours, middle = (int(first), int(second)) if second is not None else (0, int(first))
    return (((int(days or 0) * 24 + hours) * 60 + middle) * 60 + int(last)) * SECOND_NS
