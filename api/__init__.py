"""How much training jobs would have done on a supercomputer's idle nodes, and which job should get which node.

    run = bft.replay(trace, jobs, tfwd=120, policy="milp")   a replay: paths, frames or objects
    run.summary, run.steps, run.jobs, run.allocations        the results
    run.plot(), run.report("run.html")                       a picture, a page to show
    bft.compare(trace, jobs, ["milp", "pollux"])             variants side by side, a bft.Comparison
    bft.sweep(trace, jobs, {"tfwd": [10, 60, 120]})          a grid of options, on anything that runs processes
    bft.evaluate(files)                                      what idle nodes are worth, by logs: a bft.Evaluation
    bft.ingest(files)                                        a node trace of a scheduler's logs
    bft.solve(problem)                                       one decision
    bft.load_example()                                       the bundled trace and jobs
    bft.Run(folder)                                          a run directory of the command line

Options have the names of `bft-replay replay --help` and `list options` (`max_jobs=20` is --max-jobs 20) and the same
checks.
help(bft.replay), help(bft.Run) and so on say more. Below it lie bft.replay (time, policies), bft.milp (decisions),
bft.models (jobs, curves) and bft.datasets (generators).

>>> import bft
>>> run = bft.replay(policy="fifo", dedicated=False)  # on the bundled data set
>>> len(run.jobs), list(run.steps.columns[:3])
(60, ['time', 'idle', 'used'])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft._replay import Example as Example
    from bft._replay import ingest as ingest
    from bft._replay import load_example as load_example
    from bft._replay import replay as replay
    from bft._replay import solve as solve
    from bft._run import Run as Run
    from bft._study import Comparison as Comparison
    from bft._study import Evaluation as Evaluation
    from bft._study import compare as compare
    from bft._study import evaluate as evaluate
    from bft._study import sweep as sweep
    from bft.models.errors import InputError as InputError

# A package that is called: docs/decisions/0017-python-api.md.
_PACKAGES = ("datasets", "milp", "models", "replay")
# Without __all__: help(bft) would print every docstring of these names in full.
_load, _names, _ = public_names(__name__)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"bft.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("bft-replay")
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_PACKAGES})
