"""`bft-replay policies`: the policies and their constants."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from typing import Any

import click

from bft.models import InputError
from bft.models.checks import Name
from bft.replay.cli.groups import Command
from bft.replay.cli.parameters import json_option


@click.command(cls=Command)
@click.argument("name", required=False)
@json_option()
def policies(name: str | None, as_json: bool) -> None:
    """List the policies, or with NAME describe one and the constants that --set changes."""
    from bft.replay.policies import policy_names

    names = policy_names() if name is None else [_known(name, policy_names())]
    described = {each: _described(each, may_fail=name is None) for each in names}
    if as_json:
        click.echo(json.dumps(described, indent=2, default=str))
        return
    width = max(map(len, names))
    for each, policy in described.items():
        if name is None:
            click.echo(f"{each:<{width}}  {policy['summary']}")
            continue
        kinds = ", ".join(policy["traits"])
        click.echo(f"{each}: {policy['summary']}" + (f" ({kinds})" if kinds else ""))
        for option in policy["options"]:
            what = option["help"] or option["expected"]
            click.echo(f"  --set {option['name']}={option['default']}  {what}")
        if not policy["options"]:
            click.echo("  It has no constants of its own.")


def _known(name: str, names: list[str]) -> str:
    try:
        return Name(tuple(names))(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None


def _described(name: str, *, may_fail: bool) -> dict[str, Any]:
    from bft.replay.options.options import Options
    from bft.replay.policies.registry import policy_options, policy_type

    try:
        policy = policy_type(name)
    except InputError as error:  # a package that is broken must not hide the others
        if not may_fail:
            raise
        return {"summary": str(error), "traits": [], "options": []}
    options = policy_options(policy.factory, list(Options().settings()))
    return {
        "summary": next(iter((inspect.getdoc(policy.factory) or "").splitlines()), ""),
        "traits": list(policy.kind.stated),
        "options": [
            {key: value for key, value in asdict(option).items() if key != "type"}
            | {"expected": option.expected, "default": _shown(option.default)}
            for option in options
        ],
    }


def _shown(value: Any) -> str:
    """A default in the form that --set takes."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
