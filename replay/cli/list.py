"""`bft-replay list`: the policies with their constants, the solvers, the formats of logs, the rarer options."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from bft.models import InputError
from bft.models.checks import Name
from bft.models.plugins import constants_of, expected
from bft.replay.cli.groups import Command
from bft.replay.cli.messages import fitted
from bft.replay.cli.parameters import Checked, json_option
from bft.replay.options.options import FIELDS

Entry = dict[str, Any]


def _policy(name: str) -> Entry:
    from bft.replay.options.options import Options
    from bft.replay.policies.registry import policy_type

    policy = policy_type(name)
    described = inspect.getdoc(policy.factory) or ""
    options = []
    for constant in constants_of(policy.factory, list(Options().settings())):
        known = asdict(constant)
        del known["type"]
        default = _as_set(constant.default)
        options.append(
            {**known, "expected": expected(constant.type), "default": default}
        )
    return {
        "summary": described.partition("\n")[0],
        "traits": list(policy.traits.stated),
        "options": options,
    }


def _as_set(value: Any) -> str:
    """A default in the form that --set takes."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


def _constants(policy: Entry) -> Iterator[str]:
    if policy["traits"]:
        yield f"It is {', '.join(policy['traits'])}."
    if not policy["options"]:
        yield "It has no constants of its own."
    for each in policy["options"]:
        what = each["help"] or each["expected"]
        yield f"--set {each['name']}={each['default']}  {what}"


def _backend(name: str) -> Entry:
    from bft.milp.backends.registry import describe, formulations_of

    state = describe(name)
    there = f"available, {state.version or 'of no version'}; {state.licence}"
    missing = f"not available ({state.licence}): {state.how_to_get}"
    return {
        "summary": there if state.available else missing,
        **asdict(state),
        "formulations": list(formulations_of(name)),
    }


def _limits(backend: Entry) -> Iterator[str]:
    if backend["limits"]:
        yield f"limits: {backend['limits']}"
    yield f"solves: {', '.join(backend['formulations'])}"


def _policies() -> Sequence[str]:
    from bft.replay.policies import policy_names

    return policy_names()


def _backends() -> Sequence[str]:
    from bft.milp.backends.registry import backend_names

    return backend_names()


def _formats() -> Sequence[str]:
    from bft.replay.logs.formats import format_names

    return format_names()


def _format(name: str) -> Entry:
    from bft.replay.logs.formats import log_format

    return {"summary": log_format(name).about}


def _options() -> Sequence[str]:
    return [field.key for field in FIELDS.values() if field.rare]


def _option(key: str) -> Entry:
    field = next(each for each in FIELDS.values() if each.key == key)
    default = (
        "" if field.shown or field.default is None else f" [{_as_set(field.default)}]"
    )
    return {
        "summary": field.described + default,
        "section": field.section,
        "python": field.name,
    }


# What can be listed -> names, what is known of one, and the lines below its summary.
LISTS: dict[
    str,
    tuple[
        Callable[[], Sequence[str]],
        Callable[[str], Entry],
        Callable[[Entry], Iterator[str]] | None,
    ],
] = {
    "policies": (_policies, _policy, _constants),
    "backends": (_backends, _backend, _limits),
    "formats": (_formats, _format, None),
    "options": (_options, _option, None),
}


@click.command("list", cls=Command)
@click.argument("what", metavar="|".join(LISTS), type=Checked(Name(tuple(LISTS))))
@click.argument("name", required=False)
@json_option()
def list_(what: str, name: str | None, as_json: bool) -> None:
    """List policies, solvers of decisions, formats of logs, or what --option sets; with NAME, describe one of them.

    Of a policy these are its constants, which --set changes; of a solver its limits and formulations.
    """
    all_names, describe, details = LISTS[what]
    names = all_names() if name is None else [_known(name, all_names())]
    entries = {}
    for each in names:
        try:
            entries[each] = describe(each)
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
        if details is not None and name is not None:
            for line in details(entry):
                click.echo(fitted(f"  {line}", sys.stdout))


def _known(name: str, names: Sequence[str]) -> str:
    try:
        return Name(tuple(names))(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
