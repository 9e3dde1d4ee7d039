"""One file a policy family; `POLICIES` names those that the command line offers."""

from bft.replay.policies.equal_share import EqualShare
from bft.replay.policies.interface import Decision, JobView, Policy, PolicyError, Remembers, State
from bft.replay.policies.milp import MilpPolicy
from bft.replay.policies.milp_sharing import MilpSharingPolicy

POLICIES = ("milp", "equal-share")

__all__ = [
    "POLICIES",
    "Decision",
    "EqualShare",
    "JobView",
    "MilpPolicy",
    "MilpSharingPolicy",
    "Policy",
    "PolicyError",
    "Remembers",
    "State",
]
