"""Cases of logs as data: what is read of a text and told of it, in tests/data/logs/*.toml.

Each table of such a file is a case; what it does not state is that of the table `default`. `log` is a text or several,
`form` their format, `window` the seconds of the window of observation. All else is an option, "none" is None. What is
expected:

taken     when nodes, or units, were not idle: "a 0-9 20-, b 3-9"
says      parts of what is told, after "left out: ", "skipped: ", "noted: ", "warned: " or one of these with "not ";
          nothing else is left out or skipped, and what is skipped is refused by --strict with file and line of one
coverage  numbers or fractions of `Coverage`
span      begin and end of the window of the trace
machine   the names of all nodes
idle      idle seconds of nodes or units
busy      how many nodes or units are ever taken
sizes     how many units each node has
jobs      host jobs: eligible, start, end, expected end, number of nodes and these, - for what is not known
counts    lines, rows, and rows that are used
refused   a pattern of the message, where the logs are refused

A case with `each` is one for each of these texts, which stands for %EACH%. In all texts @9 is second 9 of the log since
1970, @T9 its stamp, and %NAME% a text of the table `texts`, or rows of a line of the table `rows`.
"""

import math
import re
import tomllib
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from synthetic_logs import BEGIN_S, read_texts, taken

from bft.models import InputError
from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import SECOND_NS

FOLDER = Path(__file__).parent / "data" / "logs"
EXPECTED = {
    "taken", "says", "coverage", "span", "machine", "idle", "busy", "sizes", "jobs", "counts", "refused",
}  # fmt: skip


def instant(match: re.Match[str]) -> str:
    second = BEGIN_S + int(match[2])
    return (
        f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        if match[1]
        else str(second)
    )


def expanded(value, texts):
    if isinstance(value, dict):
        return {name: expanded(each, texts) for name, each in value.items()}
    if isinstance(value, list):
        return [expanded(each, texts) for each in value]
    if not isinstance(value, str):
        return value
    value = re.sub("%([A-Z_0-9]+)%", lambda match: texts[match[1]], value)
    return re.sub(r"@(T?)(-?\d+)", instant, value)


def row(line: str, number: int) -> str:
    """A line of a log in which {k}, {60k}, {k%4} and {60k+30} stand for what they are of its number k."""

    def value(match: re.Match[str]) -> str:
        factor, modulus, more = (int(each or 0) for each in match.groups())
        made = number * (factor or 1)
        return str((made % modulus if modulus else made) + more)

    return re.sub(r"{(\d*)k(?:%(\d+))?(?:\+(\d+))?}", value, line)


def cases(*names: str):
    found = []
    for name in names:
        content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        default, known = content.pop("default", {}), content.pop("texts", {})
        for each, (first, last, line) in content.pop("rows", {}).items():
            known[each] = "\n".join(row(line, k) for k in range(first, last))
        known = {each: expanded(text, known) for each, text in known.items()}
        for title, case in content.items():
            for one in case.pop("each", [""]):
                whole = expanded(default | case, known | {"EACH": expanded(one, known)})
                found.append(pytest.param(whole, id=f"{name}, {title} {one}".strip()))
    return found


def spans(text: str):
    """What `taken` finds, of `a 0-9 20-, b 3-9`."""
    edges = [
        (host, re.fullmatch(r"(-?[\d.]+)-(-?[\d.]*)", each))
        for host, *parts in map(str.split, filter(None, text.split(", ")))
        for each in parts
    ]
    return {
        (host, float(one[1]), float(one[2] or math.inf)) for host, one in edges if one
    }


def host_jobs(jobs: HostJobs | None) -> list[str]:
    if jobs is None:
        return []
    rows = [
        ["-" if ns == NEVER else ns // SECOND_NS - BEGIN_S for ns in column.tolist()]
        for column in (jobs.known, jobs.start, jobs.end, jobs.expected_end)
    ]
    names = [jobs.names[node] for node in jobs.nodes.tolist()]
    lists = [",".join(names[low:high]) for low, high in pairwise(jobs.offsets.tolist())]
    whole = zip(*rows, jobs.count.tolist(), lists, strict=True)
    return [" ".join(map(str, each)).strip() for each in whole]


def read(case, **more):
    given = {name: None if each == "none" else each for name, each in case.items()}
    asked = {name: each for name, each in given.items() if name not in EXPECTED} | more
    form, log = asked.pop("form"), asked.pop("log")
    return read_texts(form, *([log] if isinstance(log, str) else log), **asked)


def check(case) -> None:
    if "refused" in case:
        with pytest.raises(InputError, match=case["refused"]):
            read(case)
        return
    made = read(case)
    trace, account = made.trace, made.account
    for name, value in case.get("coverage", {}).items():
        expected = pytest.approx(float(Fraction(value)), abs=1e-6)
        assert getattr(made.coverage, name) == expected, name
    busy = taken(trace)
    found = {
        "taken": busy,
        "span": [at / 1e9 - BEGIN_S for at in (trace.start, trace.end)],
        "machine": " ".join(trace.nodes),
        "idle": trace.idle_unit_seconds(),
        "busy": len({name for name, *_ in busy}),
        "sizes": [*(trace.node_units or ())],
        "jobs": host_jobs(trace.host_jobs),
        "counts": [account.lines, account.rows, account.used],
    }
    expected = {name: case[name] for name in found if name in case}
    if "taken" in case:
        expected["taken"] = spans(case["taken"])
    assert {name: found[name] for name in expected} == expected
    lines = {
        kind: [f"{why}: {each}" for why, each in tallies.items()]
        for kind, tallies in (
            ("left out", account.left_out),
            ("skipped", account.skipped),
            ("noted", account.notes),
        )
    }
    lines["warned"] = account.warnings()
    says = [each.partition(": ") for each in case.get("says", ())]
    for kind, _, part in says:
        assert any(part in line for line in lines[kind.removeprefix("not ")]) == (
            not kind.startswith("not ")
        ), (part, lines)
    unused = [kind for kind, *_ in says if kind in ("left out", "skipped")]
    assert len(unused) == len(account.left_out) + len(account.skipped), lines
    if account.skipped:
        first = [
            f"{each.file}: line {each.line}: .*{re.escape(why)}"
            for why, each in account.skipped.items()
        ]
        with pytest.raises(InputError, match="|".join(first)):
            read(case, strict=True)
