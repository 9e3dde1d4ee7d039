"""Time: node traces, the event loop, policies, metrics, results, and the command line.

Names are loaded when first used, so that the command line starts quickly.

The package is also called, as `bft.replay(trace, jobs, tfwd=120, policy="milp")`: a whole replay from paths, frames or
objects.

>>> from bft.models import Curve, Job, JobTable
>>> from bft.replay import EqualShare, Replay, always_idle
>>> curve = Curve([0, 2, 4], [0, 20, 30])
>>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
>>> outcome = Replay(always_idle(4, 0, 600 * 10**9), JobTable((job,)), EqualShare()).run()
>>> outcome.work, outcome.records[0].finish_ns
(3000.0, 100000000000)
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.replay.engine.ledger import Outcome as Outcome
    from bft.replay.engine.loop import Replay as Replay
    from bft.replay.engine.rules import Interference as Interference
    from bft.replay.engine.rules import Rules as Rules
    from bft.replay.options.options import Options as Options
    from bft.replay.policies import Decision as Decision
    from bft.replay.policies import EqualShare as EqualShare
    from bft.replay.policies import JobView as JobView
    from bft.replay.policies import MilpPolicy as MilpPolicy
    from bft.replay.policies import MilpSharingPolicy as MilpSharingPolicy
    from bft.replay.policies import Policy as Policy
    from bft.replay.policies import State as State
    from bft.replay.policies import Traits as Traits
    from bft.replay.policies.checking import PolicyCheckError as PolicyCheckError
    from bft.replay.policies.checking import check_policy as check_policy
    from bft.replay.policies.solver import SolverOptions as SolverOptions
    from bft.replay.results.metrics import summarise as summarise
    from bft.replay.run import execute as execute
    from bft.replay.trace.node_trace import NodeTrace as NodeTrace
    from bft.replay.trace.node_trace import always_idle as always_idle
    from bft.replay.trace.node_trace import from_changes as from_changes
    from bft.replay.trace.trace_files import read_trace as read_trace
    from bft.replay.trace.trace_files import write_trace as write_trace
    from bft.replay.trace.trace_statistics import fragments as fragments
    from bft.replay.trace.trace_statistics import trace_statistics as trace_statistics
else:
    # Without __all__: help(bft.replay) would print every docstring of these names in full.
    __getattr__, __dir__, _ = public_names(__name__)


class _Called(ModuleType):
    """A package that is also the function of its name (docs/decisions/0017-python-api.md)."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("bft._replay").replay(*args, **options)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Show the function first: a user who asks for help on `bft.replay` wants to call it."""
        import inspect  # here: the command line need not wait for it

        function = import_module("bft._replay").replay
        parameters = [
            each.replace(annotation=each.empty)
            for each in inspect.signature(function).parameters.values()
        ]
        call = f"bft.replay{inspect.Signature(parameters)}"
        return f"{call}\n\n{inspect.getdoc(function)}\n\nThe package\n\n{self.__dict__['__doc__']}"

    @property
    def __signature__(self) -> Any:
        import inspect  # here: the command line need not wait for it

        return inspect.signature(import_module("bft._replay").replay)


sys.modules[__name__].__class__ = _Called
