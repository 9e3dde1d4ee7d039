"""The guard around a call of a policy: the policy may exceed its timeout, fail, or end the program."""

from __future__ import annotations

import inspect
import logging
import signal
import threading
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from bft.milp import ProblemError
from bft.models import InputError
from bft.replay.engine.policy_api import PolicyError

logger = logging.getLogger(__name__)


class _TimeUp(BaseException):
    """The policy's time is up; an `except Exception` in the policy must not catch it."""


class PolicyCall:
    """A block that calls a policy: every failure inside becomes a PolicyError with the policy's name.

    Parameters
    ----------
    name
        The name of the policy.
    policy
        The policy or its class, to name the line of its source that failed.
    limit_s
        Wall time after which it counts as hanging; None for no limit. A signal enforces it, so it works only in the
        main thread, and a compiled loop is interrupted when it returns to Python.
    under_way
        Whether part of a replay is to be kept. Before that, errors that name an invalid input are passed on unchanged.

    Raises
    ------
    PolicyError
        When the block raises, ends the program, or takes longer than `limit_s`.
    """

    __slots__ = ("_before", "_limit_s", "_name", "_policy", "_under_way")

    def __init__(
        self,
        name: str,
        policy: object,
        *,
        limit_s: float | None = None,
        under_way: bool = True,
    ) -> None:
        self._name, self._policy, self._limit_s, self._under_way = (
            name,
            policy,
            limit_s,
            under_way,
        )
        self._before: Any = None

    def __enter__(self) -> None:
        if self._limit_s is None:
            return
        if threading.current_thread() is not threading.main_thread():
            raise InputError(
                "a time limit for policies works in the main thread of a process only"
            )
        self._before = signal.signal(signal.SIGALRM, _ring)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._limit_s is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
        if error is None or isinstance(error, PolicyError):
            return
        stopped = f"policy {self._name!r} was stopped"
        if isinstance(
            error, (InputError, ProblemError)
        ):  # these name the invalid input themselves
            if self._under_way:
                raise PolicyError(f"{stopped}: {error}") from error
        elif isinstance(error, _TimeUp):
            where = _line(error, self._policy)
            raise PolicyError(
                f"{stopped}: no answer within {self._limit_s:g} s{where}"
            ) from None
        elif isinstance(error, SystemExit):
            raise PolicyError(
                f"{stopped}: it tried to end the programme{_line(error, self._policy)}"
            ) from error
        elif isinstance(error, Exception):
            logger.debug("policy %r failed", self._name, exc_info=True)
            text = " ".join(str(error).split())
            reason = type(error).__name__ + (f": {text}" if text else "")
            raise PolicyError(
                f"{stopped}: it raised {reason}{_line(error, self._policy)}"
            ) from error


def _ring(number: int, frame: FrameType | None) -> None:
    raise _TimeUp


def _line(error: BaseException, policy: object) -> str:
    """The last line of the policy's own source on the way to an error."""
    made = (
        policy if inspect.isclass(policy) or inspect.isroutine(policy) else type(policy)
    )
    try:
        own = inspect.getsourcefile(made)
    except TypeError:
        own = None
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == own
    ]
    return (
        f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
        if frames
        else ""
    )
