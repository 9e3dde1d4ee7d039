"""Several replays as one study: comparisons of variants, and sweeps over options.

A study is a folder of runs, each named by the digest of its configuration. So a finished run is reused, and a killed
study continues where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.replay.studies.comparison import Comparison as Comparison
    from bft.replay.studies.comparison import Difference as Difference
    from bft.replay.studies.study import Plan as Plan
    from bft.replay.studies.study import Point as Point
    from bft.replay.studies.study import Study as Study
    from bft.replay.studies.sweeping import best as best
    from bft.replay.studies.sweeping import sweep as sweep
else:
    __getattr__, __dir__, __all__ = public_names(__name__)
