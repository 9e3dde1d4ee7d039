"""Node traces of scheduler logs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bft._arguments import arguments_named

if TYPE_CHECKING:
    from bft.replay import NodeTrace


def ingest(
    files: str | Path | Sequence[str | Path], form: str = "auto", **options: Any
) -> NodeTrace:
    """Make a node trace of a scheduler's logs, as `bft-replay ingest` does.

    Parameters
    ----------
    files
        One log, or several that are one log.
    form
        Their format: `slurm`, `pbs`, `lsf`, `sge`, `cobalt` and so on (`bft-replay ingest --formats` lists all), or
        `auto`, which their first lines show.
    **options
        Those of the command: `nodes`, `events`, `reservations` (each one file or several), `tz`, `begin`, `end`
        (a text, datetime or Timestamp), `min_gap_s`, `partition`, `machine` and others; see
        `bft.replay.logs.from_files.IngestOptions`.

    Returns
    -------
    NodeTrace
        `bft.replay.write_trace(trace, "trace.parquet")` writes it. Its notes list skipped rows and assumptions.

    Raises
    ------
    InputError
        When a file cannot be read; names file and line.

    Examples
    --------
    >>> import bft
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> row = ",2021-02-10T00:00:00Z,2021-02-10T01:00:00Z"
    >>> rows = ["node,start,end", '"n[1-4]"' + row, "n1" + row.replace("T01", "T03")]
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "log.csv")
    ...     _ = file.write_text(chr(10).join(rows))
    ...     trace = bft.ingest(file, "intervals", begin="2021-02-10", end="2021-02-10T03:00:00")
    >>> trace.nodes, trace.idle_node_seconds() / 3600
    (('n1', 'n2', 'n3', 'n4'), 6.0)
    """
    from dataclasses import fields, replace

    from bft.models import InputError
    from bft.models.checks import did_you_mean
    from bft.replay.logs.from_files import IngestOptions, ingested
    from bft.replay.trace.walltimes import write_walltimes

    known = {field.name for field in fields(IngestOptions)}
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise InputError(f"unknown option {unknown!r}{did_you_mean(unknown, known)}")
    for name in ("nodes", "events", "reservations"):
        if name in options:
            options[name] = _several(options[name])
    for name in ("begin", "end"):
        if isinstance(options.get(name), datetime):  # a Timestamp is one too
            options[name] = options[name].isoformat()
    walltimes = options.pop("walltimes", None)
    asked = IngestOptions(walltimes=walltimes is not None, **options)
    with arguments_named():
        trace, diagnosis, _, planned = ingested(form, _several(files), asked)
        if walltimes is not None and planned is not None:
            write_walltimes(planned, walltimes)
    return replace(trace, notes=(*trace.notes, *diagnosis.warnings()))


def _several(files: str | Path | Sequence[str | Path]) -> list[str]:
    return (
        [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]
    )
