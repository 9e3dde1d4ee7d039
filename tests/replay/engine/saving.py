"""The state of a replay as a checkpoint keeps it, without a file."""

import json
from typing import NamedTuple

from bft.replay import Replay


class Saved(NamedTuple):
    """The state as JSON, and the tables of the past."""

    state: str
    tables: dict[str, list[bytes]]


def saved(replay: Replay) -> Saved:
    """The state of a replay between two steps."""
    tables = {name: list(table.saved()) for name, table in replay.tables.items()}
    return Saved(json.dumps(replay.state()), tables)


def resume(fresh: Replay, state: Saved) -> None:
    """Bring a new replay to a state."""
    for name, table in fresh.tables.items():
        table.restore(state.tables[name])
    fresh.restore(json.loads(state.state))
