"""Names that other packages register: policies, backends, log formats."""

from collections.abc import Callable
from pathlib import Path

import pytest
from packages import plant

# What asks for a plugin, and what lists all of its group.
COMMANDS = {
    "bft.policies": ("--policy twice --out out", "list policies"),
    "bft.backends": ("--backend twice --out out", "list backends"),
    "bft.logs": ("ingest twice log -o out.csv", "list formats"),
}


@pytest.mark.parametrize("group", COMMANDS)
def test_a_name_that_two_packages_register_is_an_error_and_hides_no_other(
    group: str, here: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., str]
) -> None:
    Path("log").write_text("a line\n")
    for package in ("one", "two"):
        points = {group: {"twice": f"{package}:Thing"}}
        monkeypatch.syspath_prepend(plant({}, points, here / package, package))
    asking, listing = COMMANDS[group]
    message = "'twice' is registered by several packages: one:Thing, two:Thing"
    told(asking, message, "uninstall all but one", code=2)
    assert not list(Path().glob("out*"))
    listed = told(listing)
    assert listed.count(message) == 1
    assert len(listed.splitlines()) > 3


def test_a_name_that_is_ours_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., str]
) -> None:
    points = {"bft.policies": {"fifo": "nowhere:Fifo"}}
    monkeypatch.syspath_prepend(plant({}, points, tmp_path / "site"))
    assert "nowhere" not in told("list policies fifo")
    assert told("list policies").count("fifo") == 1
