"""`bft-replay backends`: what can solve a decision here."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command(short_help="What can solve a decision here, with versions and licences.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def backends(as_json: bool) -> None:
    """List the backends: version, licence, limits, formulations, and how to get what is missing."""
    from bft.milp.backends.registry import BACKENDS, describe

    states = {name: describe(name) for name in BACKENDS}
    if as_json:
        found = {
            name: {**asdict(state), "formulations": list(BACKENDS[name].formulations)} for name, state in states.items()
        }
        click.echo(json.dumps(found, indent=2))
        return
    for name, state in states.items():
        click.echo(f"{name:<8}{'available' if state.available else 'not available':<15}{state.version or '-'}")
        lines = {
            "licence": state.licence,
            "limits": state.limits,
            "solves": ", ".join(BACKENDS[name].formulations),
            "to get": state.how_to_get,
        }
        for label, text in lines.items():
            if text:
                click.echo(f"        {label}: {text}")
