"""States of nodes in the words of Slurm, PBS and people, down to what a node trace needs of them."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

# absent: the node is configured, but not there (Slurm's FUTURE).
State: TypeAlias = Literal["busy", "idle", "unavailable", "absent"]

_WORDS: dict[State, str] = {
    # Slurm's planned: idle, and the backfill scheduler has an idea of what comes next.
    "idle": "idle free planned plnd up",
    "busy": (
        "busy alloc allocated mix mixed comp completing running job-exclusive job-sharing job-busy closed_full "
        "closed_excl closed_busy"
    ),
    "unavailable": (
        "unavailable down drain drained draining drng maint maintenance resv reserved resv-exclusive fail failed "
        "failing failg error offline unk unknown state-unknown stale inval invalid_reg no_respond not_responding npc "
        "perfctrs boot booting reboot rebooting reboot_issued blocked block pow_up pow_dn powered_down "
        "closed closed_adm closed_lock closed_wind closed_ego closed_cu_excl closed_rc unavail unreach unlicensed "
        "powering_down powering_up power_down power_up provisioning wait-provisioning initializing sleep unresolvable"
    ),
    "absent": "future futr",
}
_STATES: dict[str, State] = {word: state for state, words in _WORDS.items() for word in words.split()}
# Flags that change nothing: where a node comes from, and what is asked of it once its jobs have ended.
_FLAGS = frozenset({"cloud", "dynamic_norm", "dynamic_future", "reboot_requested", "undrain", "power_down_asap"})
# Slurm's marks behind a state: no answer, powered down, up or off, in maintenance, booting; those that change nothing:
# a reboot or power-down to come, and planned by the backfill scheduler.
_MARKS: dict[str, State | None] = {
    **dict.fromkeys("*~#%$^", "unavailable"),
    **dict.fromkeys("!@-", None),
}
_APART = re.compile(r"[+,&|\s]+")
# Of several states at once the first of these holds.
_ORDER: tuple[State, ...] = ("absent", "unavailable", "busy", "idle")


def state_of(text: str) -> State | None:
    """What the state of a node amounts to; None for a word that is not known.

    Words may be joined (`IDLE+DRAIN`, `offline,job-exclusive`) and marked (`down*`, `idle~`): unavailable outweighs
    busy, which outweighs idle.

    >>> [state_of(text) for text in ("idle", "mixed", "IDLE+DRAIN", "idle~")]
    ['idle', 'busy', 'unavailable', 'unavailable']
    """
    met: set[State] = set()
    for word in _APART.split(text.strip().lower()):
        while word and word not in _STATES and word[-1] in _MARKS:
            mark = _MARKS[word[-1]]
            if mark is not None:
                met.add(mark)
            word = word[:-1]
        if word in _STATES:
            met.add(_STATES[word])
        elif word and word not in _FLAGS:
            return None
    return next((state for state in _ORDER if state in met), None)
