"""Names of replays by their options: what distinguishes several of them, and where their inputs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bft.models.checks import INPUT, JOBS
from bft.replay.options.options import FIELDS
from bft.replay.options.table import PRESETS

# Key of a variant's name next to names of options.
VARIANT = "variant"
# Options whose value alone is clear without their name, which come first.
_TELLING = ("policy", "objective", "backend", "preset", "formulation")
# A name of more options is harder to read than the name of a folder.
MAX_NAMED = 3
# Options of inputs that policies and not the world use, or whose default follows from the policy.
_NOT_THE_WORLD = ("oversized", "seed")
# Options that draw from --seed, so that another seed makes other inputs.
_DRAWN = ("shuffle_submits", "arrival")


def label_of(varied: Mapping[str, Any]) -> str:
    """The values of a replay's options as a text.

    >>> label_of({"policy": "pollux", "tfwd_s": 60.0})
    'pollux, -Tfwd 60'
    >>> label_of({"preset": None, "free_first": False})
    'no --preset, --no-free-first'
    """
    return ", ".join(_part(*each) for each in varied.items()) or "as given"


def _part(name: str, value: Any) -> str:
    field = FIELDS.get(name)
    flag = name.removeprefix("set ") if field is None else field.title
    if value is None:
        return f"no {flag}"
    if isinstance(value, bool) and field is not None and field.rare:
        return f"{flag}={'yes' if value else 'no'}"
    if isinstance(value, bool):
        given = value != (field is not None and field.negated)
        return flag if given else f"without {flag}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if field is not None and field.input_file:
        files = value if isinstance(value, tuple | list) else (value,)
        text = ", ".join(Path(str(file)).name for file in files)
    if name == VARIANT or name in _TELLING:
        return text
    assigned = name.startswith("set ") or (field is not None and field.rare)
    return f"{flag}{'=' if assigned else ' '}{text}"


def names_of_runs(
    folders: Sequence[Path], summaries: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Name runs by the options in which they differ, or by their folders where that needs more than `MAX_NAMED`.

    Parameters
    ----------
    folders, summaries
        The run directories, and the content of the summary.json of each.

    Examples
    --------
    >>> runs = [{"options": {"policy": name, "tfwd_s": 10.0}} for name in ("milp", "fifo")]
    >>> names_of_runs([Path("a"), Path("b")], runs)
    ['milp', 'fifo']
    """
    options = [_distinctive(summary["options"]) for summary in summaries]
    differing = [
        name
        for name in dict.fromkeys((*_TELLING, *FIELDS))
        if len({_part(name, each.get(name)) for each in options}) > 1
    ]
    if differing and len(differing) <= MAX_NAMED:
        labels = [
            label_of({name: each.get(name) for name in differing}) for each in options
        ]
        if len(set(labels)) == len(labels):
            return labels
    names = [folder.resolve().name.removesuffix("-itrOut") for folder in folders]
    return names if len(set(names)) == len(names) else list(map(str, folders))


def _distinctive(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run without those that its preset or policy sets."""
    preset = PRESETS.get(options.get("preset") or "", {})
    return {
        name: value
        for name, value in options.items()
        if name != "oversized" and not (name in preset and preset[name] == value)
    } | {name: None for name in preset if options.get(name) == preset[name]}


def different_inputs(
    names: Sequence[str], summaries: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Say in which inputs runs differ: contents of files by their digests, and options of trace and jobs.

    Parameters
    ----------
    names, summaries
        What each run is called, and the content of its summary.json.

    Returns
    -------
    list of str
        A phrase for each input that differs; empty where all runs had the same trace and jobs.
    """
    phrases = []
    worlds = [_world(summary) for summary in summaries]
    for what in dict.fromkeys(key for world in worlds for key in world):
        values = [
            "none" if world.get(what) is None else str(world[what]) for world in worlds
        ]
        other = next((k for k, each in enumerate(values) if each != values[0]), None)
        if other is not None:
            one, two = values[0], values[other]
            phrases.append(f"{what} ({one} in {names[0]}, {two} in {names[other]})")
    return phrases


def _world(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The trace and the jobs of a run, as what they are called and what identifies them."""
    options, inputs = summary["options"], summary["inputs"]
    digests = inputs.get("digests_sha256", {})
    world = {
        # Twelve digits of a digest tell files apart.
        field.flag: f"SHA-256 {digests[name][:12]}"
        if name in digests
        else options.get(name)
        for name, field in FIELDS.items()
        if field.section in (INPUT, JOBS) and name not in _NOT_THE_WORLD
    }
    if any(options.get(name) for name in _DRAWN):
        world["--seed"] = options.get("seed")
    return world | {
        "number of nodes": inputs["trace"].get("nodes"),
        "number of jobs": inputs["jobs"].get("count"),
        "load of the generated jobs": inputs["jobs"].get("generated_load"),
    }
