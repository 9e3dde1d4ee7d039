"""The files that options name, read once as long as their content is the same; or objects in place of files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bft.models import JobTable, XiTable, jobs_to_frame
from bft.replay.options.options import FIELDS, Options
from bft.replay.trace.host_jobs import HOST_JOBS, HostJobs, digest, named_file
from bft.replay.trace.node_trace import NodeTrace

T = TypeVar("T")
# Options that name a file, or a folder, on which a result depends.
INPUTS = tuple(name for name, option in FIELDS.items() if option.input_file)
# Number of files kept in memory: a few, so that a sweep over many traces does not hold all of them.
KEPT = 8


def digest_of(content: NodeTrace | HostJobs | JobTable | XiTable) -> str:
    """SHA-256 of the content of an object, so that a result names its input exactly."""
    if isinstance(content, NodeTrace):
        head: list[Any] = [
            content.nodes, content.start, content.end, content.units_per_node,
            *([content.node_units] if content.by_unit else []),
            *([content.classes] if content.classes else []),
        ]  # fmt: skip
        arrays = (
            content.times, content.joined, content.joined_at, content.left, content.left_at,
        )  # fmt: skip
        text = json.dumps(head).encode() + b"".join(array.tobytes() for array in arrays)
    elif isinstance(content, HostJobs):
        held = (getattr(content, name) for name in HostJobs.__dataclass_fields__)
        text = b"".join(np.asarray(column).tobytes() for column in held)
    elif isinstance(content, JobTable):
        text = repr(jobs_to_frame(content).to_dict(orient="records")).encode()
    else:
        text = repr(content.measurements).encode()
    return hashlib.sha256(text).hexdigest()


class Files:
    """Reads files and keeps their content for the next replay of the same process.

    A file counts as the same while its size and its time of modification are, and its content where these differ.

    Parameters
    ----------
    held
        Objects in place of files, by the option that would name the file: node_trace (a NodeTrace or a frame), jobs (a
        JobTable), xi (a XiTable). The options name each in words, as "(a NodeTrace)", and record that as they do a
        path.
    """

    def __init__(self, held: Mapping[str, Any] | None = None) -> None:
        self.held = dict(held or {})
        self._digests: dict[Path, tuple[tuple[int, int, int], str]] = {}
        self._read: dict[tuple[Any, ...], Any] = {}

    def once(self, read: Callable[..., T], *paths: str | None, **keywords: Any) -> T:
        """The result of `read` for these paths; must not be changed."""
        try:
            digests = tuple(path and self.digest(path) for path in paths)
        except OSError:  # `read` reports it better
            return read(*paths, **keywords)
        key = (read, paths, digests, repr(sorted(keywords.items())))
        # Moved to the end: the first is the one that was not used for longest.
        content: T = (
            self._read.pop(key) if key in self._read else read(*paths, **keywords)
        )
        self._read[key] = content
        if len(self._read) > KEPT:
            del self._read[next(iter(self._read))]
        return content

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


def input_digests(options: Options, files: Files) -> dict[str, str]:
    """SHA-256 of each file that the options name, or of the object in its place, by the name of the option.

    The host jobs beside the node trace are named so too, as far as there are any.

    Raises
    ------
    OSError
        When one is missing or cannot be read.
    """
    held = files.held
    named = {
        name: path for name in INPUTS if (path := getattr(options, name)) is not None
    }
    if options.cluster is not None and not Path(options.cluster).is_file():
        del named["cluster"]  # a size, such as 8x8
    digests = {
        name: digest_of(held[name]) if name in held else files.digest(path)
        for name, path in named.items()
    }
    if "node_trace" in held:
        if held["node_trace"].host_jobs is not None:
            digests[HOST_JOBS] = digest_of(held["node_trace"].host_jobs)
    elif options.node_trace is not None:
        jobs_file = named_file(options.node_trace)
        if jobs_file is not None and jobs_file[0].is_file():
            digests[HOST_JOBS] = files.digest(str(jobs_file[0]))
    return digests
