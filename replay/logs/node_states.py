"""States of nodes: the words of schedulers for them, and states that are known at single instants."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.trace.node_trace import SECOND_NS, TimeArray

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
# Flags that change nothing: where a node comes from, and what is asked of it once its jobs have ended.
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


def _words(text: str) -> Iterator[str]:
    """The words of a state, and those for its marks; one that is not known as it is."""
    for word in _APART.split(text.strip().lower()):
        while word and word not in _STATES and word[-1] in _MARKS:
            yield _MARKS[word[-1]]
            word = word[:-1]
        yield _SAME.get(word, word)


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
    """`off` for a node that power saving has taken down, and `cloud` for one of a cloud, which is off without a job.

    >>> sorted(power_of("IDLE+CLOUD+POWERED_DOWN")), sorted(power_of("idle%")), sorted(power_of("idle"))
    (['cloud', 'off'], ['off'], [])
    """
    words = set(_words(text))
    off = {"off"} if words & _POWER_OFF else set()
    return frozenset(off | ({"cloud"} & words))


# States of a node in a snapshot; where a node is met twice in one, the later outweighs the earlier.
UNSEEN, IDLE, BUSY, UNAVAILABLE = range(4)
# A state holds until the next snapshot, but no longer than so many periods: then snapshots are missing.
MOST_PERIODS = 2.5
# Node states that wait, uncompressed, for their snapshots to be complete.
_MANY = 2_000_000


class Sampled(NamedTuple):
    """First and last instant at which states were seen, and node-time by which these may be off, nanoseconds."""

    first_ns: int
    last_ns: int
    node_ns: int


# Takes nodes by index, and an interval in UTC nanoseconds, as `Collector.idle_nodes` does.
Add: TypeAlias = "Callable[[array[int], int, int], None]"


class Snapshots:
    """States of nodes at single instants, in any order, until `settle` makes intervals of them."""

    def __init__(self) -> None:
        self._complete: dict[int, bytes] = {}
        self._waiting: dict[int, dict[int, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._complete.keys() | self._waiting.keys())

    def add(self, stamp_ns: int, nodes: array[int], code: int) -> None:
        """Nodes, by `Collector.indices`, had a state at an instant; of two states the graver counts."""
        states = self._waiting.setdefault(stamp_ns, {})
        for node in nodes:
            states[node] = max(code, states.get(node, UNSEEN))
        self._count += len(nodes)
        if self._count > _MANY:
            self._pack()

    def _pack(self) -> None:
        """Pack waiting observations: neighbours are mostly in one state, and take a byte or two together."""
        for stamp, states in self._waiting.items():
            known = self._states(stamp, max(states) + 1)
            for node, code in states.items():
                known[node] = max(known[node], code)
            self._complete[stamp] = zlib.compress(known.tobytes(), 1)
        self._waiting, self._count = {}, 0

    def _states(self, stamp: int, size: int) -> NDArray[np.int8]:
        packed = self._complete.get(stamp)
        known = (
            np.frombuffer(zlib.decompress(packed), dtype=np.int8)
            if packed
            else np.zeros(0, dtype=np.int8)
        )
        states = np.zeros(max(size, len(known)), dtype=np.int8)
        states[: len(known)] = known
        return states

    def settle(
        self, nodes: int, add: Mapping[int, Add], diagnosis: Diagnosis
    ) -> Sampled | None:
        """Hand over when nodes were idle, busy or neither, and say how well that is known; further calls do nothing.

        `add` takes the intervals of each state. Each state holds until the next snapshot, for `MOST_PERIODS` at the
        most; where no snapshot names a node, it counts as unavailable. The window of observation is that of the
        snapshots.

        Raises
        ------
        InputError
            When there is one snapshot only.
        """
        if not len(self):
            return None
        self._pack()
        stamps = np.array(sorted(self._complete), dtype=np.int64)
        if len(stamps) < 2:
            raise InputError(
                "one snapshot is no log: at least two, of different times, are needed"
            )
        period = float(np.median(np.diff(stamps)))
        longest = int(MOST_PERIODS * period)
        runs = _Runs(nodes, add)
        gaps = 0
        for stamp, following in zip(
            stamps.tolist(), [*stamps[1:].tolist(), None], strict=True
        ):
            states = self._states(stamp, nodes)
            runs.now(stamp, states)
            if following is not None and following - stamp > longest:
                gaps += following - stamp - longest
                runs.now(stamp + longest, np.zeros_like(states))
        runs.end(int(stamps[-1]))
        self._complete = {}
        _say(stamps, period, gaps, runs, diagnosis)
        # A change is known to a period: in the middle of it, it is off by half of that at the most.
        off_ns = round(runs.changes * period / 2)
        return Sampled(int(stamps[0]), int(stamps[-1]), off_ns)


class _Runs:
    """Follows the state of each node, and hands over each run of one state when it ends."""

    def __init__(self, nodes: int, add: Mapping[int, Add]) -> None:
        self._add = add
        self._states = np.full(nodes, -1, dtype=np.int8)
        self._since = np.zeros(nodes, dtype=np.int64)
        # Runs that another state preceded: not cut by the begin of the window, or by missing snapshots.
        self._begun = np.zeros(nodes, dtype=bool)
        # Idle runs that began and ended between snapshots.
        self.idle = 0
        # How often a node turned idle, or was idle no more.
        self.changes = 0

    def now(self, stamp: int, states: NDArray[np.int8]) -> None:
        """The states from now on."""
        changed = np.flatnonzero(states != self._states)
        self._hand_over(changed, stamp)
        before, after = self._states[changed], states[changed]
        turned = (before > UNSEEN) & (after > UNSEEN)
        turned &= (before == IDLE) != (after == IDLE)
        self.changes += int(np.count_nonzero(turned))
        whole = changed[(before == IDLE) & (after != UNSEEN) & self._begun[changed]]
        self.idle += len(whole)
        self._begun[changed] = before > UNSEEN
        self._states[changed], self._since[changed] = after, stamp

    def end(self, stamp: int) -> None:
        """The window ends."""
        self._hand_over(np.arange(len(self._states)), stamp)

    def _hand_over(self, nodes: NDArray[np.int64], stamp: int) -> None:
        for node in nodes.tolist():
            state, since = int(self._states[node]), int(self._since[node])
            if state >= 0 and since < stamp:
                self._add[state](array("i", (node,)), since, stamp)


def _say(
    stamps: TimeArray, period: float, gaps: int, runs: _Runs, diagnosis: Diagnosis
) -> None:
    """How well snapshots tell what nodes did."""
    seconds = period / SECOND_NS
    diagnosis.note(f"nodes were looked at every {seconds:g} s: begin and end of an idle fragment are known to "
                   f"{seconds:g} s, and shorter ones may be missed", "", 0,
                   f"{len(stamps):,} snapshots; {runs.idle:,} fragments were seen whole", loud=True)  # fmt: skip
    if gaps:
        diagnosis.note(f"snapshots are missing: nodes count as unavailable from {MOST_PERIODS} periods after one until "
                       "the next", "", 0, f"{gaps / SECOND_NS / 3600:.3g} hours", loud=True)  # fmt: skip
