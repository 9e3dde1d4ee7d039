"""`bft-replay list`: the policies with their constants, objectives, solvers, formats of logs, the rarer options."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click

from bft.models import InputError
from bft.models.checks import Name
from bft.models.plugins import constants_of, expected
from bft.replay.cli.commands import Command, fitted
from bft.replay.cli.parameters import Checked, json_option
from bft.replay.options.options import FIELDS

# What is known of a policy, objective, solver, format or option: a summary, perhaps lines below it, and more for JSON.
Entry = dict[str, Any]


def _policy(name: str) -> Entry:
    from bft.replay.options.options import Options
    from bft.replay.policies.registry import policy_type

    policy = policy_type(name)
    described = inspect.getdoc(policy.factory) or ""
    options, lines = [], []
    for constant in constants_of(policy.factory, list(Options().settings())):
        known = asdict(constant)
        del known["type"]
        wanted = expected(constant.type)
        known |= {"expected": wanted, "default": _as_set(constant.default)}
        options.append(known)
        what = constant.help or wanted
        lines.append(f"--set {constant.name}={known['default']}  {what}")
    traits = list(policy.traits.stated)
    return {
        "summary": described.partition("\n")[0],
        "traits": traits,
        "options": options,
        "lines": [
            *([f"traits: {', '.join(traits)}"] if traits else []),
            *(lines or ["It has no constants of its own."]),
        ],
    }


def _as_set(value: Any) -> str:
    """A default in the form that --set takes."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


def _objective(name: str) -> Entry:
    """What the page of objectives says of a curve or factor."""
    from bft.models import objectives

    said = re.search(rf"^- (.*`{name}[:`].*(?:\n  .*)*)", str(objectives.__doc__), re.M)
    text = " ".join(said[1].split()) if said else ""
    return {"summary": text.replace("`", "")}


def _backend(name: str) -> Entry:
    from bft.milp.backends.registry import describe, formulations_of

    state = describe(name)
    there = f"available, {state.version or 'of no version'}; {state.licence}"
    missing = f"not available ({state.licence}): {state.how_to_get}"
    formulations = list(formulations_of(name))
    solves = f"solves: {', '.join(formulations)}"
    return {
        "summary": there if state.available else missing,
        **asdict(state),
        "formulations": formulations,
        "lines": [*([f"limits: {state.limits}"] if state.limits else []), solves],
    }


def _format(name: str) -> Entry:
    from bft.replay.logs.formats import log_format

    return {"summary": log_format(name).about}


def _option(key: str) -> Entry:
    field = next(each for each in FIELDS.values() if each.key == key)
    constant = not field.shown and field.default is not None
    default = f" [{_as_set(field.default)}]" if constant else ""
    summary = f"{field.described}{default}"
    return {"summary": summary, "section": field.section, "python": field.name}


def _names(what: str) -> Sequence[str]:
    from bft.milp.backends.registry import backend_names
    from bft.models.objectives import CURVES, FACTORS
    from bft.replay.logs.formats import format_names
    from bft.replay.policies import policy_names

    listed: dict[str, Callable[[], Sequence[str]]] = {
        "policies": policy_names,
        "objectives": lambda: [*CURVES, *FACTORS],
        "backends": backend_names,
        "formats": format_names,
        "options": lambda: [field.key for field in FIELDS.values() if field.rare],
    }
    return listed[what]()


# What can be listed, and what tells about one.
LISTS: dict[str, Callable[[str], Entry]] = {
    "policies": _policy,
    "objectives": _objective,
    "backends": _backend,
    "formats": _format,
    "options": _option,
}


@click.command("list", cls=Command)
@click.argument("what", metavar="|".join(LISTS), type=Checked(Name(tuple(LISTS))))
@click.argument("name", required=False)
@json_option()
def list_(what: str, name: str | None, as_json: bool) -> None:
    """List policies, objectives, solvers, formats of logs, or what --option sets; with NAME, describe one of them.

    Of a policy these are its constants, which --set changes; of a solver its limits and formulations.

    Such as:
    bft-replay list backends
    bft-replay list policies tiresias-l
    """
    names, entries = _names(what), {}
    if name is not None:
        try:
            names = [Name(tuple(names))(name)]
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="NAME") from None
    for each in names:
        try:
            entries[each] = LISTS[what](each)
        except InputError as error:
            if name is not None:
                raise
            # A package that is broken must not hide the others.
            entries[each] = {"summary": str(error)}
    if as_json:
        click.echo(json.dumps(entries, indent=2, default=str))
        return
    width = max(map(len, names))
    for each, entry in entries.items():
        click.echo(fitted(f"{each:<{width}}  {entry['summary']}", sys.stdout))
        for line in entry.get("lines", []) if name is not None else []:
            click.echo(fitted(f"  {line}", sys.stdout))
