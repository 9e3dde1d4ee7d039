"""The recorded decisions of the reference data as problems."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bft.milp import Job, Problem


@cache
def decisions(folder: Path, name: str) -> list[dict[str, Any]]:
    """`instances` or `corner-cases`: what was decided, and its optima."""
    lines = gzip.decompress((folder / "bftrainer" / "milp" / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


def posed(entry: dict[str, Any]) -> Problem:
    """The problem of a decision."""
    jobs = tuple(
        Job(
            name=f"j{j}",
            jmin=entry["jmin"][j],
            # The published model stays on the curve.
            jmax=min(entry["jmax"][j], entry["Ns"][j][-1]),
            ns=np.array(entry["Ns"][j], dtype=np.float64),
            os=np.array(entry["Os"][j], dtype=np.float64),
            tcup=entry["res_up"][j],
            tcdw=entry["res_dw"][j],
        )
        for j in range(entry["nJ"])
    )
    return Problem(entry["nN"], entry["Tfwd"], jobs, tuple(len(nodes) for nodes in entry["current"]))
