"""One module per policy family: a new policy is a module here and a line in `registry.BUILT_IN`.

`policy_names` lists all policies, including those of other packages.
"""

from typing import TYPE_CHECKING

from bft.models.lazy import public_names

if TYPE_CHECKING:
    from bft.replay.engine.policy_api import Decision as Decision
    from bft.replay.engine.policy_api import JobView as JobView
    from bft.replay.engine.policy_api import Policy as Policy
    from bft.replay.engine.policy_api import PolicyError as PolicyError
    from bft.replay.engine.policy_api import Remembers as Remembers
    from bft.replay.engine.policy_api import State as State
    from bft.replay.engine.policy_api import Traits as Traits
    from bft.replay.engine.units import Machine as Machine
    from bft.replay.policies.equal_share import EqualShare as EqualShare
    from bft.replay.policies.milp import MilpPolicy as MilpPolicy
    from bft.replay.policies.milp_sharing import MilpSharingPolicy as MilpSharingPolicy
    from bft.replay.policies.registry import policy_names as policy_names
    from bft.replay.policies.registry import policy_type as policy_type
else:
    __getattr__, __dir__, __all__ = public_names(__name__)
