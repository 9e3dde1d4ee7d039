"""A run in Python: the files of its directory as frames, a picture, a page."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bft.models import InputError
from bft.models.files import drafted
from bft.replay.report import charts_of_run, check_page, plotted, write_report
from bft.replay.results.headlines import headlines
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    read_part,
    read_summary,
    run_directory,
)
from bft.replay.studies.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def path_of(name: str, value: object) -> Path:
    """An argument as a path, or an error that names it."""
    if not isinstance(value, str | Path):
        raise InputError(f"{name}: expected a path, not {value!r:.60}")
    return Path(value)


class Run(RunFiles):
    """The result of a replay: `bft.replay` returns it, and `bft.Run(folder)` opens a run directory.

    Parameters
    ----------
    folder
        A run directory (docs/results.md).

    Attributes
    ----------
    folder
        Where its files lie. Without `out` that is a temporary folder, which is removed with the object: see `save`.
    summary
        The content of summary.json: metrics, options, digests of the inputs, notes, versions.
    metrics
        Its numbers, such as outcome (samples), used_share, U, jct_s; docs/results.md defines them.
    steps
        Table of decisions, one row each: time (UTC), idle and used units, jobs in play, costs (samples), objective,
        status.
    jobs
        Table of jobs by name: submit, start, finish (UTC), JCT and queueing (s), work and losses (samples).

    Raises
    ------
    InputError
        When `folder` is not a run directory.

    Examples
    --------
    >>> import bft
    >>> run = bft.replay(policy="fifo", dedicated=False)
    >>> run.metrics["jobs"], len(run.steps) > 100
    (60, True)
    >>> list(run.allocations.columns)
    ['job', 'first_node', 'last_node', 'units', 'start', 'end']
    >>> run.jobs.loc["J00000-AlexNet", "submit"]
    Timestamp('2021-02-10 00:20:00+0000', tz='UTC')
    """

    def __init__(self, folder: str | Path) -> None:
        path = path_of("folder", folder)
        super().__init__(path, read_summary(path))
        self._is_temporary = False

    @classmethod
    def temporary(cls, folder: Path) -> Run:
        """The run in a folder that is removed with the object."""
        run = cls(folder)
        run._is_temporary = True
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
        return run

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a `Run` is pickled: as the path of its folder, or the content of its files if it is temporary."""
        if not self._is_temporary:
            return Run, (self.folder.absolute(),)
        files = {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}
        return _unpacked, (files,)

    @property
    def notes(self) -> list[str]:
        """Notes in full sentences: each states what changes the result, or explains it."""
        notes: list[str] = self.summary["notes"]
        return notes

    @cached_property
    def allocations(self) -> pd.DataFrame:
        """Table of the nodes that jobs held: job, first and last node of a range, its units, start and end (UTC)."""
        frame = read_part(self.folder, ALLOCATIONS)
        metadata = frame.attrs["metadata"]
        nodes, per_node = json.loads(metadata["nodes"]), int(metadata["units_per_node"])
        first, last = frame.pop("first_unit"), frame.pop("last_unit")
        frame.insert(1, "first_node", [nodes[unit // per_node] for unit in first])
        frame.insert(2, "last_node", [nodes[unit // per_node] for unit in last])
        frame.insert(3, "units", (last - first + 1).to_numpy())
        frame.attrs = {}
        return frame

    def plot(self, chart: str = "idle") -> Figure:
        """Draw a chart of the page, by the name that links to it has: idle, held, progress, times; needs matplotlib.

        Examples
        --------
        >>> import bft
        >>> figure = bft.replay(policy="fifo", dedicated=False).plot("progress")
        >>> figure.axes[0].get_ylabel()
        'jobs, first submitted on top'
        """
        return plotted(charts_of_run(self), chart)

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the run as one HTML page to show to others, and return where it is; a page there is replaced.

        It needs the extra `report`. The title is the machine's name if no title is given.

        Examples
        --------
        >>> import bft
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     page = bft.replay(policy="fifo", dedicated=False).report(Path(folder, "run.html"))
        ...     page.read_text()[:15]
        '<!DOCTYPE html>'
        """
        page = path_of("path", path)
        check_page(page)
        with drafted(page) as draft:
            write_report([self.folder], draft, title=title)
        return page

    def save(self, folder: str | Path) -> Run:
        """Copy the run directory to where it stays, and return the run there.

        Raises
        ------
        InputError
            When something is there already.

        Examples
        --------
        >>> import bft
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     kept = bft.replay(policy="fifo", dedicated=False).save(Path(folder, "fifo"))
        ...     sorted(path.name for path in kept.folder.glob("*.json"))
        ['summary.json', 'timing.json']
        """
        try:
            with run_directory(path_of("folder", folder), force=False) as draft:
                shutil.copytree(self.folder, draft, dirs_exist_ok=True)
        except InputError as error:
            what = error.what.partition(";")[0]  # the rest names options of replays
            hint = "name another folder"
            raise InputError(what, file=error.file, hint=hint) from None
        return Run(folder)

    def __repr__(self) -> str:
        options, inputs = self.summary["options"], self.summary["inputs"]
        jobs, trace = inputs["jobs"], inputs["trace"]["source"]
        cut = ", interrupted" if self.metrics["interrupted"] else ""
        title = f"<Run: {options['policy']}, {jobs['count']} jobs on {trace}{cut}>"
        lines = list(headlines(self.summary))
        width = max(len(label) for label, _ in lines)
        return "\n".join([title, *(f"{name:<{width}}  {value}" for name, value in lines)])  # fmt: skip


def _unpacked(files: dict[str, bytes]) -> Run:
    """The run of these files, in a temporary folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="bft-"))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return Run.temporary(folder)
