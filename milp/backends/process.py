"""A solver in a process of its own: started for the first request, replaced when it dies, hangs or grows too large.

It is no pool of `concurrent.futures`: what `multiprocessing` starts runs the user's script again where that has no
guard, and cannot be started at all by the workers of Dask and `multiprocessing.Pool`, in which replays run.
"""

import atexit
import logging
import os
import pickle
import subprocess
import sys
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel

logger = logging.getLogger(__name__)

# A worker that has grown by this much is replaced: python-mip leaks about 10-90 kB per solve. Imports do not count.
RECYCLE_BYTES = 64 * 2**20
# A solver that is silent for this many seconds after its time limit counts as hanging.
GRACE_S = 10.0
START_S = 60.0
# The operating system counts a wait in milliseconds with 31 bits.
LONGEST_S = 1e6

# The worker's program: it searches the installation first, then the paths of this process.
_WORKER = "import sys; sys.path += [p for p in sys.argv[3:] if p not in sys.path]; " + (
    "from bft.milp.backends.worker import main; main()"
)
# Begin of the note of a decision whose solver process ended, and of how it ended.
DIED = "died ("


class SolverFailure(RuntimeError):  # noqa: N818 - what happened, as in "solver failure"
    """The solver process died, hung or raised an exception; the message says which."""


class SolverProcess:
    """A solver in its own process.

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
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._owner = os.getpid()

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None when none is running."""
        return None if self._running is None else self._running[0].pid

    def solve(self, model: LinearModel, backend: str, limits: Limits) -> LinearAnswer:
        """Solve `model` with the named backend; raise SolverFailure when there is no answer.

        The worker is killed when it is silent for longer than the time limit plus `grace_s`.
        """
        patience = None
        if limits.seconds is not None:
            patience = min(limits.seconds + self.grace_s, LONGEST_S)
        pipe = self._started(backend)
        pid = self.pid
        try:
            pipe.send_bytes(pickle.dumps((backend, model, limits)))
            if not pipe.poll(patience):
                raise TimeoutError
            answer, error, grown = pipe.recv()
        except TimeoutError as late:
            how = f"hung: no answer {self.grace_s:g} s past its time limit"
            self.close()
            logger.info("solver process %s is killed: it %s", pid, how)
            raise SolverFailure(how) from late
        except (EOFError, ConnectionError) as end:
            how = self.close()
            logger.info("solver process %s has ended: %s", pid, how)
            raise SolverFailure(f"{DIED}{how})") from end
        except BaseException:  # Ctrl-C: a late answer must not be mistaken for the answer to the next request
            self.close()
            raise
        if grown > self.recycle_bytes:
            mib = grown / 2**20
            logger.info(
                "solver process %s has grown by %.0f MiB and is replaced", pid, mib
            )
            self.close()
        if answer is None:
            raise SolverFailure(f"raised: {error}")
        found: LinearAnswer = answer
        return found

    def close(self) -> str:
        """End the worker, which has nothing to lose; the next request starts a new one. Return how it ended."""
        running, self._running = self._running, None
        if running is None or self._owner != os.getpid():
            return "no process"
        worker, pipe = running
        worker.kill()
        pipe.close()
        code = worker.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _started(self, backend: str) -> Connection:
        """Return the pipe to the worker. A new worker loads its solver first, so that no request pays for loading."""
        if self._owner != os.getpid():  # after a fork: the worker is the parent's
            self._running, self._owner = None, os.getpid()
        if self._running is not None:
            return self._running[1]
        ours, theirs = Pipe()
        # A file mip.py or bisect.py beside the user's data must not be imported. The current directory would make that
        # happen, and so would an empty entry of PYTHONPATH, which means the same.
        here = Path.cwd()
        paths = [Path(each).resolve() for each in sys.path if each]
        path = [str(each) for each in paths if each != here]
        variables = {key: os.environ[key] for key in os.environ.keys() - {"PYTHONPATH"}}
        program = [sys.executable, "-P", "-c", _WORKER, str(theirs.fileno()), backend]
        try:
            # In a process group of its own, so that Ctrl-C in the terminal does not reach it.
            worker = subprocess.Popen(  # noqa: S603 - our own module, by this interpreter
                [*program, *path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=variables,
                process_group=0,
                cwd="/",  # CBC aborts where the folder in which it was started is gone
            )
        except OSError as error:
            ours.close()
            what = f"the solver process did not start ({error})"
            raise SolverFailure(what) from error
        finally:
            theirs.close()
        self._running = worker, ours
        self.started += 1
        try:
            if not ours.poll(START_S):
                raise EOFError
            ours.recv()
        except (EOFError, ConnectionError) as error:
            how = self.close()
            what = f"the solver process did not start ({how})"
            raise SolverFailure(what) from error
        logger.info("solver process %s has started with backend %s", self.pid, backend)
        return ours


@cache
def shared_process() -> SolverProcess:
    """Return the solver process that `solve` uses by default; it ends with this process."""
    shared = SolverProcess()
    atexit.register(shared.close)
    return shared
