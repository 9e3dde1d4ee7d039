"""Former modules of the engine can be imported for one more release, with a warning that names the new path."""

from __future__ import annotations

from importlib import import_module

import pytest

from bft.replay.engine.units import Holdings
from bft.replay.policies import Machine


@pytest.mark.parametrize(
    ("former", "name", "home", "new_name"),
    [
        ("port", "Decision", "policy_api", "Decision"),
        ("port", "Kind", "policy_api", "Kind"),
        ("memory", "kept", "snapshot", "snapshot"),
        ("memory", "NOT_KEPT", "snapshot", "NOT_STORED"),
        ("asking", "asking", "policy_api", "PolicyCall"),
        ("admission", "Due", "deadlines", "Due"),
        ("policy_timeout", "PolicyCall", "policy_api", "PolicyCall"),
        ("reserve", "NOT_HELD", "units", "NOT_HELD"),
        ("sharing_rules", "Interference", "rules", "Interference"),
        ("places", "Places", "units", "Placement"),
        ("steering", "WorkloadError", "workload_driver", "WorkloadError"),
    ],
)
def test_a_former_path_has_the_same_object_and_warns(
    former: str, name: str, home: str, new_name: str
) -> None:
    module = import_module(f"bft.replay.engine.{former}")
    with pytest.warns(
        DeprecationWarning,
        match=rf"{former}\.{name} is now bft\.replay\.engine\.{home}\.{new_name};",
    ):
        found = getattr(module, name)
    assert found is getattr(import_module(f"bft.replay.engine.{home}"), new_name)


def test_a_plugin_may_import_from_a_former_module_as_before() -> None:
    names: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match="policy_api"):
        exec("from bft.replay.engine.port import Decision, State", names)  # noqa: S102  # as a plugin's file does
    assert {"Decision", "State"} <= set(names)


def test_a_former_module_has_no_names_that_were_never_there() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        import_module("bft.replay.engine.port").nonsense  # noqa: B018


def test_free_units_of_a_machine_are_found_by_their_former_name() -> None:
    holdings = Holdings(4)
    holdings.join([1, 2], 0)
    with pytest.warns(DeprecationWarning, match=r"Machine\.placement\(\)"):
        assert Machine(holdings).places().by_node() == {1: 1, 2: 1}
