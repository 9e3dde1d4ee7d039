"""Upper bounds on the first 512 nodes of the real log (reference data), by how many jobs may be in play.

python benchmarks/bounds.py
"""

from __future__ import annotations

from typing import Any

from _common import print_head, print_row, published_log

from bft.replay.engine.rules import Rules
from bft.replay.inputs.notes import Silent
from bft.replay.options.options import Options
from bft.replay.run import bounds_by


def main() -> None:
    """Print the table."""
    log: dict[str, Any] = {**published_log(), "skip_rows": 1000, "node_count": 512}
    print_head("-maxJ", "outcome at most, 10⁹ samples", "mean JCT at least, h")
    for max_jobs in (10, 30, 60, 0):
        options = Options(**log, rules=Rules(max_jobs=max_jobs))
        bounds, _ = bounds_by(options, Silent())
        assert bounds.outcome is not None
        assert bounds.jct_mean_s is not None
        hours = f"{bounds.jct_mean_s / 3600:.1f}"
        print_row(max_jobs or "all", f"{bounds.outcome / 1e9:.2f}", hours)


if __name__ == "__main__":
    main()
