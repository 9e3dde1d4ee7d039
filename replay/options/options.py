"""Everything that decides a replay's result, as a value; each option's default and check are in `table`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bft.models.checks import refuse_unknown
from bft.models.errors import InputError
from bft.models.option_fields import option_fields
from bft.models.plugins import parsed_constants
from bft.replay.engine.rules import Rules
from bft.replay.options.table import OptionTable, defaults
from bft.replay.policies.solver import SolverOptions


@dataclass(frozen=True, init=False)
class Options(OptionTable):
    """Everything that decides a replay's result, resolved; recorded in summary.json.

    Options are stated by their flat names, as in summary.json and on the command line; None counts as not stated. The
    values check themselves, so that the command line, config files and Python share one set of errors. Names are taken
    in capitals or not, paths as text or `Path`, whole numbers where seconds are expected. Defaults that depend on other
    options are filled in.

    Attributes
    ----------
    rules
        How the world works.
    solver
        What solves a decision.

    Raises
    ------
    InputError
        For an unknown name, when a value is not allowed, or does not go with another; names the option as the command
        line does.

    Examples
    --------
    >>> options = Options(tfwd_s=120, backend="exact")
    >>> options.tfwd_s, options.rules.max_jobs, options.solver.time_limit_s
    (120.0, 10, 10.0)
    >>> Options(tfwd_s=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: -Tfwd: expected a number of seconds > 0 and at most 1e+09, not -1
    >>> options = Options(policy="fifo", tfwd_s=30)
    >>> options.policy_type.kind.rigid, list(options.ineffective())
    (True, ['-Tfwd has no effect with --policy fifo'])
    """

    def __init__(self, **stated: Any) -> None:
        known = self.known()
        refuse_unknown(stated, known)
        given = {
            name: known[name].checked(value)
            for name, value in stated.items()
            if value is not None
        }
        values = {**defaults(known, given), **given}
        parts: dict[str, Any] = {"rules": Rules, "solver": SolverOptions}
        for part, kind in parts.items():
            values[part] = kind(
                **{name: values.pop(name) for name in option_fields(kind)}
            )
        for name, value in values.items():
            object.__setattr__(self, name, value)  # frozen, and not yet handed out
        self._check_together()

    def _check_together(self) -> None:
        """Refuse what does not go together, and constants that do not fit."""
        # Imported late: to print help, no policy need be loaded.
        from bft.replay.options.conflicts import conflicts
        from bft.replay.policies.registry import policy_options

        conflict = next(conflicts(self), None)
        if conflict is not None:
            raise InputError(conflict)
        own = policy_options(self.policy_type.factory, list(self.settings()))
        parsed_constants(f"policy {self.policy!r}", own, self.constants)
        self.make_workload()


# Every option by its flat name, in the order in which they are reported.
FIELDS = Options.known()
