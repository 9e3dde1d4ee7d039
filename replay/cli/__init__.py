"""The command line: `bft-replay` runs a replay; everything else is a sub-command.

This file imports next to nothing: until `main` has begun, Ctrl-C would be answered with a traceback.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 bad input, 3 degraded, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP)."""
    # While modules are imported an interrupt ends the process as it ends any other program: there is nothing to keep.
    if (
        signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):  # as a shell's background job is born
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bft.replay.cli import address_space

    address_space.prepare()  # before NumPy is imported, which is to find what was prepared

    from bft.replay.cli.main import main as run_to_exit

    # The import has put the module of this name in the place of this function.
    setattr(sys.modules[__name__], "main", main)  # noqa: B010 - mypy takes the name for the module
    run_to_exit(args)
