"""What is refused, and with which words."""

from collections.abc import Callable
from typing import Any

import pytest

from bft.models import InputError


def refused(
    what: str,
    call: Callable[..., object],
    /,
    *args: Any,
    error: type[Exception] = InputError,
    **options: Any,
) -> Any:
    """Return the error that a call raises, whose text has a match of a pattern."""
    with pytest.raises(error, match=what or None) as caught:
        call(*args, **options)
    return caught.value
