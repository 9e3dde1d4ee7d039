"""Host lists: ours against ClusterShell's, and refusals."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from bft.models import InputError
from bft.replay.logs import Collector, hostlists
from bft.replay.logs.hostlists import HostListError, NodeLists, expand

PREFIXES = st.sampled_from(["n", "cn-", "rack.x", "d07n", "a_b"])


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


@st.composite
def lists(draw: st.DrawFn) -> str:
    words = []
    for _ in range(draw(st.integers(1, 4))):
        word = draw(PREFIXES)
        for _ in range(draw(st.integers(0, 2))):
            word += draw(brackets()) + draw(st.sampled_from(["-", "-x", "n"]))
        words.append(word)
    return ",".join(words)


@given(lists())
def test_the_same_hosts_as_clustershell(text: str) -> None:
    found = expand(text)
    assert len(set(found)) == len(found)
    assert set(found) == set(NodeSet(text))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[3,1,1-2]", ["n3", "n1", "n2"]),
        ("r[1-2]n[01-03]", ["r1n01", "r1n02", "r1n03", "r2n01", "r2n02", "r2n03"]),
        ("a,b[1-2]c,a", ["a", "b1c", "b2c"]),
        (
            "cpn-f13-03-[01-02],cpn-f13-04-[01-02]",
            [f"cpn-f13-0{r}-0{k}" for r in (3, 4) for k in (1, 2)],
        ),
        ("n[0-8/4]", ["n0", "n4", "n8"]),
        ("n[9-10]", ["n9", "n10"]),
        ("n[09-10]", ["n09", "n10"]),
        *[(nothing, []) for nothing in ("", "None assigned", "(null)", "None", "N/A")],
    ],
)
def test_expansion(text: str, hosts: list[str]) -> None:
    assert list(expand(text)) == hosts


@pytest.mark.parametrize(
    "text",
    ["n[1-2", "n1-2]",
     "n[2-1]", "n[]", "n[a-b]", "n[1--2]", "n[[1-2]]", "a,,b", ",a", "a,", "a b", "ä1", "n\0", "n[1]\n",
     "n[0-8/0]", "n[0-999999999]", "n[0-9][0-99][0-999][0-9]", "n[1-2],m[0-999999]", "n[٣]", "[", "n[1-2][", "\udcff"],
)  # fmt: skip
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(HostListError):
        expand(text)


def test_a_huge_range_is_refused_before_it_takes_memory() -> None:
    tracemalloc.start()
    for text in (
        "n[0-999999999]",
        "a[0-9999]b[0-9999]c[0-9999]",
        "n[" + ",".join(["0-200000"] * 5) + "]",
    ):
        with pytest.raises(HostListError, match="hosts"):
            expand(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize(
    "text",
    [
        "n" + "[1-262143]" * 300,
        "n[" + ",".join(f"{low}-262143" for low in range(1, 4000)) + "]",
        "n[" + ",".join(["0-" + "9" * 18] * 20) + "]",
        "n" * 200_000 + "[1-262143]",
        "n[" + "0" * 100_000 + ",1-100000]",
    ],
    ids=["product", "overlapping", "beyond a word", "long name", "long number"],
)
def test_a_short_text_does_not_become_many_names_before_it_is_refused(
    text: str,
) -> None:
    nodes_of = NodeLists(Collector().indices)
    tracemalloc.start()
    for use in (expand, nodes_of):
        with pytest.raises(HostListError, match=r"hosts|characters|no name"):
            use(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20  # some 3,999 ranges, no names


@given(st.text("n0123456789[]-,/ ", max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    with contextlib.suppress(HostListError):
        found = expand(text)
        assert len(set(found)) == len(found)
        assert not set("[], ") & set("".join(found))


@given(st.lists(lists() | st.text("n0123456789[]-,/ ", max_size=12), min_size=1))
def test_lookup_equals_expansion_in_bounded_memory(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.logs.hostlists.CACHE_BYTES", 2_000)
        collector = Collector()
        nodes_of = NodeLists(collector.indices)
        for text in (*texts, *texts):
            try:
                found = nodes_of(text)
            except HostListError:
                with pytest.raises(HostListError):
                    expand(text)
                continue
            names = list(collector.names)
            assert [names[node] for node in found] == list(expand(text))
            assert nodes_of(text) is found


def test_pieces_together_may_not_be_too_many() -> None:
    with pytest.raises(HostListError, match="more than"):
        NodeLists(Collector().indices)("n[0-199999,200000-399999]")


@pytest.mark.parametrize("form", ["n[{}-{}]", "n[{},{}-{}]"], ids=["whole", "pieces"])
def test_different_lists_may_not_be_too_many_together(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostlists, "_MOST_BEYOND", 100_000)
    nodes_of = NodeLists(Collector().indices)
    texts = [
        form.format(*[k] * form.count(","), k + 1, 20_000 + k) for k in range(1, 20)
    ]
    for text in texts[:2] * 100:  # the same lists, any number of times
        assert len(nodes_of(text)) >= 20_000
    with pytest.raises(InputError, match="too many nodes together"):
        list(map(nodes_of, texts))


def test_many_lists_of_the_largest_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    # All but one of 8,000 nodes: each row names nearly all of the machine, in other words.
    monkeypatch.setattr(hostlists, "_MOST_BEYOND", 0)
    nodes_of = NodeLists(Collector().indices)
    lists = [f"frontier[00000-{k - 1:05},{k + 1:05}-08000]" for k in range(1, 30)]
    assert {len(nodes_of(text)) for text in lists} == {8000}


@pytest.mark.reference
def test_the_lists_of_real_logs(reference: Path) -> None:
    with gzip.open(
        reference / "logs/slurm/xdmod-phillips.sacct.log.gz", "rt", encoding="utf-8"
    ) as log:
        texts = {line.split("|")[24] for line in log} - {"None assigned"}
    other = (
        (reference / "logs/slurm/xdmod-unit-accounting-logs.log")
        .read_text()
        .splitlines()
    )
    for text in {*texts, *(line.split("|")[24] for line in other)} - {"None assigned"}:
        assert set(expand(text)) == set(NodeSet(text))
