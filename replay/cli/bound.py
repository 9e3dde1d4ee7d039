"""`bft-replay bound`: the bound for every policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from bft.models.checks import INPUT, JOBS, POLICY_KNOWS, SHARING, OptionField
from bft.replay.cli.parameters import (
    TableCommand,
    json_option,
    option,
    stated_options,
    together,
)
from bft.replay.options.options import FIELDS, Options

if TYPE_CHECKING:
    from bft.replay.results.bounds import Bounds


def _limits_bounds(field: OptionField) -> bool:
    """Tell whether bounds depend on an option, whoever decides."""
    describes_inputs = field.section in (INPUT, JOBS, SHARING)
    return describes_inputs and POLICY_KNOWS not in field.conditions


_of_bounds = {name: field for name, field in FIELDS.items() if _limits_bounds(field)}
bound_options = together(*map(option, _of_bounds.values()))


@click.command(cls=TableCommand)
@bound_options
@json_option("Write the bounds as JSON.")
def bound(as_json: bool, **given: Any) -> None:
    """Report the bound on a node trace: the samples that no policy can exceed; and the least completion times.

    Rescales, restarts and preemptions count as free, so it holds for every policy and cost model. Each replay reports
    its share of the bound. Without -ndmap the bundled data set is used; without jobs a generated workload.
    """
    from bft.replay.cli.watcher import PlainLines
    from bft.replay.run import bounds_by

    options = Options(**stated_options(FIELDS, given))
    bounds, inputs = bounds_by(options, PlainLines())
    if as_json:
        figures = {**asdict(bounds), "jobs": len(inputs.jobs)}
        click.echo(json.dumps(figures, indent=2, sort_keys=True))
    elif bounds.bound is None:
        click.echo(bounds.why_none)
    else:
        width = max(len(label) for label, _ in _lines(bounds))
        for label, value in _lines(bounds):
            click.echo(f"{label:<{width}}  {value}")


def _lines(bounds: Bounds) -> Iterator[tuple[str, str]]:
    yield "bound", f"at most {bounds.bound:,.0f} samples"
    if bounds.jct_mean_s is not None:
        hours = f"at least {bounds.jct_mean_s / 3600:,.2f} h"
        yield "mean job completion time", f"{hours}, jobs not done counted to the end"
    if bounds.makespan_s is None:
        yield "makespan", "not all jobs can be done"
    else:
        yield "makespan", f"at least {bounds.makespan_s / 3600:,.2f} h"
