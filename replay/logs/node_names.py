"""Which names are one node: some logs and commands write the short name, others the full one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def other_forms(names: Sequence[str], listed: Collection[int], owners: Mapping[int, str]) -> dict[int, int]:
    """Short and full forms of one name: for the index of the one to be replaced the index of the other.

    `cn001` and `cn001.cluster.org` are one node if no other full name has this short form, and if the list of nodes
    does not have both. The form that the list has stays, else the one that comes first in `names`.

    Parameters
    ----------
    names
        All names that were read.
    listed
        Indices of those that are in the list of nodes; empty without a list.
    owners
        Cluster of a node by its index, as far as logs state it: nodes of two clusters are two nodes.

    Examples
    --------
    >>> other_forms(["cn1", "cn1.cluster.org"], listed=[], owners={})
    {1: 0}
    """
    index = {name: k for k, name in enumerate(names)}
    full: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        short = _short(name)
        if short != name and short in index:
            full.setdefault(short, []).append(k)
    forms: dict[int, int] = {}
    for short, candidates in full.items():
        pair = index[short], candidates[0]
        two = pair[0] in listed and pair[1] in listed
        two |= len({owners[k] for k in pair if k in owners}) > 1
        if len(candidates) > 1 or two:
            continue
        kept = next((k for k in pair if k in listed), min(pair))
        forms[pair[0] if kept == pair[1] else pair[1]] = kept
    return forms


def unclear_forms(names: Sequence[str], nodes: Collection[int], owners: Mapping[int, str]) -> list[tuple[str, ...]]:
    """Short names among some nodes whose full forms are among them too, so that it is not clear which node they are.

    Parameters
    ----------
    names, owners
        As `other_forms` has them.
    nodes
        Indices of the nodes that are looked at.

    Returns
    -------
    list
        The short name, then its full forms, for each such name.

    Examples
    --------
    >>> unclear_forms(["cn1", "cn1.a.org", "cn1.b.org"], nodes=[0, 1, 2], owners={})
    [('cn1', 'cn1.a.org', 'cn1.b.org')]
    """
    index = {names[k]: k for k in sorted(nodes)}
    full: dict[str, list[str]] = {}
    for name, k in index.items():
        short = _short(name)
        if short == name or short not in index:
            continue
        clusters = {owners[node] for node in (k, index[short]) if node in owners}
        if len(clusters) < 2:
            full.setdefault(short, []).append(name)
    return [(short, *forms) for short, forms in full.items()]


def difference(names: Iterable[str], listed: Iterable[str]) -> str:
    """Why no name is in a list of nodes, for a message; empty if that is not clear.

    >>> difference(["cn1"], ["cn001"])
    'they differ in leading zeros: write cn[001-128], not cn[1-128]'
    """
    plain, expected = set(names), set(listed)
    if {_ZEROS.sub("", name) for name in plain} & {_ZEROS.sub("", name) for name in expected}:
        return "they differ in leading zeros: write cn[001-128], not cn[1-128]"
    if {name.casefold() for name in plain} & {name.casefold() for name in expected}:
        return "they differ in capital letters"
    if set(map(_short, plain)) & set(map(_short, expected)):
        return "they differ in their domains, or one short name has several"
    return ""


def _short(name: str) -> str:
    """A name without its domain; an address such as 10.0.0.1 has none."""
    short = name.partition(".")[0]
    return name if short.isdecimal() else short
