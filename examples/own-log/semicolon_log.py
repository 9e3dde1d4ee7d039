"""A log format in a package of its own: one job per line, `job 7;cn[1-3];2024-05-01T10:00:00;2024-05-01T11:00:00`."""

from collections.abc import Iterator

from bft.replay.logs import (
    Foreign,
    HostListError,
    JobRan,
    LeftOut,
    LogFormat,
    Reading,
    Record,
    Unusable,
    each_line,
    expand_hosts,
    in_order,
)


def read(reading: Reading) -> Iterator[Record]:
    """Read one file."""

    def record(text: str, line: int) -> Iterator[Record]:
        row = text.split(";")
        if len(row) != 4 or not row[0].startswith("job "):
            why = "is no record of this format, such as job 7;cn[1-3];START;END"
            raise Foreign(why, ascii(text[:60]))
        job, hosts, start, end = row
        if not start:
            raise LeftOut("a job that never started")
        start_ns = reading.clock.parse(start, reading.file, line)
        end_ns = reading.clock.parse(end, reading.file, line, start_ns)
        if start_ns is None or end_ns is None:
            raise Unusable("a time is no time", ascii(f"{start};{end}"[:60]))
        in_order(start_ns, end_ns)
        try:
            nodes = reading.nodes(expand_hosts(hosts))
        except HostListError as error:
            raise Unusable("field 2 holds no host list", str(error)) from error
        yield JobRan(line, job, nodes, start_ns, end_ns)

    yield from each_line(reading, record)


FORMAT = LogFormat("One job per line, with semicolons", read, r"job \d+;[^;]*;[^;]*;")
