"""The command line: `bft-replay` runs a replay; everything else is a sub-command."""

from bft.replay.cli import address_space

address_space.prepare()

from bft.replay.cli.main import main  # noqa: E402 - NumPy, which it imports, is to find what was prepared

__all__ = ["main"]
