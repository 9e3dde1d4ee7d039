"""Grid Engine (Sun, Son of, Univa, Altair): the accounting file, colon-separated, see sge_accounting(5).

Each record is one host of a job. A record with a colon in a field is read where its times and numbers tell which fields
belong together, else skipped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
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
    has,
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
from bft.replay.logs.times import NONE
from bft.replay.trace.node_trace import SECOND_NS

# Places of the fields that are read: qname, hostname, owner, job_number, submission_time, start_time, end_time,
# ru_wallclock, granted_pe, slots, task_number, category, iow and pe_taskid.
_READ = (0, 1, 3, 5, 8, 9, 10, 13, 33, 34, 35, 39, 40, 41)
_FIELDS = 13
# Times are seconds or milliseconds since 1970.
_INSTANT = r"\d{9,10}|\d{13}"
_TIMES = rf"-?\d{{1,5}}:(0|{_INSTANT}):(0|-/-||{_INSTANT}):(0|-/-||{_INSTANT}):\d{{1,5}}:-?\d{{1,6}}"
_RECORD = rf"^(?:[^:]*:){{5}}\d{{1,18}}:[^:]*:{_TIMES}(?::|$)"
# A record of which the name and the account of the job may have colons.
_COLONS = re.compile(
    rf"((?:[^:]*:){{4}})(.*?):(\d{{1,18}}):(.*?):({_TIMES}:(\d{{1,9}}(?:\.\d*)?):.*)",
    re.ASCII,
)
# Names of parallel environments whose jobs run across hosts.
_ACROSS = "mpi|orte|pvm|lam"
# Slots of a host where no job tells.
_LARGEST_HOST = 128
# Jobs from which on a file is taken for a summary, and the share of them that names one host.
_ENOUGH, _MOST = 10, 0.9
# By how many seconds ru_wallclock may differ from the stamps; and in which share of records without a warning.
_SECONDS, _FEW_OF = 60, 0.05


def read(log: Log) -> Iterator[Block]:
    """Read an accounting file; see `LogFormat` for errors.

    A parallel job has a record for each of its tasks that Grid Engine starts, with their hosts, unless the parallel
    environment says accounting_summary: then only the master's host is known, which is noted.
    """
    log.words = {"hosts": "hostname, field 2,"}
    # Numbers of fields and queues of records whose numbers are where they belong; and the records of parallel jobs.
    lengths: set[int] = set()
    queues: set[str] = set()
    parallel = []
    for lines, rows in text_lines(log):
        block = Block(line=lines)
        counts = pc.count_substring(rows, ":").to_numpy() + 1
        fits = has(rows, _RECORD)
        lengths.update(np.unique(counts[fits]).tolist())
        queue = pc.extract_regex(rows.filter(pa.array(fits)), "^(?P<queue>[^:]*)")
        queues.update(pc.struct_field(queue, "queue").unique().to_pylist())
        if not fits.all():
            odd = rows.filter(pa.array(~fits)).to_pylist()
            placed = pa.array([_placed(text, lengths, queues) for text in odd])
            rows = pc.replace_with_mask(rows, pa.array(~fits), placed)
            foreign = (
                f"{FOREIGN}is no record of Grid Engine, with at least {_FIELDS} fields"
            )
            block.why.where(counts < _FIELDS, foreign, cell(rows))
            unclear = ~has(rows, _RECORD) & ~np.isin(counts, [*lengths] or counts)
            block.why.where(unclear, UNCLEAR, cell(rows))
        parallel.append(_read(block, rows))
        yield block
    if parallel:
        _judge_parallel(log, pa.concat_tables(parallel))


def _placed(text: str, lengths: Collection[int], queues: Collection[str]) -> str:
    """Return a record with the fields in their places that colons in the job's name or account have moved."""
    found = _COLONS.match(text)
    if found is None:
        return text
    head, name, job, account, rest, *times, lasted = found.groups()
    count = text.count(":") + 1 - f"{name}{account}".count(":")
    # Colons in front of the number of the job may also be of what stands before the record.
    is_ours = head.partition(":")[0] in queues or (not queues and ":" not in name)
    submit, start, end = epochs(pa.array(times)).ns.tolist()
    never_ran = submit != NONE and start == end == NONE
    ran = max(submit, 0) <= start <= end and _lasts(
        float(lasted), (end - start) / SECOND_NS
    )
    if is_ours and (never_ran or ran) and count in (lengths or {count}):
        return (
            f"{head}{name.replace(':', '_')}:{job}:{account.replace(':', '_')}:{rest}"
        )
    return text


def _lasts(lasted: Any, seconds: Any) -> Any:
    """Whether ru_wallclock, in seconds or milliseconds, is the time from start to end; NaN: it is not stated."""
    off = np.minimum(abs(lasted - seconds), abs(lasted / 1000 - seconds))
    return ~(off > _SECONDS)


def _read(block: Block, rows: Texts) -> pa.Table:
    """Fill in a block; returns what its records tell of parallel jobs."""
    columns = fields_of(pc.split_pattern(rows, ":"), _READ)
    (
        queue,
        host,
        owner,
        job,
        submit,
        start,
        end,
        wallclock,
        environment,
        slots,
        task,
        category,
        waited,
        _,
    ) = columns
    why = block.why
    block.partition, block.user, block.hosts = queue, owner, host
    block.known = epochs(submit).ns
    # Records that differ in anything are not copies of one another.
    block.id = pc.binary_join_element_wise(*columns, ":")
    why.where(
        ~matches(job, r"\d{1,18}"),
        SKIPPED + "job_number, field 6, is no number",
        cell(job),
    )
    never = flags(pc.equal(pc.utf8_upper(host), "UNKNOWN"))
    (block.start, no_start), (block.end, no_end) = epochs(start), epochs(end)
    why.where(
        no_start, SKIPPED + "start_time, field 10, is no time since 1970", cell(start)
    )
    why.where(no_end, SKIPPED + "end_time, field 11, is no time since 1970", cell(end))
    never |= (block.start == NONE) | (block.end == NONE)
    why.where(never, LEFT_OUT + "a job that never ran: no start, no end or no host")
    limit = pc.struct_field(
        pc.extract_regex(category, r"(?:^|[ ,])h_rt=(?P<limit>[\d:]+)"), "limit"
    )
    # Behind a colon within a field these are not where they belong.
    is_there = pa.array(matches(waited, r"-?[\d.]+(e.*)?"))
    block.limit = pc.fill_null(pc.if_else(is_there, limit, None), "")
    lasted, _ = numbers(wallclock, r"\d{1,9}(\.\d*)?", pa.float64())
    seconds = (block.end - block.start) / SECOND_NS
    contrary = why.used & ~_lasts(lasted.fill_null(np.nan).to_numpy(), seconds)
    told = "ru_wallclock, field 14, is another time than from start_time to end_time"
    if np.mean(contrary) > _FEW_OF:
        told = LOUD + told
    block.notes.append((contrary, told, cell(wallclock)))
    count, _ = numbers(slots, r"\d{1,8}", pa.int64())
    jobs = pa.table(
        {
            "job": pc.binary_join_element_wise(job, task, "."),
            "slots": count,
            "host": pa.array(hashes(host)),
            "line": pa.array(block.line),
            "across": pc.match_substring_regex(environment, _ACROSS, ignore_case=True),
        }
    )
    return jobs.filter(pc.and_(pa.array(why.used), pc.greater(count, 1)))


def _judge_parallel(log: Log, records: pa.Table) -> None:
    """Refuse a summary, of which each job names one host only; note jobs of one host else.

    Jobs across hosts run in environments of MPI, those on one host in others: jobs of the former with more slots
    than any of the latter had several hosts.

    Raises
    ------
    InputError
        When such jobs are in the file and nearly all of them name one host.
    """
    records = records.combine_chunks()
    largest = (
        pc.max(records.filter(pc.invert(records["across"]))["slots"]).as_py()
        or _LARGEST_HOST
    )
    wanted = [
        ("slots", "max"),
        ("host", "count_distinct"),
        ("across", "first"),
        ("line", "min"),
    ]
    jobs = (
        records.group_by("job", use_threads=False).aggregate(wanted).sort_by("line_min")
    )
    # A job that ran twice names the first host of each run.
    slots, hosts, across, lines = (
        jobs[f"{name}_{how}"].to_numpy() for name, how in wanted
    )
    wide = across.astype(bool) & (slots > largest)
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
        detail = f"job {jobs['job'][first]}, {slots[first]} slots"
        log.note(why, int(lines[first]), detail, count=len(alone))
