"""The command line in a process of its own, and signals that reach it at a step of the replay, not at a time."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import Any

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


def signalled(
    plan: Sequence[tuple[int, Signals]], *, pause_s: float = 0.0, more: str = ""
) -> list[str]:
    """The command as one that sends itself signals after steps (of all replays), and pauses; `more` runs before it."""
    script = _SIGNALLED.format(
        plan=[(step, int(number)) for step, number in plan], pause_s=pause_s, more=more
    )
    return [sys.executable, "-c", script]


def result_of(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `more` as `subprocess.run` takes it."""
    usual = {"capture_output": True, "text": True, "timeout": AMPLE_S, "check": False}
    return subprocess.run(command, **usual | more)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end; what does not within 20 s is killed."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def on_terminal(args: Sequence[str], columns: int, folder: Path) -> list[str]:
    """The lines that a command of ours shows on a terminal of so many columns, without colours."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    hidden = ("COLUMNS", "LINES")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.Popen(
        [*SCRIPT, *args], stdin=child, stdout=child, stderr=subprocess.DEVNULL, cwd=folder,
        env={**environment, "TERM": "xterm"},
    )  # fmt: skip
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 65_536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(parent)
    assert done.wait(AMPLE_S) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    return text.replace("\r\n", "\n").splitlines()
