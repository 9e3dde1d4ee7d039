"""The command line in a process of its own, and signals that reach it at a step of the replay, not at a time."""

import atexit
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

# As the console script does; a module of its own would be run twice.
SCRIPT = [sys.executable, "-c", "from bft.replay.cli import main; main()"]
# After so long a test fails that would wait for ever; how busy the machine is must not matter.
AMPLE_S = 900.0

_SIGNALLED = """
import os, sys, time
import bft.replay.engine.loop as engine

plain, steps, to_come, pause_s = engine.Replay.step, 0, {plan!r}, {pause_s!r}

def step(self):
    global steps
    plain(self)
    steps += 1
    while to_come and to_come[0][0] <= steps:
        os.kill(os.getpid(), to_come.pop(0)[1])
        time.sleep(pause_s)

engine.Replay.step = step
{more}
from bft.replay.cli import main
main()
"""


def signalled(plan, *, pause_s: float = 0.0, more: str = "") -> list[str]:
    """The command as one that sends itself signals after steps (of all replays), and pauses; `more` runs before it."""
    script = _SIGNALLED.format(
        plan=[(step, int(number)) for step, number in plan], pause_s=pause_s, more=more
    )
    return [sys.executable, "-c", script]


# Loads what replays need and then, for each line, goes on as a process of its own that runs the script of that line,
# and ends as any other interpreter; this one says how it ended.
_WARM = """
import gc, json, os, sys
import pandas, pyarrow.parquet, rich.progress, scipy.stats
import bft.replay.cli as cli
start = cli.main
import bft.replay.cli.replay, bft.replay.engine.loop, bft.replay.run
from bft.milp import Job, Problem, solve
cli.main = start  # the import has put the module of this name in its place
solve(Problem(2, 120.0, (Job("a", 1, 2, ns=[0, 2], os=[0, 2], tcup=1.0, tcdw=1.0),), (1,)), backend="exact")
gc.freeze()
for line in iter(sys.stdin.buffer.raw.readline, b""):
    code, sys.argv, folder, environment, files = json.loads(line)
    if process := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        continue
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = open(0, closefd=False)
    exec(code)
    break
"""


@cache
def _warm() -> subprocess.Popen[str]:
    """The process of this worker that has loaded our modules."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", _WARM], text=True, **pipes)
    atexit.register(process.communicate)
    return process


def _begun(command, folder: Path, environment, *files: str):
    """Run a script of Python in a fork of a process that has loaded our modules; what is returned tells its end."""
    server = _warm()
    assert server.stdin is not None
    assert server.stdout is not None
    job = (command[2], ["-c", *command[3:]], str(folder), {**environment}, files)
    server.stdin.write(json.dumps(job) + "\n")
    server.stdin.flush()
    return server.stdout


def result_of(
    command, *, cold: bool = False, **more
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `more` as `subprocess.run` takes it.

    A script of Python is run in a fork of a process that has loaded our modules, which saves a second: unless it is to
    be `cold`, as where it matters what is loaded, or finds other packages, or `more` says other than folder and
    environment.
    """
    other = more.get("env", os.environ).get("PYTHONPATH") != os.environ.get(
        "PYTHONPATH"
    )
    if (cold or other or [*command[:2]] != SCRIPT[:2]) or more.keys() - {"cwd", "env"}:
        usual = {"capture_output": True, "text": True, "timeout": AMPLE_S}
        return subprocess.run(command, **{"check": False, **usual, **more})
    with TemporaryDirectory() as scratch:
        told = [Path(scratch, name) for name in ("stdout", "stderr")]
        where = more.get("cwd", Path.cwd()), more.get("env", os.environ)
        ended = _begun(command, *where, os.devnull, *map(str, told))
        assert select.select([ended], [], [], AMPLE_S)[0], "it does not end"
        code, texts = int(ended.readline()), [path.read_text("utf-8") for path in told]
    return subprocess.CompletedProcess([*command], code, *texts)


def end_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def on_terminal(args, columns: int, folder: Path) -> list[str]:
    """The lines that a command of ours shows on a terminal of so many columns, without colours."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    hidden = ("COLUMNS", "LINES")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    files = (os.ttyname(child), os.ttyname(child), os.devnull)
    ended = _begun([*SCRIPT, *args], folder, {**environment, "TERM": "xterm"}, *files)
    shown = b""
    while parent in (ready := select.select([parent, ended], [], [], AMPLE_S)[0]):
        shown += os.read(parent, 65_536)
    assert ready, "it does not end"
    assert int(ended.readline()) == 0
    os.close(child)
    os.close(parent)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    return text.replace("\r\n", "\n").splitlines()
