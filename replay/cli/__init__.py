"""The command line, DESIGN §9: `bft-replay` replays, its sub-commands do the rest."""

from bft.replay.cli.main import main

__all__ = ["main"]
