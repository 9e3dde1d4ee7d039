"""LSF: lsb.events, what happens to jobs and hosts as it happens.

Unlike lsb.acct it knows jobs that are still running, every run of a requeued job, and closed hosts. Fields are in the
order of the LSF configuration reference, lsb.events(5).
"""

from __future__ import annotations

import re

from bft.replay.logs.lsf import fields, hosts_at, number_at, time_at, unquoted
from bft.replay.logs.reading import Reading
from bft.replay.logs.records import Foreign, LeftOut, UnderWay, Unusable, each_record, host_names

_TIME, _JOB = 2, 3
# Of jStatus, lsbatch.h: PEND, PSUSP: back in the queue. EXIT, DONE: ended. PDONE, PERR: post-processing is over.
_QUEUED, _ENDED, _POST = 0x1 | 0x2, 0x20 | 0x40, 0x80 | 0x100
# Of HOST_CTRL, lsbatch.h: open, close, reboot, shutdown, close remotely.
_OPEN, _CLOSED = 1, frozenset({2, 3, 4, 5})
_RUSAGE_FIELDS = 19
_KIND = re.compile(r'"[A-Z][A-Z_0-9]+"')


def read(reading: Reading) -> None:
    """Read lsb.events or lsb.events.N; see `LogFormat` for errors. Several files: in order of time."""
    log = _Events(reading)
    each_record(reading, log.record)
    log.close()


class _Events:
    """One file of records."""

    def __init__(self, reading: Reading) -> None:
        self.file, self.diagnosis, self.clock = reading.file, reading.diagnosis, reading.clock
        self.under_way = UnderWay(reading)
        self.jobs, self.closed = self.under_way.jobs, self.under_way.outages
        self.now_ns = 0
        self.handlers = {
            '"JOB_START"': self._started,
            '"JOB_STATUS"': self._changed,
            '"JOB_REQUEUE"': self._requeued,
            '"HOST_CTRL"': self._host,
        }

    def record(self, text: str, line: int) -> None:
        """Use one record."""
        row = fields(text)
        kind = row[0]
        handler = self.handlers.get(kind)
        if handler is None and (kind == '"JOB_FINISH"' or not _KIND.fullmatch(kind)):
            raise Foreign("is no record of lsb.events, such as JOB_START", ascii(kind[:40]))
        event_ns = time_at(row, _TIME, "event time", self.clock)
        self.now_ns = max(self.now_ns, event_ns)
        if handler is None:
            raise LeftOut("records of other types: they say nothing of when nodes are taken or given back")
        handler(row, event_ns, line)

    def close(self) -> None:
        """Account for what has not ended."""
        self.under_way.file_ends(self.now_ns)

    def _started(self, row: list[str], event_ns: int, line: int) -> None:
        # version time jobId jStatus jobPid jobPGid hostFactor numExHosts execHosts
        # queuePreCmd queuePostCmd jFlags userGroup idx
        hosts, index = hosts_at(row, 8)
        if not hosts:
            raise Unusable("a job starts on no host", f"job {row[_JOB][:40]}")
        job = number_at(row, _JOB, "jobId"), number_at(row, index + 4, "idx")
        if self.jobs.begin(job, hosts, event_ns, self.file, line):
            why = "a job starts again without having ended: its nodes count as taken until then"
            self.diagnosis.note(why, self.file, line, f"job {row[_JOB][:40]}")

    def _changed(self, row: list[str], event_ns: int, line: int) -> None:
        # version time jobId jStatus reason subreasons cpuTime endTime ru [lsfRusage] exitStatus idx
        status = number_at(row, 4, "jStatus")
        ru = number_at(row, 9, "ru")
        job = number_at(row, _JOB, "jobId"), number_at(row, 11 + (_RUSAGE_FIELDS if ru else 0), "idx")
        if status & _ENDED and not status & _POST:
            end_ns = event_ns if row[8] == "0" else time_at(row, 8, "endTime", self.clock)
            begun = self.jobs.under_way(job)
            if begun is not None and end_ns < begun.start_ns:
                raise Unusable("ends before it starts", f"job {row[_JOB][:40]}")
            if not self.jobs.end(job, end_ns, self.file, line):
                raise LeftOut("a job ended that had not started in these logs")
        elif not (status & _QUEUED and self.jobs.end(job, event_ns, self.file, line)):
            raise LeftOut("record type JOB_STATUS: a change that neither takes nodes nor gives them back")

    def _requeued(self, row: list[str], event_ns: int, line: int) -> None:
        # version time jobId idx
        job = number_at(row, _JOB, "jobId"), number_at(row, 4, "idx")
        if not self.jobs.end(job, event_ns, self.file, line):
            raise LeftOut("a job was requeued that was not running")

    def _host(self, row: list[str], event_ns: int, line: int) -> None:
        # version time opCode host userId userName [comment]
        control = number_at(row, 3, "opCode")
        if len(row) < 5 or row[4][0] != '"':
            raise Unusable("names no host", "field 5")
        (host,) = host_names([unquoted(row[4])], "host")
        if control in _CLOSED:
            if self.closed.under_way(host) is not None:
                raise LeftOut("a host was closed that was closed already")
            self.closed.begin(host, (host,), event_ns, self.file, line)
        elif control != _OPEN:
            raise Unusable("opCode of HOST_CTRL is none of 1 to 5", str(control))
        elif not self.closed.end(host, event_ns, self.file, line):
            raise LeftOut("a host was opened that was not closed in these logs")
