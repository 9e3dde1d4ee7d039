"""Grid Engine (Sun, Son of, Univa, Altair): the accounting file, colon-separated, see sge_accounting(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.models import InputError
from bft.replay.logs.formats.text_lines import (
    UNCLEAR,
    cell,
    epochs,
    fields_of,
    matches,
    numbers,
    text_lines,
)
from bft.replay.logs.hosts import flags
from bft.replay.logs.records import (
    FOREIGN,
    LEFT_OUT,
    LOUD,
    SKIPPED,
    Block,
    Log,
    Texts,
    hashes,
)
from bft.replay.logs.times import NONE, Mask, Whole
from bft.replay.trace.node_trace import SECOND_NS

_QUEUE, _HOST, _OWNER, _JOB, _SUBMIT, _START, _END, _FAILED, _WALLCLOCK = (
    0,
    1,
    3,
    5,
    8,
    9,
    10,
    11,
    13,
)
_PE, _SLOTS, _TASK, _CATEGORY, _WAITED, _PE_TASK = 33, 34, 35, 39, 40, 41
_FIELDS = 13
# What fields hold in all records, by their place: seconds or milliseconds since 1970, whole numbers.
_INSTANT = r"\d{9,10}|\d{13}"
_NEVER = "0|-/-|"
_SHAPE = {
    _JOB: r"\d{1,18}", 7: r"-?\d{1,5}", _SUBMIT: f"0|{_INSTANT}", _START: _NEVER + _INSTANT, _END: _NEVER + _INSTANT,
    _FAILED: r"\d{1,5}", 12: r"-?\d{1,6}",
}  # fmt: skip
_READ = sorted(
    {
        _QUEUE,
        _HOST,
        _OWNER,
        _WALLCLOCK,
        _PE,
        _SLOTS,
        _TASK,
        _CATEGORY,
        _WAITED,
        _PE_TASK,
        *_SHAPE,
    }
)
# A record of which the name and the account of the job may have colons, the fewest or the most that there may be.
_FEWEST, _MOST_COLONS = (
    re.compile(
        rf"([^:]*):([^:]*):([^:]*):([^:]*):((?:[^:]*:){{0,20}}{much}[^:]*):(\d+):((?:[^:]*:){{0,20}}{much}[^:]*):"
        rf"(-?\d{{1,5}}):(?=\d{{9}}|0:\d{{9}})(0|{_INSTANT}):({_NEVER}{_INSTANT}):({_NEVER}{_INSTANT}):(\d{{1,5}}):(-?\d{{1,6}}):"
        r"(\d{1,9}(?:\.\d*)?)(?=:)",
        re.ASCII,
    )
    for much in ("?", "")
)
# Names of parallel environments whose jobs run across hosts.
_ACROSS = "mpi|orte|pvm|lam"
# Slots of a host where no job tells.
_LARGEST_HOST = 128
# Jobs from which on a file is taken for a summary, and the share of them that names one host.
_ENOUGH, _MOST = 10, 0.9
# By how many seconds ru_wallclock may differ from the stamps; and how many records, and which share, without a warning.
_SECONDS, _FEW, _FEW_OF = 60, 10, 0.05


def read(log: Log) -> Iterator[Block]:
    """Read an accounting file; see `LogFormat` for errors.

    A parallel job has a record for each of its tasks that Grid Engine starts, with their hosts, unless the parallel
    environment says accounting_summary: then only the master's host is known, which is noted.
    """
    log.words = {"hosts": "hostname, field 2,"}
    file = _File(log)
    for lines, rows in text_lines(log):
        yield file.block(lines, rows)
    file.judge_parallel()


class _File:
    """One file of records, and what all of them show.

    Attributes
    ----------
    lengths, queues
        Numbers of fields, and queues, of records whose numbers are where they belong.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.lengths: set[int] = set()
        self.queues: set[str] = set()
        self.largest = 1
        self.parallel: list[pa.Table] = []

    def block(self, lines: Whole, rows: Texts) -> Block:
        """Return what rows say."""
        block = Block(line=lines)
        cells, lengths, fits = _divided(rows)
        self.lengths.update(np.unique(lengths[fits]).tolist())
        self.queues.update(cells[_QUEUE].filter(pa.array(fits)).unique().to_pylist())
        odd = np.flatnonzero(~fits).tolist()
        if odd:
            plain = [self._placed(block, row, rows[row].as_py()) for row in odd]
            cells, _, fits = _divided(
                pc.replace_with_mask(rows, pa.array(~fits), pa.array(plain))
            )
        self._read(block, cells)
        return block

    def _placed(self, block: Block, row: int, text: str) -> str:
        """Return a record with the fields in their places that colons within some have moved; else say why not."""
        fields = text.split(":")
        here = np.arange(len(block)) == row
        if len(text) < 2:
            block.why.where(
                here, LEFT_OUT + "a line of one character, which Grid Engine ignores"
            )
        elif len(fields) < _FIELDS:
            why = (
                f"{FOREIGN}is no record of Grid Engine, with at least {_FIELDS} fields"
            )
            block.why.where(here, why, f"{len(fields)} fields")
        else:
            fewest, most = _FEWEST.match(text), _MOST_COLONS.match(text)
            if fewest and most and self._belongs(fewest, most, len(fields)):
                placed = [each.replace(":", "_") for each in most.groups()]
                return ":".join(placed) + text[most.end() :]
            if (
                len(fields) not in (self.lengths or {len(fields)})
                or len(fields[_FAILED]) > 8
            ):
                block.why.where(
                    here,
                    UNCLEAR,
                    f"{len(fields)} fields, or what grep and syslog put in front: {text[:60]!a}",
                )
        return text

    def _belongs(self, fewest: re.Match[str], most: re.Match[str], count: int) -> bool:
        """Whether the fields of a record with colons in them agree with each other, and with the file."""
        where = (1, 2, 9, 10, 11)  # queue, host and times
        queue, _, *stamps = most.group(*where)
        count -= most[5].count(":") + most[7].count(":")
        if fewest.group(*where) != most.group(*where) or count not in (
            self.lengths or {count}
        ):
            return False
        # Colons in front of the number of the job may also be of what stands before the record.
        if queue not in self.queues and (self.queues or ":" in most[5]):
            return False
        submit, start, end = epochs(pa.array(stamps)).ns.tolist()
        if start == end == NONE:
            return bool(submit != NONE)
        return submit <= start <= end and bool(
            _agree(float(most[14]), (end - start) / SECOND_NS)
        )

    def _read(self, block: Block, cells: dict[int, Texts]) -> None:
        """Fill in a block from its columns."""
        why, job, host = block.why, cells[_JOB], cells[_HOST]
        block.partition, block.user, block.hosts = cells[_QUEUE], cells[_OWNER], host
        why.where(
            ~matches(job, r"\d{1,18}"),
            SKIPPED + "job_number, field 6, is no number",
            cell(job),
        )
        times = [epochs(cells[place]) for place in (_SUBMIT, _START, _END)]
        block.known, block.start, block.end = (each.ns for each in times)
        never = flags(pc.equal(pc.utf8_upper(host), "UNKNOWN"))
        for what, place, (ns, bad) in zip(
            ("start_time, field 10", "end_time, field 11"),
            (_START, _END),
            times[1:],
            strict=True,
        ):
            why.where(
                bad, f"{SKIPPED}{what}, is no time since 1970", cell(cells[place])
            )
            never |= (ns == NONE) & ~bad
        why.where(never, LEFT_OUT + "a job that never ran: no start, no end or no host")
        # Behind a colon within a field these are not where they belong.
        slots = matches(cells[_SLOTS], r"\d{1,8}") & matches(cells[_TASK], r"\d{1,9}")
        whole = pa.array(slots & matches(cells[_WAITED], r"-?[\d.]+(e.*)?"))
        limit = pc.extract_regex(cells[_CATEGORY], r"(?:^|[ ,])h_rt=(?P<limit>[\d:]+)")
        block.limit = pc.fill_null(
            pc.if_else(whole, pc.struct_field(limit, "limit"), None), ""
        )
        # Records that differ in anything are not copies of one another.
        block.id = pc.binary_join_element_wise(*cells.values(), ":")
        self._watch(block, cells, slots & why.used)

    def _watch(self, block: Block, cells: dict[int, Texts], mine: Mask) -> None:
        """Say that durations are not those from start to end, and keep what rows tell of parallel jobs."""
        lasted, _ = numbers(cells[_WALLCLOCK], r"\d{1,9}(\.\d*)?", pa.float64())
        seconds = (block.end - block.start) / SECOND_NS
        contrary = block.why.used & ~_agree(
            lasted.fill_null(np.nan).to_numpy(), seconds
        )
        why = "ru_wallclock, field 14, is another time than from start_time to end_time"
        many = np.count_nonzero(contrary) > max(_FEW, _FEW_OF * len(block))
        block.notes.append(
            (contrary, LOUD + why if many else why, cell(cells[_WALLCLOCK]))
        )
        if self.log.settings.partition is not None:
            wanted = self.log.settings.partition.strip().casefold()
            mine &= flags(pc.equal(pc.utf8_lower(cells[_QUEUE]), wanted))
        job, task, slots, environment, host = (
            cells[place].filter(pa.array(mine))
            for place in (_JOB, _TASK, _SLOTS, _PE, _HOST)
        )
        across = pc.match_substring_regex(environment, _ACROSS, ignore_case=True)
        job, task, slots = (column.cast(pa.int64()) for column in (job, task, slots))
        self.largest = max(
            self.largest, pc.max(slots.filter(pc.invert(across))).as_py() or 1
        )
        columns = [
            job,
            task,
            slots,
            pa.array(hashes(host)),
            pa.array(block.line[mine]),
            across,
        ]
        jobs = pa.table(
            columns, names=["job", "task", "slots", "host", "line", "across"]
        )
        alone = pc.or_(pc.less(slots, 2), pc.is_in(environment, pa.array(["", "NONE"])))
        self.parallel.append(jobs.filter(pc.invert(alone)))

    def judge_parallel(self) -> None:
        """Refuse a summary, of which each job names one host only; note jobs of one host else.

        Jobs across hosts run in environments of MPI, those on one host in others: jobs of the former with more slots
        than any of the latter had several hosts.

        Raises
        ------
        InputError
            When such jobs are in the file and nearly all of them name one host.
        """
        if not self.parallel:
            return
        log, largest = self.log, self.largest if self.largest > 1 else _LARGEST_HOST
        jobs = (
            pa.concat_tables(self.parallel)
            .combine_chunks()
            .group_by(["job", "task"], use_threads=False)
        )
        wanted = [
            ("slots", "max"),
            ("host", "count_distinct"),
            ("across", "first"),
            ("line", "min"),
        ]
        found = jobs.aggregate(wanted).sort_by("line_min")
        # A job that ran twice names the first host of each run.
        slots, hosts, across, lines = (
            found[f"{name}_{how}"].to_numpy() for name, how in wanted
        )
        wide = across & (slots > largest)
        count = np.count_nonzero(wide)
        if count >= _ENOUGH and np.count_nonzero(wide & (hosts == 1)) >= _MOST * count:
            why = f"{count:,} jobs of MPI have more slots than any job on one host ({largest}), and name one host"
            first = int(lines[wide.argmax()])
            if not log.settings.allow_few:
                raise InputError(
                    f"line {first}: {why} each: the parallel environment says accounting_summary TRUE, and "
                    "their other hosts would look idle",
                    file=log.name,
                    hint="set accounting_summary FALSE, or take snapshots (--recipe snapshots); --allow-few accepts it",
                )
            log.note(f"{why} only: their other hosts look idle", first, loud=True)
        alone = np.flatnonzero(hosts == 1)
        if len(alone):
            why = "a parallel job names one host only: if it ran on several (accounting_summary, or tasks that "
            why += "Grid Engine did not start), the others look idle"
            first = int(alone[0])
            detail = f"job {found['job'][first]}, {slots[first]} slots"
            log.note(why, int(lines[first]), detail, count=len(alone))


def _divided(rows: Texts) -> tuple[dict[int, Texts], Whole, Mask]:
    """Return the fields of records that are read, how many each has, and whether its numbers are where they belong."""
    lists = pc.split_pattern(rows, ":")
    lengths = pc.list_value_length(lists).to_numpy()
    cells = dict(zip(_READ, fields_of(lists, _READ), strict=True))
    fits = lengths >= _FIELDS
    for place, form in _SHAPE.items():
        fits &= matches(cells[place], form)
    return cells, lengths, fits


def _agree(lasted: Any, seconds: Any) -> Any:
    """Whether ru_wallclock, in seconds or milliseconds, is the time from start to end; NaN: it is not stated."""
    off = np.minimum(abs(lasted - seconds), abs(lasted / 1000 - seconds))
    return ~(off > _SECONDS)
