"""One file a policy family; `policy_names` lists those that can be asked for, third parties' included."""

from bft.replay.engine.port import Decision, JobView, Kind, Machine, Policy, PolicyError, Remembers, State
from bft.replay.policies.equal_share import EqualShare
from bft.replay.policies.milp import MilpPolicy
from bft.replay.policies.milp_sharing import MilpSharingPolicy
from bft.replay.policies.registry import (
    PolicyOption,
    make_policy,
    parse_constants,
    policy_factory,
    policy_names,
    policy_options,
)

__all__ = [
    "Decision",
    "EqualShare",
    "JobView",
    "Kind",
    "Machine",
    "MilpPolicy",
    "MilpSharingPolicy",
    "Policy",
    "PolicyError",
    "PolicyOption",
    "Remembers",
    "State",
    "make_policy",
    "parse_constants",
    "policy_factory",
    "policy_names",
    "policy_options",
]
