"""A machine evaluated from Python: from a scheduler's logs to the page that a director reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bft._replay import arguments_named, log_options, several, stages
from bft.models.checks import refuse_unknown
from bft.replay.logs.ingest import IngestOptions
from bft.replay.options.options import PRICES, WORLD
from bft.replay.report import evaluation
from bft.replay.report.evaluation import Evaluation as Evaluation


def evaluate(
    files: str | Path | Sequence[str | Path],
    form: str = "auto",
    *,
    out: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> Evaluation:
    """Say what a machine's idle nodes are worth, what training yields there, and what the machine's own jobs pay.

    Parameters
    ----------
    files, form
        Logs and their format, as for `bft.ingest`.
    out
        Folder of all that is made; by default it is named after the log. What is done already, from the same files
        with the same options, is not done again.
    progress
        Show stages and a bar on standard error.
    **options
        Those of `bft-replay evaluate`: all of `bft.ingest`; `jobs` (a file; without it trainings are made up),
        `jobs_format`, `align_jobs`, `node_class`; `price_per_node_hour`, `host_price`, `node_watts`, `co2_per_kwh`,
        `price_per_kwh`.

    Returns
    -------
    Evaluation
        `.figures`, `.table` (a row for each reserve and return time), and `.page`, the path of the page.

    Raises
    ------
    InputError
        When a file cannot be read, or an option has no valid value.

    Examples
    --------
    >>> import bft
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder, "log.csv")
    ...     rows = ["n1,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z", "n1,2021-02-10T03:00:00Z,2021-02-10T04:00:00Z"]
    ...     _ = log.write_text(chr(10).join(["node,start,end", *rows]))
    ...     window = {"begin": "2021-02-10", "end": "2021-02-10T04:00:00"}
    ...     found = bft.evaluate(log, "intervals", nodes="n[1-2]", out=Path(folder, "out"), **window)
    ...     round(found.figures["idle_share"], 6), found.page.exists()
    (0.75, True)
    """
    stated = {**WORLD, **PRICES}
    of_logs = {field.name for field in fields(IngestOptions)}
    refuse_unknown(options, {*of_logs, *stated})
    names = several(files)
    folder = evaluation.folder_of(names) if out is None else Path(out)
    with arguments_named(), stages(evaluation.STAGES, progress=progress) as shown:
        return evaluation.evaluate(
            form,
            names,
            log_options({name: options[name] for name in options if name in of_logs}),
            {name: options[name] for name in options if name in stated},
            folder,
            watcher=shown,
        )
