"""The solver process: it solves the models that arrive on a pipe, until the pipe closes.

Solvers are C libraries that may abort, hang or leak. In their own process that costs one answer, not the replay.
`process.SolverProcess` starts the process and holds the other end of the pipe.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from bft.milp.backends.backend_api import Feature
from bft.milp.backends.registry import solver
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel

PAGE_BYTES = resource.getpagesize()
STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Resident memory of this process in bytes; its peak where /proc does not exist."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Growth:
    """Growth of this process in bytes, apart from the first request of each backend.

    That one imports the backend's solver, which is memory in use, however much it is: not a leak.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._start = self._before = 0

    def begin(self) -> None:
        """A request has come."""
        self._before = resident_bytes()

    def end(self, backend: str) -> int:
        """Return the growth up to the end of a request to this backend."""
        now = resident_bytes()
        if backend not in self._seen:
            self._start += now - (self._before if self._seen else 0)
            self._seen.add(backend)
        return now - self._start


def dispatch(name: str, model: LinearModel, limits: Limits) -> LinearAnswer:
    """Solve with the named backend, using only features that it declares. Its solver is imported at the first call."""
    backend = solver(name)
    if Feature.THREADS not in backend.features:
        limits = replace(limits, threads=1)
    if Feature.START not in backend.features:
        model.start = []
    answer: object = backend.solve(model, limits)
    if not isinstance(answer, LinearAnswer):
        raise TypeError(
            f"solve returned {type(answer).__name__}, expected a LinearAnswer"
        )
    return answer


def end_with_parent(pipe: Connection) -> None:
    """End this process when the other end of the pipe is closed, in the middle of a solve too: solvers release the GIL.

    Otherwise a solve without a time limit would go on for hours after its parent was killed.
    """
    closed = select.poll()
    closed.register(
        pipe.fileno(), 0
    )  # no events but the closing, which is always reported

    def watch() -> None:
        closed.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Answer requests (backend name, LinearModel, Limits) with ("answer", LinearAnswer, bytes grown: see `Growth`)."""
    # The parent handles Ctrl-C and a lost terminal; this process ends when the pipe closes.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    end_with_parent(pipe)
    # Output of a C library must not mix with results on the user's standard output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    with suppress(
        Exception
    ):  # the first request would fail the same way, and report it
        dispatch(
            sys.argv[2], LinearModel([1.0], [1.0], [True]), Limits()
        )  # load the solver before the clock starts
    # Solved models are garbage-collected here, between two requests. At an arbitrary time, python-mip's models would
    # call cffi to free themselves, perhaps inside another cffi call, whose lock is not reentrant: a deadlock.
    gc.disable()
    gc.freeze()  # modules stay loaded, so later collections need not visit them
    pipe.send(("ready", os.getpid()))
    growth = Growth()
    while True:
        try:
            name, model, limits = pipe.recv()
        except (
            EOFError,
            ConnectionError,
        ):  # the parent has ended, perhaps without reading the last answer
            return
        reply: tuple[object, ...]
        answer: LinearAnswer | None
        growth.begin()
        try:
            answer = dispatch(name, model, limits)
        except Exception:
            answer, reply = None, ("error", traceback.format_exc(limit=3))
        else:
            reply = ("answer", answer, growth.end(name))
        try:
            pipe.send(reply)
        except BrokenPipeError:  # the parent has gone
            return
        del answer, reply, model
        gc.collect()
