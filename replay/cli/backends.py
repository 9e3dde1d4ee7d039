"""`bft-replay backends`: the solvers of decisions on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from bft.replay.cli.groups import Command
from bft.replay.cli.parameters import json_option


@click.command(cls=Command)
@json_option()
def backends(as_json: bool) -> None:
    """List the backends: version, licence, limits, formulations, and how to install missing ones."""
    from bft.milp.backends.registry import backend_names, describe, formulations_of

    states = {name: describe(name) for name in backend_names()}
    if as_json:
        listing = {
            name: {**asdict(state), "formulations": list(formulations_of(name))}
            for name, state in states.items()
        }
        click.echo(json.dumps(listing, indent=2))
        return
    for name, state in states.items():
        click.echo(
            f"{name:<7} {'available' if state.available else 'not available':<15}{state.version or '-'}"
        )
        lines = {
            "licence": state.licence,
            "limits": state.limits,
            "solves": ", ".join(formulations_of(name)),
            "to get": state.how_to_get,
        }
        for label, text in lines.items():
            if text:
                click.echo(f"        {label}: {text}")
