"""One function by which job tables and matrix traces are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table (being written)."""
    raise NotImplementedError
