"""CBC is not used unless requested; `make small` replays with the small set of packages, which lacks more."""

from __future__ import annotations

import os
import re
from pathlib import Path

from processes import SCRIPT, result_of


def test_an_exact_replay_loads_no_cbc(tmp_path: Path) -> None:
    # A library that is none: whoever loads it fails, and the run says so.
    environment = {**os.environ, "PMIP_CBC_LIBRARY": str(tmp_path / "none.so")}
    options = ["-Tfwd", "120", "--backend", "exact", "--no-u", "-v", "--out", "run"]
    done = result_of([*SCRIPT, *options], env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "solver process" not in done.stderr
    assert not re.search("cbc", done.stderr, flags=re.IGNORECASE)
