"""Ask a policy, and trust nothing: neither that it answers, nor that it leaves the programme running."""

from __future__ import annotations

import inspect
import logging
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from bft.milp import ProblemError
from bft.models import InputError
from bft.replay.engine.port import PolicyError

logger = logging.getLogger(__name__)


class _TimeUp(BaseException):
    """The policy's time is up; no `except Exception` of the policy's may swallow it."""


@contextmanager
def asking(name: str, policy: object, *, limit_s: float | None = None, under_way: bool = True) -> Iterator[None]:
    """A block that calls a policy: whatever goes wrong in it is a PolicyError that names the policy.

    Parameters
    ----------
    name
        The policy's.
    policy
        The policy or its class, to name the line of its source at which it failed.
    limit_s
        Wall time after which it counts as hanging; None for no limit. It is kept by a signal, so only in a process's
        main thread, and Python must get its turn: a compiled loop is interrupted when it returns.
    under_way
        Whether something has been replayed that is to be kept; before, what names the wrong input itself passes.

    Raises
    ------
    PolicyError
        When the block raises, ends the programme, or takes longer than `limit_s`.
    """
    try:
        with _alarm(limit_s):
            yield
    except PolicyError:
        raise
    except (InputError, ProblemError) as error:  # these name what is wrong themselves
        if not under_way:
            raise
        raise PolicyError(f"policy {name!r} was stopped: {error}") from error
    except _TimeUp as error:
        where = _line(error, policy)
        raise PolicyError(f"policy {name!r} was stopped: no answer within {limit_s:g} s{where}") from None
    except SystemExit as error:
        where = _line(error, policy)
        raise PolicyError(f"policy {name!r} was stopped: it tried to end the programme{where}") from error
    except Exception as error:
        logger.debug("policy %r failed", name, exc_info=True)
        text = " ".join(str(error).split())
        what = type(error).__name__ + (f": {text}" if text else "")
        raise PolicyError(f"policy {name!r} was stopped: it raised {what}{_line(error, policy)}") from error


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """Raise _TimeUp in the block when it takes longer."""
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise InputError("a time limit for policies works in the main thread of a process only")

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _line(error: BaseException, policy: object) -> str:
    """The last line of the policy's own source on the way to an error."""
    made = policy if inspect.isclass(policy) or inspect.isroutine(policy) else type(policy)
    try:
        own = inspect.getsourcefile(made)
    except TypeError:
        own = None
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
