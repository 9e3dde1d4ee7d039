"""The constants of policies: fields of their dataclasses with a help text, and with a range where they have one."""

from typing import Any

from bft.models.checks import Number
from bft.models.plugins import constant as constant


def consolidates() -> Any:
    """The constant that says how jobs are placed."""
    return constant(default=True, text="place each job on as few nodes as it needs")


def rounds(default: float) -> Any:
    """The constant that says how often a policy decides."""
    text = "seconds between decisions, 0: at every event"
    return constant(default, text, Number(0))
