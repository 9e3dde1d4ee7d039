"""`bft-replay bound`: upper bounds for every policy."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bft.models.option_fields import INPUT, JOBS, POLICY_KNOWS, SHARING, OptionField
from bft.replay.cli.parameters import (
    NamesWholeOption,
    by_section,
    json_option,
    section,
    stated_options,
    together,
)
from bft.replay.options.options import FIELDS, Options


def _limits_bounds(field: OptionField) -> bool:
    """Tell whether bounds depend on an option, whoever decides."""
    describes_inputs = field.section in (INPUT, JOBS, SHARING)
    return field.name == "max_jobs" or (
        describes_inputs and POLICY_KNOWS not in field.conditions
    )


_of_bounds = {name: field for name, field in FIELDS.items() if _limits_bounds(field)}
bound_options = together(
    *(
        section(title, *options)
        for title, options in by_section(_of_bounds).items()
        if options
    )
)


@click.command(cls=NamesWholeOption)
@bound_options
@json_option("Write the bounds as JSON.")
def bound(as_json: bool, **given: Any) -> None:
    """Report bounds that no policy can exceed on a node trace: outcome, mean job completion time, makespan.

    Rescales, restarts and preemptions count as free, so the bounds hold for every policy and cost model.
    `bft-replay --bound` reports a replay's share of the bound. Without -ndmap the bundled data set is used; without
    jobs a generated workload.
    """
    from bft.replay.cli.watcher import PlainLines
    from bft.replay.run import bounds_by

    options = Options.of(**stated_options(FIELDS, given))
    bounds, inputs = bounds_by(options, PlainLines())
    result = {
        **asdict(bounds),
        "max_jobs": options.rules.max_jobs,
        "jobs": len(inputs.jobs),
    }
    if as_json:
        click.echo(json.dumps(result, indent=2, sort_keys=True))
        return
    if bounds.why_none:
        click.echo(bounds.why_none)
        return
    lines = _lines(result)
    width = max(len(label) for label, _ in lines)
    for label, value in lines:
        click.echo(f"{label:<{width}}  {value}")


def _lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    in_play = (
        f"{result['max_jobs']} jobs in play"
        if result["max_jobs"]
        else "all jobs in play"
    )
    samples = {
        "outcome": result["outcome"],
        "from unit-time alone": result["unit_time"],
        f"with {in_play}": result["fluid"],
        "a mix of allocations attains": result["fluid_attained"],
        "with two jobs on a unit": result["shared"],
    }
    lines = [
        (label, f"{value:,.0f} samples")
        for label, value in samples.items()
        if value is not None
    ]
    lines[0] = lines[0][0], f"at most {lines[0][1]}"
    if result["jct_mean_s"] is not None:
        hours = f"at least {result['jct_mean_s'] / 3600:,.2f} h"
        lines.append(
            ("mean job completion time", f"{hours}, jobs not done counted to the end")
        )
    makespan = result["makespan_s"]
    lines.append(
        (
            "makespan",
            "not all jobs can be done"
            if makespan is None
            else f"at least {makespan / 3600:,.2f} h",
        )
    )
    return lines
