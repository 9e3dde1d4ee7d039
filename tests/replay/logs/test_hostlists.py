"""Host lists: ours against ClusterShell's, those of whole columns against those of one text, and refusals."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs import stamp
from synthetic_logs_more import read_files

from bft.replay.logs import HostListError, expand_hosts


@st.composite
def brackets(draw: st.DrawFn) -> str:
    width = draw(st.integers(1, 4))
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        low = draw(st.integers(0, 9999 % 10**width))
        high = draw(st.integers(low, min(low + 12, 10**width - 1)))
        pieces.append(
            f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}"
        )
    return f"[{','.join(pieces)}]"


PREFIXES = st.sampled_from(["n", "cn-", "rack-x", "d07n", "a_b"])
PARTS = st.tuples(brackets(), st.sampled_from(["-", "-x", "n"])).map("".join)
WORDS = st.tuples(PREFIXES, st.lists(PARTS, max_size=2).map("".join)).map("".join)
LISTS = st.lists(WORDS, min_size=1, max_size=4).map(",".join)
ANY_TEXT = st.text("n01[]-,/", max_size=9)


@given(LISTS)
def test_the_same_hosts_as_clustershell(text: str) -> None:
    found = expand_hosts(text)
    assert len(set(found)) == len(found)
    assert set(found) == set(NodeSet(text))


@given(st.lists(LISTS | ANY_TEXT, min_size=1, max_size=8))
def test_a_column_of_lists_names_the_hosts_that_each_list_names(
    texts: list[str],
) -> None:
    expected, refused = set(), 0
    for row, text in enumerate(texts):
        try:
            hosts = expand_hosts(text)
        except HostListError:
            hosts, refused = (), refused + 1
        expected |= {(host, 10.0 * row, 10.0 * row + 5) for host in hosts}
    rows = [
        f"{row}|{text}|{stamp(10 * row)}|{stamp(10 * row + 5)}"
        for row, text in enumerate(texts)
    ]
    rows.append(f"last|last|{stamp(0)}|{stamp(5)}")
    spans, account = read_files("slurm", "\n".join(["JobID|NodeList|Start|End", *rows]))
    assert spans == expected | {("last", 0.0, 5.0)}
    why = "column NodeList holds no host list"
    assert sum(tally.count for tally in account.skipped.values()) == refused + sum(
        not text for text in texts
    )
    assert (why in account.skipped) == (refused > 0)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[3,1,1-2]", "n3 n1 n2"),
        ("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"),
        ("a,b[1-2]c,a", "a b1c b2c"),
        ("n-13-[01-02],n-14-[01-02]", "n-13-01 n-13-02 n-14-01 n-14-02"),
        ("n[0-8/4]", "n0 n4 n8"),
        ("n[9-10]", "n9 n10"),
        *[(nothing, "") for nothing in ("", "None assigned", "(null)", "None", "N/A")],
    ],
)  # fmt: skip
def test_expansion(text: str, hosts: str) -> None:
    assert list(expand_hosts(text)) == hosts.split()


@pytest.mark.parametrize(
    "text",
    ["n[1-2", "n1-2]", "n[2-1]", "n[]", "n[a-b]", "n[1--2]", "n[[1-2]]", "a,,b", ",a", "a,", "a b", "ä1", "n\0",
     "n[1]\n", "n[0-8/0]", "n[0-999999999]", "n[0-9][0-99][0-999][0-9]", "n[1-2],m[0-999999]", "n[٣]", "[", "n[1-2][",
     "\udcff", "a[0-9999]b[0-9999]c[0-9999]", "n[" + ",".join(["0-200000"] * 5) + "]", "n" + "[1-262143]" * 300,
     "n[" + ",".join(f"{low}-262143" for low in range(1, 4000)) + "]", "n[" + ",".join(["0-" + "9" * 18] * 20) + "]",
     "n" * 200_000 + "[1-262143]", "n[" + "0" * 100_000 + ",1-100000]"],
    ids=lambda text: ascii(text[:24]),
)  # fmt: skip
def test_what_is_no_host_list_is_refused_before_it_takes_memory(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(HostListError):
        expand_hosts(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.reference
def test_the_lists_of_real_logs(reference: Path) -> None:
    logs = reference / "logs/slurm"
    with gzip.open(logs / "xdmod-phillips.sacct.log.gz", "rt", encoding="utf-8") as log:
        lines = log.readlines()
    lines += (logs / "xdmod-unit-accounting-logs.log").read_text().splitlines()
    for text in {line.split("|")[24] for line in lines} - {"None assigned"}:
        assert set(expand_hosts(text)) == set(NodeSet(text))
