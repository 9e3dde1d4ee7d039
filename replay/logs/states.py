"""States of nodes: the words of schedulers for them, and states that are known at single instants."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.times import Whole
from bft.replay.trace.node_trace import SECOND_NS

# Words, and behind a slash others for the same, by what they count as. Of several states at once the first counts.
# absent: the node is configured, but not there. Slurm's planned: idle, and the backfill scheduler has an idea of what
# comes next; it calls the nodes of suspended jobs idle. The last are flags that change nothing: where a node comes
# from, what is asked of it once its jobs have ended, and that the vnodes of a host differ.
_WORDS = {
    "absent": "future futr",
    "unavailable": (
        "unavailable down drain drained draining drng maintenance/maint reserved/resv resv-exclusive fail failed "
        "failing failg error offline unk unknown state-unknown stale inval invalid_reg no_respond not_responding npc "
        "perfctrs booting/boot/provisioning rebooting/reboot/reboot_issued blocked block powered_down closed "
        "closed_adm closed_lock closed_wind closed_ego closed_cu_excl closed_rc unavail unreach unlicensed sleep "
        "powering_down/pow_dn/power_down/power_down_force powering_up/pow_up/power_up power_drain initializing "
        "wait-provisioning unresolvable"
    ),
    "busy": (
        "busy alloc allocated mix mixed completing/comp running job-exclusive job-sharing job-busy closed_full "
        "closed_excl closed_busy"
    ),
    "idle": "idle free planned plnd up suspended",
    "": (
        "cloud dynamic_norm dynamic_future reboot_requested reboot_canceled cancel_reboot resume external undrain "
        "power_down_asap <various>"
    ),
}
# Of each word: the first for the same, and what it counts as.
_MEANINGS = {
    word: (same.split("/")[0], state)
    for state, words in _WORDS.items()
    for same in words.split()
    for word in same.split("/")
}
# Words for what Slurm's marks behind a state say; empty: nothing that changes it (a reboot or power-down to come). So
# does a dash: planned by the backfill scheduler.
_MARKS = str.maketrans(
    {
        "*": "+no_respond",
        "~": "+powered_down",
        "#": "+powering_up",
        "%": "+powering_down",
        "$": "+maintenance",
        "^": "+rebooting",
        "!": "",
        "@": "",
    }
)
_POWER_OFF = frozenset({"powered_down", "powering_down"})
_APART = re.compile(r"[+,&|\s]+")
CountsAs: TypeAlias = Mapping[str, str]
"""The states that words count as, where a user wants another one than `state_of` has."""


def counts_as(text: str) -> CountsAs:
    """Read what words of states count as, such as `completing=idle,powered_down=idle`.

    Raises
    ------
    InputError
        When a word is none of a state, or counts as none of idle, busy and unavailable.

    Examples
    --------
    >>> counts_as("comp=idle")
    {'completing': 'idle'}
    """
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.lower().split(","))):
        word, _, state = part.partition("=")
        name, usual = _MEANINGS.get(word, ("", ""))
        if not usual or state not in ("idle", "busy", "unavailable"):
            raise InputError(
                f"--count-as: expected WORD=idle, busy or unavailable with a word of Slurm for a state of a node, such "
                f"as completing=idle, not {part[:80]!a}"
            )
        found[name] = state
    return found


@lru_cache(10_000)
def _words(text: str) -> Mapping[str, str | None]:
    """The words of a state, and those for its marks, with what they count as; None: a word is not known."""
    words = filter(None, _APART.split(text.strip().lower().translate(_MARKS)))
    return dict(_MEANINGS.get(word.rstrip("-"), (word, None)) for word in words)


def state_of(text: str, as_asked: CountsAs = MappingProxyType({})) -> str | None:
    """Classify the state of a node as idle, busy, unavailable or absent; None for a word that is not known.

    Words may be joined (`IDLE+DRAIN`, `offline,job-exclusive`) and marked (`down*`, `idle~`): unavailable outweighs
    busy, which outweighs idle. `as_asked` states what words count as instead.

    >>> [state_of(text) for text in ("idle", "mixed", "IDLE+DRAIN", "idle~")]
    ['idle', 'busy', 'unavailable', 'unavailable']
    >>> state_of("idle~", {"powered_down": "idle"})
    'idle'
    """
    met = {as_asked.get(word, state) for word, state in _words(text).items()}
    known = None not in met
    return next((state for state in _WORDS if known and state and state in met), None)


def power_of(text: str) -> frozenset[str]:
    """`off` for a node that power saving alone has taken down, `cloud` for one of a cloud, which is off without a job.

    >>> sorted(power_of("IDLE+CLOUD+POWERED_DOWN")), sorted(power_of("idle%")), sorted(power_of("down~"))
    (['cloud', 'off'], ['off'], [])
    """
    words = _words(text)
    down = {word for word, state in words.items() if state == "unavailable"}
    found = {"cloud"} & words.keys()
    return frozenset(found | {"off"} if down and down <= _POWER_OFF else found)


# --- states at single instants --------------------------------------------------------------------------------------

# States of a node in a snapshot; where a node is met twice in one, the later outweighs the earlier.
UNSEEN, IDLE, BUSY, UNAVAILABLE = range(4)
_CODES = {"idle": IDLE, "busy": BUSY, "unavailable": UNAVAILABLE}
# A state holds until the next snapshot, but no longer than so many periods: then snapshots are missing.
MOST_PERIODS = 2.5
Codes = NDArray[np.int8]


class Sampled(NamedTuple):
    """What snapshots say of nodes: runs of one state.

    Parameters
    ----------
    keys
        The nodes, by their numbers (`hosts.keys_of`).
    node, begin, end, code
        Of each run: index of the node, UTC nanoseconds, and `UNSEEN`, `IDLE`, `BUSY` or `UNAVAILABLE`.
    first_ns, last_ns
        When the first and the last snapshot were made.
    off_ns
        Node-time by which the states may be off.
    notes
        How well the snapshots tell what nodes did: sentences, each with a detail.
    """

    keys: Whole
    node: Whole
    begin: Whole
    end: Whole
    code: Codes
    first_ns: int
    last_ns: int
    off_ns: int
    notes: list[tuple[str, str]]


class Snapshots:
    """States of nodes at single instants, in any order, until `settle` makes runs of them."""

    def __init__(self) -> None:
        self._stamps: dict[int, int] = {}
        self._nodes: dict[int, int] = {}
        # By stamp and node, each in the order in which they were met, with room for more.
        self._codes = np.zeros((0, 0), dtype=np.int8)

    def __bool__(self) -> bool:
        return bool(self._stamps)

    def add(
        self, times: Whole, keys: Whole, sizes: Whole, states: Sequence[str]
    ) -> None:
        """Take rows: when, how many nodes and which (`hosts.keys_of`), and their state; of two the graver counts."""
        codes = np.array([_CODES[state] for state in states], dtype=np.int8)
        stamp = _numbers(self._stamps, np.repeat(times, sizes))
        node = _numbers(self._nodes, keys)
        needed = len(self._stamps), len(self._nodes)
        more = [
            max(size - room, room) if size > room else 0
            for size, room in zip(needed, self._codes.shape, strict=True)
        ]
        if any(more):
            self._codes = np.pad(self._codes, [(0, rows) for rows in more])
        np.maximum.at(self._codes, (stamp, node), np.repeat(codes, sizes))

    def settle(self, others: Whole) -> Sampled | None:
        """Make runs of the states; None when there is no snapshot.

        Each state holds until the next snapshot, for `MOST_PERIODS` at the most; where no snapshot names a node, it is
        `UNSEEN`, and counts as unavailable.

        Parameters
        ----------
        others
            Nodes of which runs are made, whether snapshots name them or not.

        Raises
        ------
        InputError
            When there is one snapshot only.
        """
        if not self:
            return None
        if len(self._stamps) < 2:
            raise InputError(
                "one snapshot is no log: at least two, of different times, are needed"
            )
        _numbers(self._nodes, others)
        stamps = np.array(list(self._stamps), dtype=np.int64)
        order = np.argsort(stamps)
        stamps = stamps[order]
        distances = np.diff(stamps)
        period = float(np.median(distances))
        longest = min(int(MOST_PERIODS * period), int(distances.max()))
        missing = np.maximum(distances - longest, 0)
        times = np.sort(np.append(stamps, stamps[:-1][missing > 0] + longest))
        states = np.zeros((len(times), len(self._nodes)), dtype=np.int8)
        seen = self._codes[order, : len(self._nodes)]
        states[np.searchsorted(times, stamps), : seen.shape[1]] = seen
        node, at = np.nonzero(np.diff(states, axis=0, prepend=np.int8(-1)).T)
        begin, code = times[at], states[at, node]
        last = int(stamps[-1])
        goes_on = node[1:] == node[:-1]
        end = np.append(np.where(goes_on, begin[1:], last), last)
        turned = goes_on & (code[:-1] > UNSEEN) & (code[1:] > UNSEEN)
        turned &= (code[:-1] == IDLE) != (code[1:] == IDLE)
        # Not cut by the begin or the end of the window, or by missing snapshots.
        whole = np.count_nonzero(turned[:-1] & turned[1:] & (code[1:-1] == IDLE))
        seconds = period / SECOND_NS
        notes = [
            (
                f"nodes were looked at every {seconds:g} s: begin and end of an idle fragment are known to "
                f"{seconds:g} s, and shorter ones may be missed",
                f"{len(stamps):,} snapshots; {whole:,} fragments were seen whole",
            )
        ]
        if missing.any():
            hours = f"{missing.sum() / SECOND_NS / 3600:.3g} hours"
            why = f"snapshots are missing: nodes count as unavailable from {MOST_PERIODS} periods after one until the "
            notes.append((f"{why}next", hours))
        # In the middle of a period a change is off by half of it at the most.
        off_ns = round(np.count_nonzero(turned) * period / 2)
        keys = np.array(list(self._nodes), dtype=np.int64)
        some = begin < end
        runs = node[some], begin[some], end[some], code[some]
        return Sampled(keys, *runs, int(stamps[0]), last, off_ns, notes)


def _numbers(known: dict[int, int], values: Whole) -> Whole:
    """A number for each of these values, those that are not known yet included."""
    each, which = np.unique(values, return_inverse=True)
    found = [known.setdefault(value, len(known)) for value in each.tolist()]
    return np.array(found, dtype=np.int64)[which]
