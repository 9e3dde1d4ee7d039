"""Where the published and golden data lie, which a user's clone does not have (benchmarks/README.md)."""

import os
from pathlib import Path


def folder() -> Path:
    """The folder that BFT_REFERENCE names; it may not be there."""
    return Path(
        os.environ.get(
            "BFT_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"
        )
    )
