"""What is found, held against a table of what is expected by name."""

import re
from ast import literal_eval
from collections.abc import Mapping

import pandas as pd


def at(found, name: str):
    """What a dotted name leads to: items of mappings and frames, by place or key, or attributes; arrays as lists."""
    for part in name.split("."):
        if re.fullmatch(r"-?\d+|\(.*\)", part):
            found = found[literal_eval(part)]
        else:
            keyed = isinstance(found, Mapping | pd.DataFrame) and part in found
            found = found[part] if keyed else getattr(found, part)
    return found.tolist() if hasattr(found, "tolist") else found


def agree(found, expected) -> None:
    """All that is expected is found where its dotted name leads to."""
    seen = {name: at(found, name) for name in expected}
    wrong = [f"{name}: {seen[name]}, not {each}" for name, each in expected.items() if seen[name] != each]  # fmt: skip
    assert not wrong, wrong
