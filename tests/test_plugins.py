"""Packages of others: names that are registered twice, and log formats as the page has them, installed, and broken."""

import json
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from log_cases import cases, check
from packages import ROOT, installed, plant

from bft.replay.cli.main import run
from bft.replay.logs import LogFormat, formats

# What asks for a plugin, and what lists all of its group.
COMMANDS = {
    "bft.policies": ("--policy twice --out out", "list policies"),
    "bft.backends": ("--backend twice --out out", "list backends"),
    "bft.logs": ("ingest twice log -o out.csv", "list formats"),
}


@pytest.mark.parametrize("group", COMMANDS)
def test_a_name_that_two_packages_register_is_an_error_and_hides_no_other(
    group: str, here: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    Path("log").write_text("a line\n")
    for package in ("one", "two"):
        monkeypatch.syspath_prepend(
            plant({}, {group: {"twice": f"{package}:Thing"}}, here / package, package)
        )
    asking, listing = COMMANDS[group]
    message = "'twice' is registered by several packages: one:Thing, two:Thing"
    told(asking, message, "uninstall all but one", code=2)
    assert not list(Path().glob("out*"))
    listed = told(listing)
    assert listed.count(message) == 1
    assert len(listed.splitlines()) > 3


def test_a_name_that_is_ours_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    monkeypatch.syspath_prepend(
        plant({}, {"bft.policies": {"fifo": "nowhere:Fifo"}}, tmp_path / "site")
    )
    assert "nowhere" not in told("list policies fifo")
    assert told("list policies").count("fifo") == 1


OWN = ROOT / "examples" / "own-log"
PAGE = (ROOT / "docs" / "add-a-log-format.md").read_text("utf-8")
OF_PAGE = [line.split()[1:] for line in re.findall(r"^    (bft-replay .*)", PAGE, re.MULTILINE)]  # fmt: skip
CASES = cases("examples/own-log")
LOG = CASES[0].values[0]["log"]


def test_the_page(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table and its commands work, its reader reads, and the package is what it shows."""
    (_, table), (_, code), (_, metadata) = re.findall(
        r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    )
    Path("jobs.csv").write_text(table)
    Path("jobs.log").write_text(LOG)
    names: dict[str, LogFormat] = {}
    exec(code, names)  # noqa: S102 - the page's own code
    monkeypatch.setitem(formats.BUILT_IN, "semicolons", names["FORMAT"])
    for command in OF_PAGE:
        assert run([*command, "--force", "--allow-few"]) == 0
    assert len(OF_PAGE) == 2
    project = tomllib.loads((OWN / "pyproject.toml").read_text("utf-8"))["project"]
    assert tomllib.loads(metadata)["project"]["entry-points"] == project["entry-points"]
    assert len(PAGE.split()) <= 263


@pytest.mark.parametrize("case", CASES)
def test_the_account_of_the_documented_reader(
    case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(OWN)
    monkeypatch.setitem(
        formats.BUILT_IN, "semicolons", import_module("semicolon_log").FORMAT
    )
    check(case)


@pytest.mark.slow
def test_the_documented_package_is_installed_and_used(tmp_path: Path) -> None:
    call = installed(OWN, tmp_path)
    listed = call("list", "formats").stdout
    assert re.search("^semicolons +One job per line, with semicolons$", listed, re.M)
    (tmp_path / "jobs.log").write_text(LOG)
    common = ("jobs.log", "--tz", "Europe/Berlin", "-o", "trace.csv", "--json", "--force", "--allow-few")  # fmt: skip
    for name in ("auto", "Semicolons"):
        read = call("ingest", name, *common)
        assert read.returncode == 0, read.stderr
        assert json.loads(read.stdout)["used"] == 2


LOGS = "from bft.replay.logs import LogFormat\nFORMAT = LogFormat"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RuntimeError('no parser')", "cannot be loaded: RuntimeError: no parser"),
        ("", "cannot be loaded: AttributeError"),
        ("def FORMAT(log): ...", "is a function, expected a bft.replay.logs.LogFormat"),
        (f"{LOGS}('x', print, '(')", "unterminated subpattern"),
    ],
)  # fmt: skip
def test_a_broken_package_is_named_and_hides_no_other(
    body: str,
    message: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    told,
) -> None:
    entry = {formats.GROUP: {"own": "their_log:FORMAT"}}
    monkeypatch.syspath_prepend(plant({"their_log.py": body}, entry, here))
    monkeypatch.delitem(sys.modules, "their_log", raising=False)
    listed = told("list formats", "\nswf ")
    found = rf"^own +format 'own' \(their_log:FORMAT\).*{message}"
    assert re.search(found, listed, re.M), listed
    Path("idle.csv").write_text("node,start,end,state\na,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z,idle\n")  # fmt: skip
    told("ingest own idle.csv -o trace.csv", message, code=2)
    assert not Path("trace.csv").exists()
    told("ingest auto idle.csv -o trace.csv")


def test_auto_names_a_broken_package_where_no_other_format_matches(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(
        plant({}, {formats.GROUP: {"own": "nowhere.at_all:FORMAT"}}, here / "site")
    )
    assert formats.detect("JobID|NodeList|Start|End") == "slurm"
    assert not caplog.records
    Path("log").write_text("of no format\n")
    assert run(["ingest", "auto", "log", "-o", "trace.csv"]) == 2
    assert "format 'own' (nowhere.at_all:FORMAT) cannot be loaded" in caplog.text
