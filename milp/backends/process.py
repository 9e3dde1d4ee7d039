"""The parent's side of the solver process: start it, ask it, and survive its crashes."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel

logger = logging.getLogger(__name__)

# A worker that has grown by this much is replaced: python-mip leaks about 10-90 kB per solve. Imports do not count.
RECYCLE_BYTES = 64 * 2**20
# A solver that is silent for this many seconds after its time limit counts as hanging.
GRACE_S = 10.0
START_S = 60.0
# The operating system counts a wait in milliseconds with 31 bits: anything longer is treated as no limit.
LONGEST_S = 1e6
# A write of this size never blocks, even if nobody reads the pipe; Linux allows 200 kB.
PIPE_BYTES = 32_768


# The worker's program: it searches the installation first, then the paths of this process.
_WORKER = "import sys; sys.path += [p for p in sys.argv[3:] if p not in sys.path]; " + (
    "from bft.milp.backends.worker import main; main()"
)


def _search_path() -> list[str]:
    """The module search path of this process, without the current directory.

    A file mip.py or bisect.py beside the user's data must not be imported. The current directory would make that
    happen, and so would an empty entry of PYTHONPATH, which means the same. So the worker gets these paths as
    arguments, and no PYTHONPATH.
    """
    here = Path.cwd()
    paths = [Path(entry).resolve() for entry in sys.path if entry]
    return [str(path) for path in paths if path != here]


# Begin of the note of a decision whose solver process ended, and of how it ended.
DIED = "died ("


class SolverFailure(RuntimeError):  # noqa: N818 - what happened, as in "solver failure"
    """The solver process died, hung or raised an exception; the message says which."""


class SolverProcess:
    """A solver in its own process: started for the first request, replaced when it dies or grows too large.

    Parameters
    ----------
    recycle_bytes
        The worker is replaced when its resident memory has grown by this much, solvers that it has imported apart.
    grace_s
        The worker is killed when it is silent for this long after the time limit.
    """

    def __init__(
        self, recycle_bytes: int = RECYCLE_BYTES, grace_s: float = GRACE_S
    ) -> None:
        self.recycle_bytes, self.grace_s = recycle_bytes, grace_s
        self.started = 0
        self._worker: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._owner = os.getpid()

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None when none is running."""
        return None if self._worker is None else self._worker.pid

    def solve(self, model: LinearModel, backend: str, limits: Limits) -> LinearAnswer:
        """Solve `model` with the named backend; raise SolverFailure when there is no answer.

        The worker is killed when it is silent for longer than the time limit plus `grace_s`.
        """
        patience = None if limits.seconds is None else limits.seconds + self.grace_s
        if patience is not None and patience > LONGEST_S:
            patience = None
        # As bytes: a view of a buffer that an error keeps alive is complained of when it goes (Python 3.13).
        question = bytes(ForkingPickler.dumps((backend, model, limits)))
        pipe = self._connect(backend)
        hung = f"hung: no answer {self.grace_s:g} s past its time limit"
        try:
            with _watchdog(
                self._worker, patience if len(question) > PIPE_BYTES else None
            ) as bitten:
                pipe.send_bytes(question)
            if not pipe.poll(patience):
                logger.info(
                    "solver process %s is killed: silent %g s past its time limit",
                    self.pid,
                    self.grace_s,
                )
                self.close(kill=True)
                raise SolverFailure(hung)
            reply = pipe.recv()
        except (EOFError, ConnectionError) as error:
            pid, code = self.pid, self._end(kill=True)
            logger.info("solver process %s has ended: %s", pid, _how(code))
            if bitten.is_set():
                raise SolverFailure(hung) from error
            raise SolverFailure(f"{DIED}{_how(code)})") from error
        except BaseException:  # Ctrl-C: a late answer must not be mistaken for the answer to the next request
            self.close(kill=True)
            raise
        if reply[0] == "error":
            raise SolverFailure(f"raised: {reply[1].strip().splitlines()[-1]}")
        if reply[2] > self.recycle_bytes:
            logger.info(
                "solver process %s has grown by %.0f MiB and is replaced",
                self.pid,
                reply[2] / 2**20,
            )
            self.close()
        answer: LinearAnswer = reply[1]
        return answer

    def close(self, *, kill: bool = False) -> None:
        """End the worker process; the next request starts a new one."""
        self._end(kill=kill)

    def _connect(self, backend: str) -> Connection:
        """Return the pipe to the worker. A new worker loads its solver first, so that no request pays for loading."""
        if (
            self._owner != os.getpid()
        ):  # after a fork the worker belongs to the parent process
            self._disown()
        if self._pipe is not None:
            return self._pipe
        ours, theirs = Pipe()
        # In a process group of its own, so that Ctrl-C in the terminal does not reach it.
        try:
            self._worker = subprocess.Popen(  # noqa: S603 - our own module, by this interpreter
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _WORKER,
                    str(theirs.fileno()),
                    backend,
                    *_search_path(),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if name != "PYTHONPATH"
                },
                process_group=0,
                cwd="/",  # CBC aborts where the folder in which it was started is gone
            )
        except OSError as error:
            ours.close()
            raise SolverFailure(
                f"the solver process did not start ({error})"
            ) from error
        finally:
            theirs.close()
        self._pipe = ours
        self.started += 1
        try:
            ready = ours.poll(START_S) and ours.recv()
        except (EOFError, ConnectionError):
            ready = False
        if ready:
            logger.info(
                "solver process %s has started with backend %s", self.pid, backend
            )
        else:
            raise SolverFailure(
                f"the solver process did not start ({_how(self._end(kill=True))})"
            )
        return ours

    def _disown(self) -> None:
        """Forget a worker that belongs to the process from which this one was forked."""
        if self._worker is not None:
            self._worker.returncode = (
                0  # otherwise Popen warns: only the parent may wait for it
            )
        if self._pipe is not None:
            self._pipe.close()
        self._worker, self._pipe, self._owner = None, None, os.getpid()

    def _end(self, *, kill: bool) -> int | None:
        if self._owner != os.getpid():
            self._disown()
            return None
        if self._pipe is not None:
            self._pipe.close()
        worker, self._worker, self._pipe = self._worker, None, None
        if worker is None:
            return None
        if kill and worker.poll() is None:
            worker.kill()
        try:
            return worker.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()


@contextmanager
def _watchdog(
    worker: subprocess.Popen[bytes] | None, seconds: float | None
) -> Iterator[threading.Event]:
    """Kill `worker` if the block takes longer than `seconds`: writing to a stopped process never returns."""
    bitten = threading.Event()
    if worker is None or seconds is None:
        yield bitten
        return

    def bite() -> None:
        bitten.set()
        worker.kill()

    timer = threading.Timer(seconds, bite)
    timer.daemon = True
    timer.start()
    try:
        yield bitten
    finally:
        timer.cancel()


def _how(code: int | None) -> str:
    if code is None:
        return "no exit code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


_shared: SolverProcess | None = None


def shared_process() -> SolverProcess:
    """Return the solver process that `solve` uses by default; it ends with this process."""
    global _shared
    if _shared is None:
        _shared = SolverProcess()
        atexit.register(_shared.close)
    return _shared
