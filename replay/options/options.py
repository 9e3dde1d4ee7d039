"""Everything that decides a replay's result, as a value; each option's default and check are in `table`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from bft.models.checks import check_fields, refuse_unknown
from bft.models.errors import InputError
from bft.models.option_fields import option_fields, parts_of
from bft.replay.options.table import OptionTable


@dataclass(frozen=True, slots=True)
class Options(OptionTable):
    """Everything that decides a replay's result; recorded in summary.json.

    The values check themselves, so that the command line, config files and Python share one set of errors. Names are
    taken in capitals or not, paths as text or `Path`, whole numbers where seconds are expected. `policy`, `oversized`,
    `tfwd_s`, `objective`, `rules` and `solver` have defaults that depend on other options; once made, they hold what
    applies.

    Parameters
    ----------
    rules
        How the world works. One that is given holds as it is; without, or by `Options.of`, `--cluster` and `--preset`
        let all jobs be in play, and `--compat` sets the overheads of a start.
    solver
        What solves a decision. One that is given holds as it is; without, or by `Options.of`, a decision may take 10 s.

    Raises
    ------
    InputError
        When a value is not allowed, or does not go with another; names the option as the command line does.

    Examples
    --------
    >>> from bft.replay import Rules, SolverOptions
    >>> Options(tfwd_s=120).rules.max_jobs
    10
    >>> Options.of(tfwd_s=120, backend="exact", max_jobs=5) == Options(
    ...     tfwd_s=120, rules=Rules(max_jobs=5), solver=SolverOptions("exact", time_limit_s=10)
    ... )
    True
    >>> Options(tfwd_s=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: -Tfwd: expected a number of seconds > 0 and at most 1e+09, not -1
    """

    def __post_init__(self) -> None:
        check_fields(self)
        self.fill_defaults()
        for name, kind in PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise InputError(
                    f"{name}: expected {kind.__name__}(...), not {getattr(self, name)!r}"
                )
        _check_together(self)

    @classmethod
    def of(cls, **stated: Any) -> Self:
        """Options by their flat names, as in summary.json and on the command line; others have their defaults.

        None, where a default depends on other options, counts as not stated.

        Raises
        ------
        InputError
            As for the class, and for an unknown name.
        """
        table: Any = cls  # mypy takes no class for hashable
        known = option_fields(table)
        values: dict[str, dict[str, Any]] = {part: {} for part in ("", *PARTS)}
        refuse_unknown(stated, known)
        for name, value in stated.items():
            field = known[name]
            if value is not None or field.depends is None:
                values[field.part][name] = value
        options = cls(**values[""])
        return replace(
            options,
            **{part: replace(getattr(options, part), **values[part]) for part in PARTS},
        )


def _check_together(options: Options) -> None:
    """Refuse what does not go together, and constants that do not fit."""
    # Imported late: to print help, no policy need be loaded.
    from bft.replay.options.run_spec import RunSpec, conflicts

    run = RunSpec.of(options)
    conflict = next(conflicts(run), None)
    if conflict is not None:
        raise InputError(conflict)
    run.check_constants()
    options.make_workload()


# Every option by its flat name, in the order in which they are reported.
FIELDS = option_fields(Options)
# Options that are values of several options.
PARTS = parts_of(Options)
