"""The summary of a run for people: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO

from bft.replay.results.headlines import headlines


def show(summary: dict[str, Any], folder: Path, stream: TextIO | None = None) -> None:
    """Print the headline metrics and where the rest is."""
    lines = list(
        headlines(summary["metrics"], summary["inputs"]["jobs"]["generated_load"])
    )
    if stream is None and sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=False, box=None, pad_edge=False)
        for label, value in lines:
            table.add_row(label, value)
        console = Console()
        console.print(table, highlight=False)
        console.print(
            f"Results: {folder}", markup=False, highlight=False, soft_wrap=True
        )
        return
    width = max(len(label) for label, _ in lines)
    for label, value in lines:
        print(f"{label:<{width}}  {value}", file=stream)
    print(f"Results: {folder}", file=stream)
