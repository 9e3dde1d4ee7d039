"""The solver process crashes, hangs, grows, gives invalid answers and is orphaned: the result stays right."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from liars import KEPT, OPTIMUM, PROBLEM, Liar, job, point
from processes import AMPLE_S

from bft.milp import (
    Job,
    Limits,
    LinearAnswer,
    LinearModel,
    Problem,
    Solution,
    SolverProcess,
    solve,
)
from bft.milp.backends import process as process_module
from bft.milp.backends.process import SolverFailure
from bft.milp.tables import tables_of

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="looks at processes through Linux' /proc"
)


def problem_number(index: int) -> Problem:
    """Problems of one size, each with an optimum of its own, so that a mixed-up answer shows."""
    curve = np.array([0.0, 10.0 + index, 30.0 + 2 * index])
    jobs = tuple(
        Job(name, 1, 4, np.array([0.0, 1.0, 4.0]), curve, 20.0, 10.0) for name in "ab"
    )
    return Problem(5, 120.0, jobs, (1, 0))


@pytest.fixture
def process() -> Iterator[SolverProcess]:
    with closing(SolverProcess(grace_s=0.2)) as mine:
        yield mine


def ask(
    process: SolverProcess, problem: Problem = PROBLEM, **options: float
) -> Solution:
    return solve(problem, backend="cbc", ties="solver", process=process, **options)  # type: ignore[arg-type]


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def descriptors() -> list[str]:
    """File descriptors of this process, with what each is."""
    return sorted(
        f"{path.name} {path.readlink()}"
        for path in Path("/proc/self/fd").iterdir()
        if path.is_symlink()
    )


def pid_of(process: SolverProcess) -> int:
    assert process.pid is not None
    return process.pid


def eventually(what: Callable[[], bool]) -> bool:
    """Whether it comes true, given ample time."""
    end = time.monotonic() + 60.0
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def python(script: str) -> subprocess.Popen[str]:
    """Start a script with this interpreter, with warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# Prelude of scripts: a problem, its optimum, and a question to the shared process.
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from bft.milp import Job, Problem, SolverProcess, solve
from bft.milp.backends.process import shared_process

curve = dict(ns=np.array([0.0, 1.0, 4.0]), os=np.array([0.0, 10.0, 30.0]), tcup=20.0, tcdw=10.0)
problem = Problem(5, 120.0, (Job("a", 1, 4, **curve), Job("b", 1, 4, **curve)), (1, 2))

def check(**options):
    solution = solve(problem, backend="cbc", ties="solver", **options)
    assert (solution.status, solution.counts) == ("optimal", (3, 2)), solution
"""


def run(script: str, warnings: str = "error", **given: Any) -> str:
    """Run PRELUDE and a script to its end, which must be a good one, and return what it printed."""
    command = [sys.executable, "-W", warnings, "-c", PRELUDE + textwrap.dedent(script)]
    child = subprocess.run(
        command, capture_output=True, text=True, timeout=AMPLE_S, **given
    )
    assert (child.returncode, child.stderr) == (0, ""), child.stderr
    return child.stdout


# --- death --------------------------------------------------------------------------------------------------------


def test_one_worker_serves_many_questions_and_ends_when_closed(
    process: SolverProcess,
) -> None:
    assert process.pid is None
    assert [ask(process).status for _ in range(3)] == ["optimal"] * 3
    worker = pid_of(process)
    assert process.started == 1
    process.close()
    assert process.pid is None
    assert not Path(f"/proc/{worker}").exists()
    process.close()
    assert (ask(process).status, process.started) == ("optimal", 2)


def test_a_worker_killed_between_solves_costs_at_most_one_answer(
    process: SolverProcess,
) -> None:
    ask(process)
    for _ in range(3):
        worker = pid_of(process)
        os.kill(worker, signal.SIGKILL)
        assert eventually(lambda pid=worker: not running(pid))  # type: ignore[misc]
        after = ask(process)
        assert after.objective == pytest.approx(OPTIMUM)
        if after.status != "optimal":
            assert (after.status, after.backend) == ("fallback", "exact")
            assert "died (signal 9)" in after.note
        assert ask(process).status == "optimal"


# CBC catches an abort to print a stack trace, and another thread of the worker may answer meanwhile; these it does not.
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_a_worker_that_dies_during_a_solve_is_reported_with_its_signal(
    process: SolverProcess, number: int
) -> None:
    ask(process)
    worker = pid_of(process)
    os.kill(worker, signal.SIGSTOP)  # so that the question waits for sure

    def end() -> None:
        os.kill(worker, number)
        if number != signal.SIGKILL:  # pending until it goes on
            os.kill(worker, signal.SIGCONT)

    timer = threading.Timer(0.1, end)
    timer.start()
    solution = ask(process)
    timer.join()
    assert (solution.status, solution.backend, solution.counts) == (
        "fallback",
        "exact",
        (3, 2),
    )
    assert f"died (signal {int(number)})" in solution.note
    assert not Path(f"/proc/{worker}").exists()
    assert ask(process).status == "optimal"


def test_answers_stay_right_while_workers_are_killed_at_random(
    process: SolverProcess,
) -> None:
    random = np.random.default_rng(3)
    ask(process)
    for _ in range(6):
        assert process._running is not None
        worker = process._running[0]
        killer = threading.Timer(float(random.random()) * 0.02, worker.kill)
        killer.start()
        fallbacks = 0
        for index in itertools.count():
            problem = problem_number(index % 50)
            solution = ask(process, problem)
            assert solution.objective == pytest.approx(
                solve(problem, backend="exact").objective
            )
            fallbacks += solution.status != "optimal"
            if process.pid != worker.pid and solution.status == "optimal":
                break
        killer.join()
        assert fallbacks <= 1


def test_a_question_that_cannot_be_answered_leaves_the_worker_alive(
    process: SolverProcess,
) -> None:
    broken = LinearModel([1.0], [1.0], [True], [([7], [1.0], "<", 1.0)])
    with pytest.raises(SolverFailure, match="raised: IndexError"):
        process.solve(broken, "cbc", Limits())
    worker = process.pid
    assert ask(process).status == "optimal"
    assert (process.started, process.pid) == (1, worker)


# --- hanging ------------------------------------------------------------------------------------------------------


def test_a_worker_that_hangs_past_its_limit_is_killed(process: SolverProcess) -> None:
    ask(process)
    worker = pid_of(process)
    os.kill(worker, signal.SIGSTOP)
    solution = ask(process, time_limit=0.1)
    assert (solution.status, solution.counts) == ("fallback", (3, 2))
    assert "hung" in solution.note
    assert not Path(f"/proc/{worker}").exists()
    assert ask(process, time_limit=600.0).status == "optimal"
    assert process.started == 2


def test_a_pause_within_the_grace_is_forgiven() -> None:
    with closing(SolverProcess(grace_s=60.0)) as patient:
        ask(patient)
        os.kill(pid_of(patient), signal.SIGSTOP)
        timer = threading.Timer(0.3, os.kill, (pid_of(patient), signal.SIGCONT))
        timer.start()
        # Its own clock may find the time limit passed; it is not dead.
        assert ask(patient, time_limit=0.1).status in ("optimal", "feasible")
        timer.join()
        assert patient.started == 1


def test_an_interrupted_question_does_not_answer_the_next_one() -> None:
    run(
        """
        class Interrupt(Exception):
            pass

        def interrupt(*_):
            raise Interrupt

        process = SolverProcess()
        check(process=process)
        signal.signal(signal.SIGALRM, interrupt)
        os.kill(process.pid, signal.SIGSTOP)
        worker = process.pid
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            # The solver's ties: else the alarm may meet Numba's import, which answers it with an error of its own.
            solve(Problem(3, 120.0, problem.jobs[:1], (0,)), backend="cbc", ties="solver", process=process)
        except Interrupt:
            pass
        else:
            raise AssertionError("was not interrupted")
        try:
            os.kill(worker, signal.SIGCONT)
        except ProcessLookupError:
            pass  # ended, as good a way as any
        for _ in range(3):
            check(process=process)
        process.close()
        """
    )


# --- starting -----------------------------------------------------------------------------------------------------


def executable(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("exit 3", "did not start (exit code 3)"),
        ("exec sleep 600", "did not start (signal 9)"),  # it never reports
        (None, "did not start"),  # no interpreter
    ],
)
def test_a_worker_that_does_not_start_is_a_fallback(
    process: SolverProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    body: str | None,
    note: str,
) -> None:
    program = executable(tmp_path, body) if body else str(tmp_path / "nowhere")
    monkeypatch.setattr(sys, "executable", program)
    if body != "exit 3":
        monkeypatch.setattr(process_module, "START_S", 0.2)
    solution = ask(process)
    assert (solution.status, solution.backend) == ("fallback", "exact")
    assert solution.counts == (3, 2)
    assert note in solution.note
    assert process.pid is None
    monkeypatch.undo()
    assert ask(process).status == "optimal"


def test_what_a_solver_needs_is_loaded_before_its_time_counts(
    process: SolverProcess,
) -> None:
    # On a busy machine loading takes longer than a short limit and its grace.
    process._started("cbc")
    assert "cbc" in Path(f"/proc/{pid_of(process)}/maps").read_text().lower()


# --- growing and leaking ------------------------------------------------------------------------------------------


def test_a_worker_that_leaks_is_replaced() -> None:
    """python-mip leaks 10 kB or more a solve; a kernel that reclaims memory hides some of it."""
    with closing(SolverProcess(recycle_bytes=2**19)) as process:
        for index in range(8000):
            assert ask(process, problem_number(index % 50)).status == "optimal"
            if process.started > 1:
                break
    assert 3 < index < 7999


def test_a_worker_that_imports_another_solver_is_kept() -> None:
    """The import of SciPy takes more memory than a worker may grow by."""
    with closing(SolverProcess(recycle_bytes=8 * 2**20)) as process:
        for backend in ("cbc", "highs", "cbc", "highs"):
            own = solve(PROBLEM, backend=backend, ties="solver", process=process)
            assert own.status == "optimal"
        assert process.started == 1


def test_restarts_leak_no_descriptor_and_leave_no_zombie() -> None:
    always = SolverProcess(recycle_bytes=-1, grace_s=0.1)
    workers = []

    def restart(how: int) -> None:
        always._started("cbc")
        workers.append(pid_of(always))
        if how == 1:
            os.kill(pid_of(always), signal.SIGKILL)
        if how == 2:
            os.kill(pid_of(always), signal.SIGSTOP)
        assert ask(always, time_limit=600.0 if how < 2 else 0.1).counts == (3, 2)
        assert always.pid is None

    with closing(always):
        restart(0)
        before = descriptors()
        for index in range(9):
            restart(index % 3)
        assert descriptors() == before
        assert always.started == len({*workers}) == 10
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_failed_starts_leak_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", executable(tmp_path, "exit 1"))
    process = SolverProcess()
    ask(process)
    before = descriptors()
    for _ in range(10):
        assert ask(process).status == "fallback"
    assert descriptors() == before


# --- lies ---------------------------------------------------------------------------------------------------------

# b takes 2 at least.
STRICT = Problem(5, 120.0, (job("a"), job("b", jmin=2)), (1, 2))
SMALL, NEVER = (
    replace(
        PROBLEM,
        jobs=tuple(replace(one, os=one.os * factor) for one in PROBLEM.jobs),
        current=current,
    )
    for factor, current in ((1e-12, (1, 2)), (-1.0, (0, 0)))
)


def hear(liar: Liar, **options: Any) -> Solution:
    """What becomes of a lie when the solver's own answer counts."""
    return solve(
        liar.problem, backend="cbc", process=liar, **({"ties": "solver"} | options)
    )  # type: ignore[arg-type]


# Worth what it claims, but not in whole units.
HALF = {"garble": lambda x: 0.6 * x + 0.4 * point(PROBLEM, (1, 4))}
FALSE: dict[str, tuple[dict[str, Any], str]] = {
    "too many units": ({"counts": (4, 4)}, "8 units given, 5 idle"),
    "below Jmin": ({"counts": (0, 1), "problem": STRICT}, "'b' gets 1"),
    "above Jmax": ({"counts": (5, 0)}, "'a' gets 5"),
    "negative": ({"garble": lambda x: -x}, "'a' gets -3"),
    "a little more": ({"factor": 1.0001, "bound": OPTIMUM}, "claims"),
    "far more": ({"factor": 1e6, "bound": OPTIMUM}, "claims"),
    "endless": ({"factor": np.inf, "bound": OPTIMUM}, "claims"),
    "no number": ({"factor": np.nan, "bound": OPTIMUM}, "claims"),
    "fractional": (HALF, "claims"),
    "NaN": ({"garble": lambda x: x * np.nan}, ""),
    "inf": ({"garble": lambda x: np.where(x > 0, np.inf, x)}, ""),
    "one number": ({"garble": lambda x: x[:1]}, ""),
    "no numbers": ({"garble": lambda x: x[:0]}, ""),
    "a bit too much of little": (
        {"counts": (1, 3), "problem": SMALL, "factor": 30.0},
        "claims",
    ),
}
# What a solver may only say of an incumbent.
FALSE_OPTIMA: dict[str, tuple[dict[str, Any], str]] = {
    "worse than keeping": ({"counts": (0, 0)}, "but keeping has"),
    "little, and worse": ({"counts": (0, 0), "problem": SMALL}, "but keeping has"),
    "infeasible": ({"counts": None, "status": "infeasible"}, "infeasible"),
    "unbounded": ({"counts": None, "status": "solver said UNBOUNDED"}, "UNBOUNDED"),
    "an error": ({"counts": None, "status": "solver said ERROR"}, "ERROR"),
}
BOTH = [
    (lie | {"status": status}, says)
    for lie, says in FALSE.values()
    for status in ("optimal", "feasible")
]


@pytest.mark.parametrize(("lie", "says"), [*BOTH, *FALSE_OPTIMA.values()])
def test_a_false_answer_is_not_believed(lie: dict[str, Any], says: str) -> None:
    liar = Liar(**lie)
    solution, exact = hear(liar), solve(liar.problem, backend="exact")
    assert (solution.status, solution.backend) == ("fallback", "exact")
    assert (solution.counts, solution.objective) == (exact.counts, exact.objective)
    assert says in solution.note


@pytest.mark.parametrize("factor", [1.0, 0.99, 0.5, 0.0, -1.0])
@pytest.mark.parametrize("status", ["optimal", "feasible"])
def test_an_answer_worth_what_it_claims_or_more_is_kept(
    factor: float, status: str
) -> None:
    """F4: within a gap segments are filled in any order, and what is decoded may be worth far more."""
    solution = hear(Liar(status=status, factor=factor, bound=OPTIMUM))
    found = (solution.status, solution.counts, solution.backend)
    assert found == (status, (3, 2), "cbc")
    assert solution.objective == pytest.approx(OPTIMUM)
    assert solution.bound == pytest.approx(OPTIMUM)


def test_a_bound_below_the_value_of_the_answer_proves_nothing() -> None:
    solution = hear(Liar(factor=0.9, bound=OPTIMUM * 0.9))
    assert (solution.status, solution.counts) == ("feasible", (3, 2))
    assert solution.bound >= OPTIMUM
    assert "value above the reported bound" in solution.note


@pytest.mark.parametrize("claim", [-1e-12, 1e-12])
def test_a_zero_to_a_solvers_tolerance_is_no_false_answer(claim: float) -> None:
    """F4: nothing is worth 0, and a solver that claims -1e-12 for it is right."""

    class Rounds(Liar):
        def solve(self, model: LinearModel, *args: Any) -> LinearAnswer:
            return LinearAnswer("optimal", point(NEVER, (0, 0)), claim, claim)

    solution = hear(Rounds(problem=NEVER))
    found = (solution.status, solution.counts, solution.objective)
    assert found == ("optimal", (0, 0), 0.0)


# --- incumbents at the time limit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lie", "counts", "note"),
    [
        ({"counts": (1, 3), "bound": 4900.0}, (1, 3), ""),
        ({"counts": (0, 4), "bound": 4900.0}, (1, 2), "kept"),
        ({"counts": None, "status": "nothing"}, (1, 2), "kept"),
    ],
    ids=["better than keeping", "worse than keeping", "none"],
)
def test_the_better_of_an_incumbent_and_keeping_is_used(
    lie: dict[str, Any], counts: tuple[int, ...], note: str
) -> None:
    solution = hear(Liar(**{"status": "feasible"} | lie), time_limit=1)
    assert (solution.status, solution.counts) == ("feasible", counts)
    assert note in solution.note
    assert solution.bound >= OPTIMUM > solution.objective >= KEPT
    gap = (solution.bound - solution.objective) / solution.bound
    assert solution.gap == pytest.approx(gap)
    assert lie.get("bound", solution.bound) == solution.bound


@pytest.mark.parametrize("bound", [np.nan, np.inf, 1e300, -1e300, 0.0])
def test_an_invalid_bound_is_replaced_by_a_finite_one(bound: float) -> None:
    lie = hear(Liar((1, 3), "feasible", bound=bound), time_limit=1)
    assert lie.objective <= lie.bound <= tables_of(PROBLEM).ceiling


def test_an_answer_within_the_gap_but_worse_than_keeping_is_no_failure() -> None:
    solution = hear(Liar((0, 4), bound=OPTIMUM), gap=0.5)
    assert (solution.counts, solution.objective) == ((1, 2), KEPT)
    assert solution.status in ("optimal", "feasible")
    assert solution.bound >= OPTIMUM - 1e-6


# --- neighbours and parents ---------------------------------------------------------------------------------------


def test_a_solve_prints_nothing_leaves_input_alone_and_runs_no_script_again(
    tmp_path: Path,
) -> None:
    """Nor does what a solver prints reach standard output; and the shared worker ends with its parent."""
    chatter = 'import os; os.write(1, b"Welcome to the solver"); raise ImportError("no licence")'
    (tmp_path / "mip.py").write_text(chatter)
    script = tmp_path / "script.py"  # without a guard
    script.write_text(
        PRELUDE
        + textwrap.dedent(
            f"""
            print("begun", flush=True)
            check()
            check(time_limit=600.0)
            check(gap=0.001)
            solve(problem, backend="cbc", time_limit=1e-9)
            solve(Problem(0, 10.0, problem.jobs, (0, 0)), backend="cbc")
            assert solve(problem, backend="exact").counts == (3, 2)
            print(sys.stdin.read(), shared_process().started, shared_process().pid)
            shared_process().close()
            from bft.milp.backends import process
            place = "import sys; sys.path.insert(0, {str(tmp_path)!r}); "
            process._WORKER = place + process._WORKER
            print(solve(problem, backend="cbc").note)
            """
        )
    )
    child = subprocess.run(
        [sys.executable, "-W", "error", "-P", str(script)],
        input="mine",
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
    )
    begun, shared, note = child.stdout.splitlines()
    assert (child.returncode, child.stderr, begun) == (0, "", "begun")
    *read, worker = shared.split()
    assert read == ["mine", "1"]
    assert "no licence" in note
    assert eventually(lambda: not running(int(worker)))


# What the parent does before it is killed, once it has told its worker.
KILLED = {
    "between solves": "print(worker, flush=True)",
    "during a solve": """
        os.kill(worker, signal.SIGSTOP)
        print(worker, flush=True)
        shared_process()._running[1].send(("cbc", build(problem).model, Limits()))
        """,
    # Sixty odd numbers and half their sum: without a time limit CBC takes longer than anybody waits.
    "during an endless solve": """
        print(worker, flush=True)
        model, sizes = LinearModel(), (2 * np.random.default_rng(0).integers(10**6, 10**7, 60) + 1).tolist()
        model.row([model.variable(size, 1.0) for size in sizes], sizes, "=", sum(sizes) // 2)
        stat = Path(f"/proc/{worker}/stat")
        ticks = lambda: int(stat.read_text().rpartition(")")[2].split()[11])
        before = ticks()
        shared_process()._running[1].send(("cbc", model, Limits()))
        while ticks() < before + 0.3 * os.sysconf("SC_CLK_TCK"):
            time.sleep(0.01)
        assert not shared_process()._running[1].poll()
        """,
    "before it read the answer": """
        print(worker, flush=True)
        shared_process()._running[1].send(("cbc", build(problem).model, Limits()))
        assert shared_process()._running[1].poll(60)
        """,
}


@pytest.mark.parametrize("when", KILLED)
def test_the_worker_ends_silently_when_its_parent_is_killed(when: str) -> None:
    imports = """
        from bft.milp.formulations.linear import Limits, LinearModel
        from bft.milp.formulations.modes import build
        check()
        worker = shared_process().pid
        """
    script = (imports, KILLED[when], "os.kill(os.getpid(), signal.SIGKILL)")
    child = python("\n".join([PRELUDE, *map(textwrap.dedent, script)]))
    assert child.stdout is not None
    worker = int(child.stdout.readline())
    try:
        assert child.wait(timeout=AMPLE_S) == -signal.SIGKILL, child.communicate()[1]
        if when == "during a solve":
            os.kill(worker, signal.SIGCONT)
        assert eventually(lambda: not running(worker))
    finally:
        if running(worker):
            os.kill(worker, signal.SIGKILL)
    assert child.communicate() == ("", "")


def test_ctrl_c_is_not_the_workers(process: SolverProcess) -> None:
    ask(process)
    worker = pid_of(process)
    assert os.getpgid(worker) != os.getpgid(0)
    os.kill(worker, signal.SIGINT)
    assert ask(process).status == "optimal"
    assert (process.pid, process.started) == (worker, 1)


def test_a_forked_child_has_a_worker_of_its_own_and_does_not_end_its_parents() -> None:
    """Workers of `multiprocessing.Pool`, and those of Dask, may start no process by `multiprocessing`."""
    run(
        """
        import multiprocessing

        def task(_):
            solution = solve(problem, backend="cbc")
            return solution.status, solution.counts, shared_process().pid

        check()
        mine = shared_process().pid
        child = os.fork()
        if not child:
            assert shared_process().pid in (None, mine)
            for _ in range(20):
                check()
            assert shared_process().pid != mine
            sys.exit(0)  # runs what is registered to run at exit, as ours would
        for _ in range(20):
            check()
        assert os.waitpid(child, 0)[1] == 0
        process = SolverProcess()
        check(process=process)
        own = process.pid
        child = os.fork()
        if not child:
            process.close()
            del process
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        check(process=process)
        assert (process.pid, process.started) == (own, 1)
        process.close()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            answers = pool.map(task, range(40), chunksize=5)
        assert {answer[:2] for answer in answers} == {("optimal", (3, 2))}
        assert mine not in {answer[2] for answer in answers}
        check()
        assert (shared_process().pid, shared_process().started) == (mine, 1)
        """,
        warnings="ignore",
    )


STRAY = ("mip", "cffi", "bisect", "traceback", "sitecustomize", "usercustomize")


def test_the_solver_process_imports_nothing_from_the_folder_of_the_users_data(
    tmp_path: Path,
) -> None:
    for name in STRAY:
        code = f"from pathlib import Path; Path({str(tmp_path)!r}, '{name}.ran').touch()\nraise ImportError('stray')\n"
        (tmp_path / f"{name}.py").write_text(code)
    # This process is not ours to protect: it has all that it needs before it comes to where the stray files lie.
    # Numba looks for cffi when the first compiled function is called, so the problem is solved here once without CBC.
    paths = [None, "", ".", f"{os.pathsep}/nowhere"]
    run(
        f"""
        solve(problem, backend="exact")
        os.chdir({str(tmp_path)!r})
        sys.path.insert(0, "")
        for path in {paths!r}:
            if path is not None:
                os.environ["PYTHONPATH"] = path
            check()
            shared_process().close()
        """
    )
    assert not list(tmp_path.glob("*.ran"))


def test_a_package_that_lies_on_the_search_path_only_is_found_by_the_solver_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where environment modules set PYTHONPATH: without it, nothing of ours would be there."""
    (tmp_path / "bft").mkdir()
    for name in ("milp", "models", "replay", "datasets"):
        (tmp_path / "bft" / name).symlink_to(Path(__file__).parents[2] / name)
    path = [str(tmp_path), *(entry for entry in sys.path if entry)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    bare = str(Path(sys.executable).resolve())  # of no virtual environment
    monkeypatch.setattr(sys, "executable", bare)
    assert (
        run('print(solve(problem, backend="cbc").backend)', env=environment) == "cbc\n"
    )


def test_garbage_is_collected_between_questions_only() -> None:
    """A model collected while cffi reads a declaration calls cffi itself, and waited for ever for its own lock."""
    run(
        """
from bft.milp.backends import process
# What the collector of garbage may do at any moment, it does here at the worst one.
process._WORKER = '''
import gc
from pycparser.c_parser import CParser
parse = CParser.parse
def parse_and_collect(*given, **named):
    if gc.isenabled():
        gc.collect()
    return parse(*given, **named)
CParser.parse = parse_and_collect
gc.set_threshold(1_000_000)
''' + process._WORKER
mine = process.SolverProcess(grace_s=20.0)
for tie in range(2):
    check(process=mine, time_limit=10.0)
assert mine.started == 1, mine.started
mine.close()
"""
    )
