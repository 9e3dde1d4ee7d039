"""The solver process: solves what comes over a pipe until the pipe closes.

Solvers are C libraries that may abort, hang or leak. Here their death costs one answer, not a replay.
`process.SolverProcess` starts it, and is the other end of the pipe.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from bft.milp.backends.port import Feature
from bft.milp.backends.registry import solver
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel

PAGE_BYTES = resource.getpagesize()
STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Resident memory of this process; its peak where /proc does not exist."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def dispatch(name: str, model: LinearModel, limits: Limits) -> LinearAnswer:
    """Solve with the named backend, which gets what it declares to use; its solver is imported when first asked."""
    backend = solver(name)
    if Feature.THREADS not in backend.features:
        limits = replace(limits, threads=1)
    if Feature.START not in backend.features:
        model.start = []
    answer: object = backend.solve(model, limits)
    if not isinstance(answer, LinearAnswer):
        raise TypeError(f"solve returned {type(answer).__name__}, expected a LinearAnswer")
    return answer


def main() -> None:
    """Answer requests (backend name, LinearModel, Limits) with ("answer", LinearAnswer, bytes grown since start)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; we end when its pipe closes
    pipe = Connection(int(sys.argv[1]))
    # A C library's chatter must not reach the user's standard output, where results may go.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    with suppress(Exception):  # the first question would meet it too, and be answered with it
        dispatch(sys.argv[2], LinearModel([1.0], [1.0], [True]), Limits())  # loads the solver before any time counts
    # Solved models wait for us to collect them, between two questions. Collected at any time, python-mip's would free
    # themselves by a call to cffi, perhaps in the middle of another one, whose lock lets nobody in twice: a deadlock.
    gc.disable()
    gc.freeze()  # what is loaded stays, and need not be looked at each time
    pipe.send(("ready", os.getpid()))
    at_start = None
    while True:
        try:
            name, model, limits = pipe.recv()
        except (EOFError, ConnectionError):  # the parent has ended, perhaps with our answer unread
            return
        reply: tuple[object, ...]
        answer: LinearAnswer | None
        try:
            answer = dispatch(name, model, limits)
        except Exception:
            answer, reply = None, ("error", traceback.format_exc(limit=3))
        else:
            now = resident_bytes()
            at_start = now if at_start is None else at_start
            reply = ("answer", answer, now - at_start)
        try:
            pipe.send(reply)
        except BrokenPipeError:  # the parent has gone
            return
        del answer, reply, model
        gc.collect()
