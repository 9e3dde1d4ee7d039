"""The files that options name, read once as long as their content is the same; or objects in place of files."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bft.models import InputError, JobTable, XiTable, jobs_to_frame
from bft.replay.options.options import FIELDS, Options
from bft.replay.trace.host_jobs import HOST_JOBS, HostJobs, digest, named_file
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import trace_from_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class InMemoryInputs:
    """The inputs of a run that no file holds; None where the options name a file, or nothing.

    The options name such an object in words, as "(a NodeTrace)", so that they check and record it as they do a path.
    """

    trace: NodeTrace | pd.DataFrame | None = None
    jobs: JobTable | None = None
    xi: XiTable | None = None

    def node_trace(self, skip_rows: int, *, sort: bool) -> NodeTrace | None:
        """Return the trace that is in memory, or None.

        Raises
        ------
        InputError
            When a frame is no trace, and for skip_rows with a NodeTrace, which has no rows.
        """
        if self.trace is None:
            return None
        if not isinstance(self.trace, NodeTrace):
            return trace_from_frame(
                self.trace, source="(a DataFrame)", skip_rows=skip_rows, sort=sort
            )
        if skip_rows:
            raise InputError(
                "--skip-rows counts the rows of a file or frame; a NodeTrace has none"
            )
        return self.trace


def digest_of(content: NodeTrace | HostJobs | JobTable | XiTable) -> str:
    """SHA-256 of the content of an object, so that a result names its input exactly."""
    if isinstance(content, NodeTrace):
        more: list[Any] = [content.node_units] if content.by_unit else []
        if content.classes:
            more.append(content.classes)
        head = json.dumps(
            [content.nodes, content.start, content.end, content.units_per_node, *more]
        ).encode()
        arrays = (
            content.times,
            content.joined,
            content.joined_at,
            content.left,
            content.left_at,
        )
        text = b"".join([head, *(array.tobytes() for array in arrays)])
    elif isinstance(content, HostJobs):
        columns = (getattr(content, name) for name in HostJobs.__dataclass_fields__)
        text = b"".join(np.asarray(column).tobytes() for column in columns)
    elif isinstance(content, JobTable):
        text = repr(jobs_to_frame(content).to_dict(orient="records")).encode()
    else:
        text = repr(content.measurements).encode()
    return hashlib.sha256(text).hexdigest()


T = TypeVar("T")
# Options that name a file, or a folder, on which a result depends.
INPUTS = tuple(name for name, option in FIELDS.items() if option.input_file)
# Number of files kept in memory: a few, so that a sweep over many traces does not hold all of them.
KEPT = 8


class Files:
    """Reads files and keeps their content for the next replay of the same process.

    A file counts as the same while its size and its time of modification are, and its content where these differ.
    """

    def __init__(self) -> None:
        self._digests: dict[Path, tuple[tuple[int, int, int], str]] = {}
        self._read: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def once(self, read: Callable[..., T], *paths: str | None, **keywords: Any) -> T:
        """The result of `read` for these paths; must not be changed."""
        try:
            digests = tuple(
                None if path is None else self.digest(path) for path in paths
            )
        except OSError:  # `read` reports it better
            return read(*paths, **keywords)
        key = (read, paths, digests, repr(sorted(keywords.items())))
        if key not in self._read:
            self._read[key] = read(*paths, **keywords)
        self._read.move_to_end(key)
        while len(self._read) > KEPT:
            self._read.popitem(last=False)
        known: T = self._read[key]
        return known

    def digest(self, path: str | tuple[str, ...]) -> str:
        """SHA-256 of a file, of the digests of several, or of the names and contents of a folder's files.

        As in reading, a name without suffix means the published file of that name.

        Raises
        ------
        OSError
            When there is none, or it cannot be read.
        """
        if isinstance(path, tuple):
            return hashlib.sha256("".join(map(self.digest, path)).encode()).hexdigest()
        candidates = [Path(path + suffix) for suffix in ("", ".pkl", ".tar.gz")]
        existing = next((file for file in candidates if file.is_file()), candidates[0])
        if not existing.is_dir():
            return self._of_file(existing)
        inner = sorted(file for file in existing.rglob("*") if file.is_file())
        lines = "".join(
            f"{file.relative_to(existing).as_posix()} {self._of_file(file)}\n"
            for file in inner
        )
        return hashlib.sha256(lines.encode()).hexdigest()

    def _of_file(self, path: Path) -> str:
        state = path.stat()
        stamp = (state.st_ino, state.st_size, state.st_mtime_ns)
        known = self._digests.get(path)
        if known is None or known[0] != stamp:
            known = self._digests[path] = stamp, digest(path)
        return known[1]


def input_digests(
    options: Options,
    files: Files,
    objects: Mapping[str, NodeTrace | JobTable | XiTable | None] | None = None,
) -> dict[str, str]:
    """SHA-256 of each file that the options name, or of the object in its place, by the name of the option.

    The host jobs beside the node trace are named so too, as far as there are any.

    Raises
    ------
    OSError
        When one is missing or cannot be read.
    """
    named = {
        name: getattr(options, name)
        for name in INPUTS
        if getattr(options, name) is not None
    }
    if options.cluster is not None and not Path(options.cluster).is_file():
        del named["cluster"]  # a size, such as 8x8
    there = {
        name: digest_of(content)
        for name, content in (objects or {}).items()
        if content is not None
    }
    digests = {
        name: there.get(name) or files.digest(path) for name, path in named.items()
    }
    trace = (objects or {}).get("node_trace")
    if isinstance(trace, NodeTrace):
        if trace.host_jobs is not None:
            digests[HOST_JOBS] = digest_of(trace.host_jobs)
    elif options.node_trace is not None:
        named_jobs = named_file(options.node_trace)
        if named_jobs is not None and named_jobs[0].is_file():
            digests[HOST_JOBS] = files.digest(str(named_jobs[0]))
    return digests
