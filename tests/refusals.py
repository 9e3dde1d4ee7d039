"""What is refused, and with which words."""

import pytest

from bft.models import InputError


def refused(
    what: str,
    call,
    /,
    *args,
    error: type[Exception] = InputError,
    **options,
):
    """Return the error that a call raises, whose text has a match of a pattern."""
    with pytest.raises(error, match=what or None) as caught:
        call(*args, **options)
    return caught.value
