"""States of nodes: the words of schedulers for them, and states that are known at single instants."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.hosts import expand
from bft.replay.logs.times import Whole
from bft.replay.trace.node_trace import SECOND_NS

# absent: the node is configured, but not there (Slurm's FUTURE).
State: TypeAlias = Literal["busy", "idle", "unavailable", "absent"]

_WORDS: dict[State, str] = {
    # Slurm's planned: idle, and the backfill scheduler has an idea of what comes next. It calls the nodes of suspended
    # jobs idle.
    "idle": "idle free planned plnd up suspended",
    "busy": (
        "busy alloc allocated mix mixed comp completing running job-exclusive job-sharing job-busy closed_full "
        "closed_excl closed_busy"
    ),
    "unavailable": (
        "unavailable down drain drained draining drng maint maintenance resv reserved resv-exclusive fail failed "
        "failing failg error offline unk unknown state-unknown stale inval invalid_reg no_respond not_responding npc "
        "perfctrs boot booting reboot rebooting reboot_issued blocked block pow_up pow_dn powered_down "
        "closed closed_adm closed_lock closed_wind closed_ego closed_cu_excl closed_rc unavail unreach unlicensed "
        "powering_down powering_up power_down power_up power_drain power_down_force provisioning "
        "wait-provisioning initializing sleep unresolvable"
    ),
    "absent": "future futr",
}
_STATES: dict[str, State] = {
    word: state for state, words in _WORDS.items() for word in words.split()
}
# Flags that change nothing: where a node comes from, what is asked of it once its jobs have ended, and that the vnodes
# of a host differ.
_FLAGS = frozenset(
    {
        "cloud",
        "dynamic_norm",
        "dynamic_future",
        "reboot_requested",
        "reboot_canceled",
        "cancel_reboot",
        "resume",
        "external",
        "undrain",
        "power_down_asap",
        "<various>",
    }
)
# Words for what Slurm's marks behind a state say; empty: nothing that changes it (a reboot or power-down to come,
# planned by the backfill scheduler).
_MARKS = {
    "*": "no_respond",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "$": "maintenance",
    "^": "reboot",
    **dict.fromkeys("!@-", ""),
}
# The word for a state of which there are several.
_SAME = {
    "comp": "completing",
    "maint": "maintenance",
    "resv": "reserved",
    "boot": "booting",
    "provisioning": "booting",
    "reboot": "rebooting",
    "reboot_issued": "rebooting",
    "pow_up": "powering_up",
    "power_up": "powering_up",
    "pow_dn": "powering_down",
    "power_down": "powering_down",
    "power_down_force": "powering_down",
}
_POWER_OFF = frozenset({"powered_down", "powering_down"})
_APART = re.compile(r"[+,&|\s]+")
# Of several states at once the first of these holds.
_ORDER: tuple[State, ...] = ("absent", "unavailable", "busy", "idle")
CountsAs: TypeAlias = Mapping[str, State]
"""The states that words count as, where a user wants another one than `state_of` has."""
AS_USUAL: CountsAs = MappingProxyType({})


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
    found: dict[str, State] = {}
    for part in filter(None, map(str.strip, text.lower().split(","))):
        word, _, state = part.partition("=")
        if word not in _STATES or state not in ("idle", "busy", "unavailable"):
            raise InputError(
                f"--count-as: expected WORD=idle, busy or unavailable with a word of Slurm for a state of a node, such "
                f"as completing=idle, not {part[:80]!a}"
            )
        found[_SAME.get(word, word)] = _STATES[state]
    return found


@lru_cache(10_000)
def _words(text: str) -> tuple[str, ...]:
    """The words of a state, and those for its marks; one that is not known as it is."""
    found = []
    for word in _APART.split(text.strip().lower()):
        while word and word not in _STATES and word[-1] in _MARKS:
            found.append(_MARKS[word[-1]])
            word = word[:-1]
        found.append(_SAME.get(word, word))
    return tuple(found)


def state_of(text: str, as_asked: CountsAs = AS_USUAL) -> State | None:
    """Classify the state of a node; None for a word that is not known.

    Words may be joined (`IDLE+DRAIN`, `offline,job-exclusive`) and marked (`down*`, `idle~`): unavailable outweighs
    busy, which outweighs idle. `as_asked` states what words count as instead.

    >>> [state_of(text) for text in ("idle", "mixed", "IDLE+DRAIN", "idle~")]
    ['idle', 'busy', 'unavailable', 'unavailable']
    >>> state_of("idle~", {"powered_down": "idle"})
    'idle'
    """
    met: set[State] = set()
    for word in _words(text):
        if word in _STATES:
            met.add(as_asked.get(word, _STATES[word]))
        elif word and word not in _FLAGS:
            return None
    return next((state for state in _ORDER if state in met), None)


def power_of(text: str) -> frozenset[str]:
    """`off` for a node that power saving alone has taken down, `cloud` for one of a cloud, which is off without a job.

    >>> sorted(power_of("IDLE+CLOUD+POWERED_DOWN")), sorted(power_of("idle%")), sorted(power_of("down~"))
    (['cloud', 'off'], ['off'], [])
    """
    words = set(_words(text))
    others = {_STATES.get(word) for word in words - _POWER_OFF}
    off = {"off"} if words & _POWER_OFF and "unavailable" not in others else set()
    return frozenset(off | ({"cloud"} & words))


# --- states at single instants --------------------------------------------------------------------------------------

# States of a node in a snapshot; where a node is met twice in one, the later outweighs the earlier.
UNSEEN, IDLE, BUSY, UNAVAILABLE = range(4)
_CODES = {"idle": IDLE, "busy": BUSY, "unavailable": UNAVAILABLE}
# A state holds until the next snapshot, but no longer than so many periods: then snapshots are missing.
MOST_PERIODS = 2.5
# Node states that wait, uncompressed, for their snapshots to be complete; and host lists whose nodes are remembered.
_MANY, _MOST_LISTS = 2_000_000, 10_000
Codes = NDArray[np.int8]
_NOTHING = np.zeros(0, dtype=np.int64)


class Sampled(NamedTuple):
    """What snapshots say of nodes: runs of one state.

    Parameters
    ----------
    names
        The nodes.
    node, begin, end, code
        Of each run: index of the node, UTC nanoseconds, and `UNSEEN`, `IDLE`, `BUSY` or `UNAVAILABLE`.
    first_ns, last_ns
        When the first and the last snapshot were made.
    off_ns
        Node-time by which the states may be off.
    notes
        How well the snapshots tell what nodes did: sentences, each with a detail.
    """

    names: list[str]
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
        self._names: dict[str, int] = {}
        self._nodes = lru_cache(_MOST_LISTS)(self._indices)
        # Neighbours are mostly in one state: packed, a node takes less than a byte a snapshot.
        self._packed: dict[int, bytes] = {}
        self._waiting: list[tuple[Whole, Whole, Codes]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._packed or self._waiting)

    def add(self, times: Whole, hosts: Sequence[str], states: Sequence[str]) -> None:
        """Take rows: when, which nodes, and the word for their state; of two states of one node the graver counts.

        Raises
        ------
        HostListError
            When a text names no nodes that can be read.
        """
        if not hosts:
            return
        lists = [self._nodes(text) for text in hosts]
        sizes = np.array([len(nodes) for nodes in lists], dtype=np.int64)
        codes = np.array([_CODES[state] for state in states], dtype=np.int8)
        nodes = np.concatenate([_NOTHING, *lists])
        self._waiting.append((np.repeat(times, sizes), nodes, np.repeat(codes, sizes)))
        self._count += len(nodes)
        if self._count > _MANY:
            self._pack()

    def _indices(self, text: str) -> Whole:
        """Indices of the nodes of a list, new ones included."""
        names = self._names
        nodes = [names.setdefault(name, len(names)) for name in expand(text)]
        return np.array(nodes, dtype=np.int64)

    def _pack(self) -> None:
        if not self._waiting:
            return
        times, nodes, codes = map(np.concatenate, zip(*self._waiting, strict=True))
        order = np.lexsort((codes, times))  # the graver last: it is what stays
        stamps, first = np.unique(times[order], return_index=True)
        for stamp, rows in zip(
            stamps.tolist(), np.split(order, first[1:]), strict=True
        ):
            now = np.zeros(len(self._names), dtype=np.int8)
            now[nodes[rows]] = codes[rows]
            states = np.maximum(now, self._states(stamp))
            self._packed[stamp] = zlib.compress(states.tobytes(), 1)
        self._waiting, self._count = [], 0

    def _states(self, stamp: int) -> Codes:
        states = np.zeros(len(self._names), dtype=np.int8)
        if stamp in self._packed:
            unpacked = zlib.decompress(self._packed[stamp])
            states[: len(unpacked)] = np.frombuffer(unpacked, dtype=np.int8)
        return states

    def settle(self, others: Sequence[str] = ()) -> Sampled | None:
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
        self._pack()
        if not self._packed:
            return None
        stamps = np.array(sorted(self._packed), dtype=np.int64)
        if len(stamps) < 2:
            why = "one snapshot is no log: at least two, of different times, are needed"
            raise InputError(why)
        for name in others:
            self._names.setdefault(name, len(self._names))
        distances = np.diff(stamps)
        period = float(np.median(distances))
        longest = min(int(MOST_PERIODS * period), int(distances.max()))
        missing = distances > longest
        node, begin, code = self._changes(stamps, stamps[:-1][missing] + longest)
        last = int(stamps[-1])
        goes_on = node[1:] == node[:-1]
        end = np.append(np.where(goes_on, begin[1:], last), last)
        turned = goes_on & (code[:-1] > UNSEEN) & (code[1:] > UNSEEN)
        turned &= (code[:-1] == IDLE) != (code[1:] == IDLE)
        # Not cut by the begin or the end of the window, or by missing snapshots.
        whole = turned[:-1] & turned[1:] & (code[1:-1] == IDLE)
        notes = _notes(stamps, int(np.count_nonzero(whole)), period, longest)
        # In the middle of a period a change is off by half of it at the most.
        off_ns = round(np.count_nonzero(turned) * period / 2)
        some = begin < end
        runs = node[some], begin[some], end[some], code[some]
        return Sampled(list(self._names), *runs, int(stamps[0]), last, off_ns, notes)

    def _changes(self, stamps: Whole, pauses: Whole) -> tuple[Whole, Whole, Codes]:
        """Node, time and state of each change, by node; from pauses on until the next stamp no node is seen."""
        states = np.full(len(self._names), -1, dtype=np.int8)
        parts = []
        for time in np.sort(np.concatenate([stamps, pauses])).tolist():
            now = self._states(time)
            changed = np.flatnonzero(now != states)
            times = np.full(len(changed), time, dtype=np.int64)
            parts.append((changed, times, now[changed]))
            states = now
        node, begin, code = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(node, kind="stable")
        return node[order], begin[order], code[order]


def _notes(
    stamps: Whole, fragments: int, period: float, longest: int
) -> list[tuple[str, str]]:
    seconds = period / SECOND_NS
    why = f"nodes were looked at every {seconds:g} s: begin and end of an idle fragment are known to {seconds:g} s, "
    why += "and shorter ones may be missed"
    notes = [
        (why, f"{len(stamps):,} snapshots; {fragments:,} fragments were seen whole")
    ]
    gap_ns = int(np.maximum(np.diff(stamps) - longest, 0).sum())
    if gap_ns:
        why = f"snapshots are missing: nodes count as unavailable from {MOST_PERIODS} periods after one until the next"
        notes.append((why, f"{gap_ns / SECOND_NS / 3600:.3g} hours"))
    return notes
