"""The window of observation of a log: from when to when it shows what happened."""

from __future__ import annotations

from bft.models import InputError
from bft.replay.logs.collector import OPEN, Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.job_times import Outlier
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_statistics import iso

# Share and length of the part of a window outside the logs from which on the window is refused, or noted. Exports are
# asked for by dates, and the first and last record lie somewhat inside.
_REFUSED_OUTSIDE, _REFUSED_OUTSIDE_NS = 0.5, 86_400 * SECOND_NS
_NOTED_OUTSIDE, _NOTED_OUTSIDE_NS = 0.01, 3_600 * SECOND_NS
# Share of the jobs' time that seems to be missing from which on a warning is due.
_NOTED_MISSING = 0.005


def window_of(
    collected: Collector,
    diagnosis: Diagnosis,
    start_ns: int | None,
    end_ns: int | None,
    source: str,
) -> tuple[int, int]:
    """Begin and end of the window of observation, UTC nanoseconds; says on which grounds, and what is odd about it.

    Parameters
    ----------
    collected
        What the readers handed over, settled.
    diagnosis
        Receives the notes.
    start_ns, end_ns
        What the user states; None: as `shown` has it.
    source
        Name of the logs, for messages.

    Raises
    ------
    InputError
        When the window is empty, or lies outside the logs.
    """
    start, end, stated = _shown(collected)
    log = min(start, collected.first_start), max(end, collected.last)
    if start_ns is not None:
        start = start_ns
    elif not stated and collected.first_start < start < OPEN:
        diagnosis.note("the window begins with the first end of a job: of the time before only long jobs are known",
                       source, 0)  # fmt: skip
    if end_ns is not None:
        end = end_ns
    elif not stated and collected.shown_until < end < collected.last:
        diagnosis.note("the window ends with the last start of a job: the log does not tell whether it would show "
                       "jobs that start later; --to states its end", source, 0)  # fmt: skip
    elif not stated and end > max(
        collected.job_times.last_start(), collected.shown_until
    ):
        diagnosis.note("all jobs started before the first one ended: the window ends with the last end, and whether "
                       "the log would show jobs that start later is not known; --to states its end", source,
                       0)  # fmt: skip
    if start >= end:
        raise InputError(
            "the window of observation is empty"
            if start < OPEN
            else "no job tells when the observation began",
            file=source or None,
            hint=f"--from and --to set it{'; ' if diagnosis.losses() else ''}{diagnosis.losses()}",
        )
    if log[0] <= log[1]:
        _check_window(start, end, log, diagnosis, source)
    _warn(
        collected,
        diagnosis,
        (start, end),
        (start_ns is not None or stated, end_ns is not None or stated),
    )
    return start, end


def _shown(collected: Collector) -> tuple[int, int, bool]:
    """Begin and end of what the logs show, and whether they state these themselves.

    Rows of jobs state true ends, also ends after the export, when no start could be shown any more: so a log is known
    to show what happens up to the last start. Where records are written as things happen, it is up to the last record.
    """
    start, end = (
        collected.first_end,
        max(collected.job_times.last_start(), collected.shown_until),
    )
    if (
        start >= end
    ):  # all jobs started before the first had ended: there is no better guess
        end = collected.last
    if start >= end:
        start = collected.first_start
    stated = collected.stated or (
        collected.stated_outages if collected.first_start == OPEN else None
    )
    if stated is None:
        return start, end, False
    # Logs of jobs that state none may lie beside those that state it.
    return min(stated[0], start), max(stated[1], end), True


def _check_window(
    start: int, end: int, log: tuple[int, int], diagnosis: Diagnosis, source: str
) -> None:
    """Refuse a window that hardly overlaps the logs, and note how much of it does not."""
    outside = (end - start) - max(0, min(end, log[1]) - max(start, log[0]))
    share = outside / (end - start)
    where = f"the window is {iso(start)} to {iso(end)}, the logs hold {iso(log[0])} to {iso(log[1])}"
    none = start >= log[1] or end <= log[0]
    much = outside > _REFUSED_OUTSIDE_NS and share > _REFUSED_OUTSIDE
    if (none and log[0] < log[1]) or (much and not diagnosis.allow_few):
        raise InputError(
            f"the window of observation lies outside the logs: {where}" if none else
            f"{share:.0%} of the window of observation lie outside the logs: {where}",
            file=source or None,
            hint="check the years in --from and --to, and --tz" + ("" if none else "; --allow-few accepts it"),
        )  # fmt: skip
    if outside > _NOTED_OUTSIDE_NS and share > _NOTED_OUTSIDE:
        diagnosis.note("part of the window lies before the first or after the last record: nodes look idle there", "",
                       0, f"{share:.1%} of it; {where}", loud=True)  # fmt: skip


def _warn(
    collected: Collector,
    diagnosis: Diagnosis,
    window: tuple[int, int],
    stated: tuple[bool, bool],
) -> None:
    """Say what makes the end of a window look idler than it was, and which single record stretches it.

    `stated`: whether begin and end are stated rather than derived from the jobs.
    """
    for outlier, place in collected.outliers:
        _stretched(outlier, place, diagnosis, window, stated)
    if collected.idle_intervals.given or collected.shown_until >= window[1]:
        return
    times = collected.job_times
    quiet = times.quiet_end(*window)
    if quiet is not None and quiet.length_ns > max(
        _NOTED_OUTSIDE_NS, _NOTED_OUTSIDE * (window[1] - window[0])
    ):
        part = quiet.length_ns / (window[1] - window[0])
        detail = f"{_hours(quiet.length_ns)}, {part:.0%} of it; before, one started every {_hours(quiet.usual_ns)}"
        why = "no job starts in the last part of the window: does the log show jobs up to its end? --to states that end"
        diagnosis.note(why, "", 0, detail, loud=True)
    missing = times.missing_share(*window, only_ended=collected.only_ended)
    if missing > _NOTED_MISSING:
        why = "jobs that ran when the log ended are not in it, and their nodes look idle: "
        why += "an earlier --to leaves that out"
        diagnosis.note(
            why, "", 0, f"about {missing:.1%} of the jobs' node-time", loud=True
        )


def _stretched(
    outlier: Outlier, place: tuple[str, int] | None, diagnosis: Diagnosis, window: tuple[int, int],
    stated: tuple[bool, bool],
) -> None:  # fmt: skip
    where = "" if place is None else f" ({place[0]}, line {place[1]})"
    detail = f"{iso(outlier.time_ns)}{where}; the next is {iso(outlier.next_ns)}"
    if outlier.what == "end" and outlier.start_ns <= window[1]:
        why = "one job ends long after all others, and its nodes are busy until the window ends: a mistyped year?"
    elif outlier.what == "start" and not stated[1]:
        why = "one job starts long after all others and stretches the window: a mistyped year? --to states its end"
    elif outlier.what == "first end" and not stated[0]:
        why = "one job ends long before all others and stretches the window: a mistyped year? --from states its begin"
    else:
        return
    diagnosis.note(why, "", 0, detail, loud=True)


def _hours(ns: int) -> str:
    seconds = ns / SECOND_NS
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"
