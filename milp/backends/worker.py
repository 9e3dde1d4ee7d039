"""The worker's side of the solver process: solvers are C libraries that may abort, hang or leak."""

import gc
import os
import resource
import select
import signal
import sys
import threading
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


def main() -> None:
    """Answer requests (backend name, LinearModel, Limits) with (LinearAnswer or None, error, bytes grown).

    The first request to each backend counts as no growth: it imports the backend's solver, which is memory in use.
    """
    # The parent handles Ctrl-C and a lost terminal; this process ends when the pipe closes.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    # Output of a C library must not mix with results on the user's standard output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # Load the solver before the clock starts; the first request would fail the same way, and report it.
    with suppress(Exception):
        dispatch(sys.argv[2], LinearModel([1.0], [1.0], [True]), Limits())
    # Solved models are garbage-collected below, between two requests. At an arbitrary time, python-mip's models would
    # call cffi to free themselves, perhaps inside another cffi call, whose lock is not reentrant: a deadlock.
    gc.disable()
    gc.freeze()  # modules stay loaded, so later collections need not visit them
    asked: set[str] = set()
    grown = 0
    # The parent may end without reading the last answer.
    with suppress(EOFError, ConnectionError):
        pipe.send("ready")
        while True:
            name, model, limits = pipe.recv()
            before, answer, error = resident_bytes(), None, ""
            try:
                answer = dispatch(name, model, limits)
            except Exception as raised:
                what = f"{type(raised).__name__}: {raised}"
                error = what.strip().splitlines()[-1]
            if name in asked:
                grown += resident_bytes() - before
            asked.add(name)
            pipe.send((answer, error, grown))
            del answer, model
            gc.collect()


def _end_with(pipe: Connection) -> None:
    """End this process when the other end of the pipe is closed, in the middle of a solve too: solvers release the GIL.

    Otherwise a solve without a time limit would go on for hours after its parent was killed.
    """
    closed = select.poll()
    closed.register(pipe.fileno(), 0)  # no events but the closing, always reported
    closed.poll()
    os._exit(0)
