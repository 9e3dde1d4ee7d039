"""In-memory inputs: the objects that Python passes to a run in place of files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bft.models import InputError, JobTable, XiTable, jobs_to_frame
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


def digest_of(content: NodeTrace | JobTable | XiTable) -> str:
    """SHA-256 of the content of an object, so that a result names its input exactly."""
    if isinstance(content, NodeTrace):
        units = [content.node_units] if content.by_unit else []
        head = json.dumps(
            [content.nodes, content.start, content.end, content.units_per_node, *units]
        ).encode()
        arrays = (
            content.times,
            content.joined,
            content.joined_at,
            content.left,
            content.left_at,
        )
        text = b"".join([head, *(array.tobytes() for array in arrays)])
    elif isinstance(content, JobTable):
        text = repr(jobs_to_frame(content).to_dict(orient="records")).encode()
    else:
        text = repr(content.measurements).encode()
    return hashlib.sha256(text).hexdigest()
