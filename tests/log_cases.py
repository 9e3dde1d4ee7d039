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
refused   a pattern of the message, where the logs are refused

A case with `each` is one for each of these texts, which stands for %EACH%. In all texts @9 is second 9 of the log since
1970, @T9 its stamp, and %NAME% a text of the table `texts`, or rows of a line of the table `rows`.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from synthetic_logs import BEGIN_S, Spans, read_texts, taken

from bft.models import InputError
from bft.replay.logs import Ingested
from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import SECOND_NS

FOLDER = Path(__file__).parent / "data" / "logs"
EXPECTED = {
    "taken",
    "says",
    "coverage",
    "span",
    "machine",
    "idle",
    "busy",
    "sizes",
    "jobs",
    "refused",
}


def instant(match: re.Match[str]) -> str:
    second = BEGIN_S + int(match[2])
    return (
        f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        if match[1]
        else str(second)
    )


def expanded(value: Any, texts: Mapping[str, str]) -> Any:
    """A value with its texts as they are meant."""
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


def cases(*names: str) -> list[Any]:
    """The cases of files, as parameters."""
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


def spans(text: str) -> Spans:
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
    """Host jobs as a case has them."""
    if jobs is None:
        return []
    columns = (jobs.known, jobs.start, jobs.end, jobs.expected_end)
    rows = [
        ["-" if ns == NEVER else ns // SECOND_NS - BEGIN_S for ns in column.tolist()]
        for column in columns
    ]
    names = [jobs.names[node] for node in jobs.nodes.tolist()]
    lists = [",".join(names[low:high]) for low, high in pairwise(jobs.offsets.tolist())]
    whole = zip(*rows, jobs.count.tolist(), lists, strict=True)
    return [" ".join(map(str, each)).strip() for each in whole]


def read(case: Mapping[str, Any], **more: Any) -> Ingested:
    """What is made of the texts of a case."""
    given = {name: None if each == "none" else each for name, each in case.items()}
    asked = {name: each for name, each in given.items() if name not in EXPECTED} | more
    log = asked.pop("log")
    return read_texts(
        asked.pop("form"), *([log] if isinstance(log, str) else log), **asked
    )


def check(case: Mapping[str, Any]) -> None:
    """Hold what is read against what a case expects."""
    if "refused" in case:
        with pytest.raises(InputError, match=case["refused"]):
            read(case)
        return
    made = read(case)
    trace, account = made.trace, made.account
    if "taken" in case:
        assert taken(trace) == spans(case["taken"])
    for name, value in case.get("coverage", {}).items():
        expected = pytest.approx(float(Fraction(value)), abs=1e-6)
        assert getattr(made.coverage, name) == expected, name
    bounds = [at / 1e9 - BEGIN_S for at in (trace.start, trace.end)]
    assert case.get("span") in (None, bounds)
    assert case.get("machine") in (None, " ".join(trace.nodes))
    assert case.get("idle") in (None, trace.idle_unit_seconds())
    assert case.get("busy") in (None, len({name for name, *_ in taken(trace)}))
    assert case.get("sizes") in (None, [*(trace.node_units or ())])
    assert case.get("jobs") in (None, host_jobs(trace.host_jobs))
    told = {
        "left out": account.left_out,
        "skipped": account.skipped,
        "noted": account.notes,
    }
    lines = {
        kind: [f"{why}: {each}" for why, each in tallies.items()]
        for kind, tallies in told.items()
    }
    lines["warned"] = account.warnings()
    says = [each.partition(": ") for each in case.get("says", ())]
    for kind, _, part in says:
        wanted = not kind.startswith("not ")
        assert (
            any(part in line for line in lines[kind.removeprefix("not ")]) == wanted
        ), (part, lines)
    unused = [kind for kind, *_ in says if kind in ("left out", "skipped")]
    assert len(unused) == len(account.left_out) + len(account.skipped), lines
    if account.skipped:
        found = account.skipped.items()
        first = [
            f"{each.file}: line {each.line}: .*{re.escape(why)}" for why, each in found
        ]
        with pytest.raises(InputError, match="|".join(first)):
            read(case, strict=True)
