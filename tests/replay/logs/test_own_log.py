"""Log formats of other packages: as the page has them, installed, and reported when they are broken."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packages import ROOT, installed, plant
from synthetic_logs_more import read_texts

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import LogFormat, formats

OWN = ROOT / "examples" / "own-log"
PAGE = (ROOT / "docs" / "add-a-log-format.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line.split()[1:] for line in re.findall(r"^    (bft-replay .*)", PAGE, re.MULTILINE)]  # fmt: skip
LOG = """\
# 2024-05-01
job 7;cn[1-3];2024-05-01T10:00:00;2024-05-01T11:00:00
job 8;cn2;2024-05-01T11:00:00;2024-05-01T11:30:00
job 9;cn1;;
job 10;cn1;yesterday;2024-05-01T11:30:00
job 11;cn1;2024-05-01T11:30:00;2024-05-01T11:00:00
job 12;cn[1-;2024-05-01T11:00:00;2024-05-01T11:10:00
what is this
"""


def test_the_page(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table and its commands work, its reader reads, and the package is what it shows."""
    (_, table), (_, code), (_, metadata) = BLOCKS
    Path("jobs.csv").write_text(table)
    Path("jobs.log").write_text(LOG)
    names: dict[str, LogFormat] = {}
    exec(code, names)  # noqa: S102 - the page's own code
    monkeypatch.setitem(formats.BUILT_IN, "semicolons", names["FORMAT"])
    for command in COMMANDS:
        assert run([*command, "--force", "--allow-few"]) == 0
    assert len(COMMANDS) == 2
    project = tomllib.loads((OWN / "pyproject.toml").read_text("utf-8"))["project"]
    entry = tomllib.loads(metadata)["project"]["entry-points"]
    assert entry == project["entry-points"]
    assert len(PAGE.split()) <= 263


def test_the_account_of_the_documented_reader(monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(OWN)
    form = import_module("semicolon_log").FORMAT
    monkeypatch.setitem(formats.BUILT_IN, "semicolons", form)
    made = read_texts("auto", LOG, window=None, tz="Europe/Berlin")
    account = made.account
    assert (account.lines, account.rows, account.used) == (8, 7, 2)
    assert [*account.skipped] == [
        "start holds no time",
        "ends before it starts",
        "its list of nodes holds no host list",
        "is no job such as job 7;cn[1-3];START;END",
    ]
    assert [*account.left_out] == ["job that never started"]
    assert made.trace.nodes == ("cn1", "cn2", "cn3")
    with pytest.raises(InputError, match="line 5: start holds no time: 'yesterday'"):
        read_texts("semicolons", LOG, window=None, strict=True)
    with pytest.raises(InputError, match="is no log of this format: line 1 is no job"):
        read_texts("semicolons", "what\nis\n", window=None)


@pytest.mark.slow
def test_the_documented_package_is_installed_and_used(tmp_path: Path) -> None:
    call = installed(OWN, tmp_path)
    listed = call("ingest", "--formats").stdout
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
        (f"{LOGS}('x', 'read')", "read must be a function of a Log"),
        (f"{LOGS}('x', print, '(')", "is no regular expression"),
    ],
)  # fmt: skip
def test_a_broken_package_is_named_and_hides_no_other(
    body: str,
    message: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry = {formats.GROUP: {"own": "their_log:FORMAT"}}
    monkeypatch.syspath_prepend(plant({"their_log.py": body}, entry, here))
    monkeypatch.delitem(sys.modules, "their_log", raising=False)
    assert run(["ingest", "--formats"]) == 0
    listed = capsys.readouterr().out
    found = rf"^own +format 'own' \(their_log:FORMAT\).*{message}"
    assert re.search(found, listed, re.M), listed
    assert re.search("^swf ", listed, re.M)
    Path("idle.csv").write_text("node,start,end,state\na,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z,idle\n")  # fmt: skip
    assert run(["ingest", "own", "idle.csv", "-o", "trace.csv"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("trace.csv").exists()
    assert run(["ingest", "auto", "idle.csv", "-o", "trace.csv"]) == 0


def test_auto_names_a_broken_package_where_no_other_format_matches(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {formats.GROUP: {"own": "nowhere.at_all:FORMAT"}}
    monkeypatch.syspath_prepend(plant({}, entry, here / "site"))
    assert formats.detect("JobID|NodeList|Start|End") == "slurm"
    assert not caplog.records
    Path("log").write_text("of no format\n")
    assert run(["ingest", "auto", "log", "-o", "trace.csv"]) == 2
    assert "format 'own' (nowhere.at_all:FORMAT) cannot be loaded" in caplog.text
