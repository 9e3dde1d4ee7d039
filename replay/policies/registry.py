"""Policies by name: those of this package, and those that others register in the entry-point group `bft.policies`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bft.models import InputError
from bft.models.plugins import (
    PluginGroup,
    built,
    constants_of,
    parsed_constants,
)
from bft.replay.engine.policy_api import Policy, Traits

GROUP = "bft.policies"
# Name -> module and class; a module is imported when its policy is requested.
BUILT_IN = {
    "milp": "milp:MilpPolicy",
    "milp-sharing": "milp_sharing:MilpSharingPolicy",
    "equal-share": "equal_share:EqualShare",
    "fifo": "fifo:Fifo",
    "yarn-cs": "yarn_cs:YarnCapacity",
    "sjf": "shortest:ShortestFirst",
    "srtf": "shortest:ShortestRemainingFirst",
    "qssf": "qssf:QuasiShortestServiceFirst",
    "optimus": "optimus:Optimus",
    "tiresias-l": "tiresias:TiresiasL",
    "tiresias-g": "tiresias:TiresiasG",
    "tiresias-pollux": "tiresias:TiresiasPollux",
    "pollux": "pollux:Pollux",
    "sia": "sia:Sia",
    "lucid": "lucid.orchestrator:Lucid",
    "srtf-ars": "sharing:SrtfAllShared",
    "srtf-wrs": "sharing:SrtfWiselyShared",
    "sjf-bsbf": "sharing:SjfBestSharing",
    "schedule": "schedule:Schedule",
}
_POLICIES = PluginGroup(GROUP, "policy", BUILT_IN, "bft.replay.policies")
# Policies known only in this process, by name: see `named`.
_HERE: dict[str, Callable[..., Policy]] = {}


def each_policy_name() -> Iterator[str]:
    """Yield the names of all available policies, those of other packages last."""
    yield from _HERE
    yield from _POLICIES.each()


def policy_names() -> list[str]:
    """Names of all available policies.

    >>> policy_names()[:3]
    ['milp', 'milp-sharing', 'equal-share']
    """
    return list(each_policy_name())


@contextmanager
def named(name: str, factory: Callable[..., Policy]) -> Iterator[None]:
    """While the block runs, `name` refers to what `factory` makes: for a policy in a notebook, without a package.

    Raises
    ------
    InputError
        When another policy has that name.

    Examples
    --------
    >>> from bft.replay import EqualShare
    >>> with named("mine", EqualShare):
    ...     policy_type("mine").make({}).name, "mine" in policy_names()
    ('equal-share', True)
    >>> "mine" in policy_names()
    False
    """
    if name in policy_names():
        raise InputError(f"there is a policy {name!r} already: choose another name")
    _traits(name, factory)
    _HERE[name] = factory
    try:
        yield
    finally:
        del _HERE[name]


@dataclass(frozen=True, slots=True)
class PolicyType:
    """The type of a policy: what is known of it before one is made.

    Parameters
    ----------
    name
        One of `policy_names`.
    factory
        The class (or function) that makes it.
    kind
        What the engine respects; that of a policy that was made may state more.
    settings
        The names of its fields, filled by the run or by --set.
    """

    name: str
    factory: Callable[..., Policy]
    traits: Traits
    settings: frozenset[str]

    def make(
        self, settings: Mapping[str, Any], given: Mapping[str, str] | None = None
    ) -> Policy:
        """Make a policy.

        Parameters
        ----------
        settings
            Values from the run, by field name: fields with these names get them.
        given
            Values from the user, as texts by field name.

        Raises
        ------
        InputError
            When there is no such field, or a value does not fit.

        Examples
        --------
        >>> policy_type("fifo").make({}, {"backfill": "yes"}).backfill
        True
        """
        policy: Policy = built(
            f"policy {self.name!r}", self.factory, settings, given or {}
        )
        check_made(self.name, policy)
        return policy

    def parse(
        self, given: Mapping[str, str], settings: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Read the values of the policy's constants from texts by name.

        Raises
        ------
        InputError
            When the policy has no such constant, the run fills it (`settings`), or a value does not fit.

        Examples
        --------
        >>> policy_type("tiresias-l").parse({"limits": "600,3600", "promote": "8"})
        {'limits': (600.0, 3600.0), 'promote': 8.0}
        """
        return parsed_constants(
            f"policy {self.name!r}", constants_of(self.factory, settings), given
        )


def policy_type(name: str) -> PolicyType:
    """Look up the type of a policy.

    Raises
    ------
    InputError
        When there is no such policy, or its package cannot be loaded or provides something else.

    Examples
    --------
    >>> policy_type("fifo").traits.rigid, sorted(policy_type("fifo").settings)
    (True, ['backfill', 'consolidate'])
    """
    factory = _HERE.get(name) or _POLICIES.factory(name)
    traits = _traits(name, factory)
    settings = frozenset(constant.name for constant in constants_of(factory))
    return PolicyType(name, factory, traits, settings)


def check_made(name: str, policy: object) -> None:
    """Raise if this is no policy, or states invalid traits, before anything is replayed."""
    if not isinstance(getattr(policy, "name", None), str):
        raise InputError(
            f"policy {name!r}: it needs a `name`, which the results record"
        )
    if not callable(getattr(policy, "decide", None)):
        raise InputError(f"policy {name!r}: it needs a method decide(state)")
    _traits(name, policy)


def _traits(name: str, made: object) -> Traits:
    try:
        return Traits.of(made)
    except TypeError as error:
        raise InputError(f"policy {name!r}: {error}") from error
