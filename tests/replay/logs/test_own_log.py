"""Log formats of other packages: installed, used from the command line, and reported when they are broken."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from packages import ROOT, installed, plant

from bft.replay.cli.main import run
from bft.replay.logs import (
    Clock,
    Collector,
    Diagnosis,
    LogFormat,
    Reading,
    Unusable,
    detect,
    each_record,
    formats,
    read_log,
)

IMPORT = "from bft.replay.logs import LogFormat\n"
OWN = ROOT / "examples" / "own-log"
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


@pytest.mark.slow
def test_the_documented_format_is_installed_and_used(tmp_path: Path) -> None:
    call = installed(OWN, tmp_path)
    assert re.search(
        "^semicolons +One job per line, with semicolons$",
        call("ingest", "--formats").stdout,
        re.MULTILINE,
    )
    (tmp_path / "jobs.log").write_text(LOG)
    common = (
        "jobs.log",
        "--tz",
        "Europe/Berlin",
        "-o",
        "trace.csv",
        "--json",
        "--force",
        "--allow-few",
    )
    for name in ("auto", "Semicolons"):
        read = call("ingest", name, *common)
        assert read.returncode == 0, read.stderr
        account = json.loads(read.stdout)
        assert {key: account[key] for key in ("lines", "rows", "used")} == {
            "lines": 8,
            "rows": 7,
            "used": 2,
        }
        assert {each["reason"] for each in account["skipped"]} == {
            "a time is no time",
            "ends before it starts",
            "field 2 holds no host list",
            "is no record of this format, such as job 7;cn[1-3];START;END",
        }
        assert [each["reason"] for each in account["left_out"]] == [
            "a job that never started"
        ]
        assert account["coverage"]["nodes"] == 3
    assert "2024-05-01T09:00:00" in (tmp_path / "trace.csv").read_text().replace(
        " ", "T"
    )
    strict = call("ingest", "auto", *common, "--strict")
    assert strict.returncode == 2
    assert (
        "jobs.log: line 5: a time is no time: 'yesterday;2024-05-01T11:30:00'"
        in strict.stderr
    )


def test_the_documented_example_is_short() -> None:
    assert len((OWN / "semicolon_log.py").read_text("utf-8").splitlines()) <= 45


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "raise RuntimeError('no parser')",
            "cannot be loaded: RuntimeError: no parser",
        ),
        ("", "cannot be loaded: AttributeError"),
        (
            "def FORMAT(reading): ...",
            "is a function, expected a bft.replay.logs.LogFormat",
        ),
        (
            "from bft.replay.logs import LogFormat\nFORMAT = LogFormat('x', 'read')",
            "read must be a function of a Reading",
        ),
        (
            "from bft.replay.logs import LogFormat\nFORMAT = LogFormat('x', print, '(')",
            "is no regular expression",
        ),
    ],
)
def test_a_broken_package_is_named_and_hides_no_other(
    body: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(
        plant(
            {"their_log.py": body},
            {formats.GROUP: {"own": "their_log:FORMAT"}},
            tmp_path,
        )
    )
    monkeypatch.delitem(sys.modules, "their_log", raising=False)
    assert run(["ingest", "--formats"]) == 0
    listed = capsys.readouterr().out
    assert re.search(
        rf"^own +format 'own' \(their_log:FORMAT\).*{message}", listed, re.MULTILINE
    ), listed
    assert re.search("^swf ", listed, re.MULTILINE)
    Path("idle.csv").write_text(
        "node,start,end,state\na,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z,idle\n"
    )
    assert run(["ingest", "own", "idle.csv", "-o", "trace.csv"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("trace.csv").exists()
    assert run(["ingest", "auto", "idle.csv", "-o", "trace.csv"]) == 0


def test_auto_names_a_broken_package_where_no_other_format_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(
        plant({}, {formats.GROUP: {"own": "nowhere.at_all:FORMAT"}}, tmp_path / "site")
    )
    assert detect("JobID|NodeList|Start|End") == "slurm"
    assert not caplog.records
    (tmp_path / "log").write_text("of no format\n")
    assert (
        run(
            ["ingest", "auto", str(tmp_path / "log"), "-o", str(tmp_path / "trace.csv")]
        )
        == 2
    )
    assert "format 'own' (nowhere.at_all:FORMAT) cannot be loaded" in caplog.text


def test_a_format_checks_itself() -> None:
    with pytest.raises(TypeError, match="function of a Reading"):
        LogFormat("x", None)  # type: ignore[arg-type]


def test_readers_of_the_release_before_work_and_are_warned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def record(text: str, line: int) -> None:
        if text == "?":
            raise Unusable("is odd", text)
        host, start, end = text.split(";")
        start_ns = reading.clock.parse(start, reading.file, line)
        end_ns = reading.clock.parse(end, reading.file, line)
        assert start_ns is not None
        nodes = reading.into.indices([host])
        reading.into.job(text, nodes, start_ns, end_ns, reading.file, line)

    def read(reading: Reading) -> None:
        with pytest.warns(DeprecationWarning, match="yield records from each_line"):
            each_record(reading, record)

    into, diagnosis = Collector(), Diagnosis()
    lines = ["# c", "", "a;1612900000;1612900060", "?", "b;1612900030;1612900090"]
    reading = Reading(lines, "log", into, diagnosis, Clock("UTC", diagnosis))
    monkeypatch.setitem(formats.BUILT_IN, "own", LogFormat("old", read))
    with pytest.warns(DeprecationWarning, match="the reader of own yields no records"):
        read_log("own", reading)
    diagnosis.balance()
    assert (diagnosis.lines, diagnosis.rows, diagnosis.used) == (5, 3, 2)
    assert list(into.names) == ["a", "b"]
    assert into.busy_intervals.merged()[1].tolist() == [
        1612900000 * 10**9,
        1612900030 * 10**9,
    ]
