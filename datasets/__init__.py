"""Generators, and the small data set made by them that comes with the package.

Names are loaded when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.datasets.bundled import load_bundled as load_bundled
    from bft.datasets.dnn_jobs import dnn_scalability as dnn_scalability
    from bft.datasets.dnn_jobs import generate_dnn_jobs as generate_dnn_jobs
    from bft.datasets.node_traces import NodeTraceTable as NodeTraceTable
    from bft.datasets.node_traces import generate_node_trace as generate_node_trace
    from bft.datasets.scheduler_logs import generate_log as generate_log
else:
    __getattr__, __dir__, __all__ = public_names(__name__)
