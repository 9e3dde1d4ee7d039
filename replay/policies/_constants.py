"""The constants of policies: fields of their dataclasses with a help text, and with a range where they have one."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from bft.models.checks import Check, Number


def constant(default: Any, text: str, check: Check | None = None) -> Any:
    """A field with its default, what help says of it, and its range, which `check_fields` checks at construction."""
    metadata: dict[str, Any] = {"help": text}
    if check is not None:
        metadata["check"] = check
    return field(default=default, metadata=metadata)


def consolidates() -> Any:
    """The constant that says how jobs are placed."""
    return constant(default=True, text="place each job on as few nodes as it needs")


def rounds(default: float) -> Any:
    """The constant that says how often a policy decides."""
    text = "seconds between decisions, 0: at every event"
    return constant(default, text, Number(0))
