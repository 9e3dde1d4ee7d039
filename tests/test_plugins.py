"""Names that other packages register: policies, backends, log formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from packages import plant

from bft.replay.cli.main import run

# What asks for a plugin, and what lists all of its group.
COMMANDS = {
    "bft.policies": (["--policy", "twice", "--out", "out"], ["list", "policies"]),
    "bft.backends": (["--backend", "twice", "--out", "out"], ["list", "backends"]),
    "bft.logs": (["ingest", "twice", "log", "-o", "out.csv"], ["list", "formats"]),
}


@pytest.mark.parametrize("group", COMMANDS)
def test_a_name_that_two_packages_register_is_an_error_and_hides_no_other(
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log").write_text("a line\n")
    for package in ("one", "two"):
        monkeypatch.syspath_prepend(
            plant(
                {}, {group: {"twice": f"{package}:Thing"}}, tmp_path / package, package
            )
        )
    asking, listing = COMMANDS[group]
    message = "'twice' is registered by several packages: one:Thing, two:Thing"
    assert run(asking) == 2
    refused = capsys.readouterr().err
    assert message in refused
    assert "uninstall all but one" in refused
    assert not list(Path().glob("out*"))
    assert run(listing) == 0
    listed = capsys.readouterr().out
    assert listed.count(message) == 1
    assert len(listed.splitlines()) > 3


def test_a_name_that_is_ours_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(
        plant({}, {"bft.policies": {"fifo": "nowhere:Fifo"}}, tmp_path / "site")
    )
    assert run(["list", "policies", "fifo"]) == 0
    assert "nowhere" not in capsys.readouterr().out
    assert run(["list", "policies"]) == 0
    assert capsys.readouterr().out.count("fifo") == 1
