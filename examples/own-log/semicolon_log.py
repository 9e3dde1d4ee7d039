"""A log format in a package of its own: one job per line, `job 7;cn[1-3];2024-05-01T10:00:00;2024-05-01T11:00:00`."""

from collections.abc import Iterator

from bft.replay.logs import Log, LogFormat, Row, each_line


def read(log: Log) -> Iterator[Row]:
    """Yield what the rows of one file state."""

    def row(text: str, line: int) -> Iterator[Row]:
        job, hosts, start, end = text.split(";")
        yield {"id": job, "hosts": hosts, "start": start, "end": end}

    yield from each_line(log, row, expected="job such as job 7;cn[1-3];START;END")


FORMAT = LogFormat("One job per line, with semicolons", read, r"job \d+;[^;]*;[^;]*;")
