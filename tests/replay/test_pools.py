"""Fixed clusters and virtual clusters, which share nothing."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from worlds import SECOND, START, rigid

from bft.models import InputError, Job, JobTable, jobs_to_frame, write_parquet
from bft.replay import EqualShare, Outcome, Replay, Rules, always_idle
from bft.replay.pools import cluster_pools, merge

ALL = Rules(max_jobs=0)


def sizes(folder: Path, text: str) -> str:
    path = folder / "vcs.csv"
    path.write_text(text, "utf-8")
    return str(path)


def replayed(cluster: str, jobs: list[Job]) -> Outcome:
    table = JobTable(tuple(jobs))
    pools = cluster_pools(cluster, table)
    return merge(
        pools,
        [Replay(pool.trace, pool.jobs, EqualShare(), ALL).run() for pool in pools],
        table,
    )


def test_a_cluster_of_one_pool_is_nodes_that_are_always_idle() -> None:
    jobs = [rigid("a", 2, 100, at=5), rigid("b", 4, 100)]
    (pool,) = cluster_pools("3x4", JobTable(tuple(jobs)))
    assert (len(pool.trace.nodes), pool.trace.units_per_node, pool.trace.start) == (
        3,
        4,
        START,
    )
    ours = replayed("3x4", jobs)
    trace = always_idle(3, START, START + 10**5 * SECOND, units_per_node=4)
    theirs = Replay(trace, JobTable(tuple(jobs)), EqualShare(), ALL).run()
    assert ours.steps.equals(theirs.steps)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("pqr"),
            st.integers(1, 3),
            st.integers(1, 90),
            st.integers(0, 99),
        ),
        min_size=1,
    )
)
def test_each_virtual_cluster_is_as_if_it_were_alone(
    drawn: list[tuple[str, int, int, int]],
) -> None:
    jobs = [
        replace(rigid(f"j{k}", n, s, at=at), vc=vc)
        for k, (vc, n, s, at) in enumerate(drawn)
    ]
    table = JobTable(tuple(jobs))
    with TemporaryDirectory() as folder:
        path = sizes(Path(folder), "vc,nodes,units_per_node\np,1,4\nq,2,4\nr,3,4\n")
        merged = replayed(path, jobs)
    first = 0
    for name, nodes in (("p", 1), ("q", 2), ("r", 3)):
        own = [job for job in jobs if job.vc == name]
        if not own:
            continue
        alone = {r.job.name: r.finish_ns for r in replayed(f"{nodes}x4", own).records}
        finishes = {record.job.name: record.finish_ns for record in merged.records}
        assert alone.items() <= finishes.items()
        mine = [table.jobs.index(job) for job in own]
        held = merged.allocations[merged.allocations["job"].isin(mine)]
        assert first <= held["first_unit"].min() <= held["last_unit"].max()
        first += nodes * 4
        assert held["last_unit"].max() < first
    assert [record.job.name for record in merged.records] == [job.name for job in jobs]
    assert merged.steps["time"].is_monotonic_increasing


def test_the_window_of_pools_is_that_of_all_and_each_offers_its_units_throughout(
    tmp_path: Path,
) -> None:
    jobs = [
        replace(rigid("a", 2, 100, at=0), vc="p"),
        replace(rigid("b", 4, 50, at=200), vc="q"),
    ]
    merged = replayed(sizes(tmp_path, "vc,nodes,units_per_node\np,1,4\nq,2,4\n"), jobs)
    assert (merged.start_ns, merged.end_ns) == (START, START + 250 * SECOND)
    assert merged.idle_unit_seconds == merged.offered_unit_seconds == 12 * 250
    assert merged.used_unit_seconds == 2 * 100 + 4 * 50
    with pytest.raises(ValueError, match="several pools"):
        merged.work_at(START)
    # A cluster of one pool, too, is observed for as long as its replay takes.
    alone = replayed("3x4", jobs)
    assert alone.idle_unit_seconds == alone.offered_unit_seconds == 12 * 250


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("vc,nodes\np,1\n", "missing column units_per_node"),
        ("vc,nodes,units_per_node\np,0,4\n", "row 1, column nodes"),
        ("vc,nodes,units_per_node\np,1.5,4\n", "whole number >= 1, not 1.5"),
        ("vc,nodes,units_per_node\np,x,4\n", "whole number >= 1, not 'x'"),
        (
            "vc,nodes,units_per_node\np,nan,4\n",
            "row 1, column nodes: expected a whole number >= 1, not an empty cell",
        ),
        (
            "vc,nodes,units_per_node\nq,1,1\np,1,inf\n",
            "row 2, column units_per_node.*not inf",
        ),
        ("vc,nodes,units_per_node\np,1e400,4\n", "row 1, column nodes"),
        ("vc,nodes,units_per_node\np,,4\n", "row 1, column nodes"),
        ("vc,nodes,units_per_node\np,True,4\n", "row 1, column nodes"),
        ("vc,nodes,units_per_node\n", "has no rows"),
        ("vc,nodes,units_per_node", "has no rows"),
        ("\n", "not a readable CSV|missing column"),
        ("", "is empty"),
        ("vc,nodes,units_per_node\np,100000000,8\n", "1,000,000 units"),
        ("vc,nodes,units_per_node\np,1000,500\nq,1000,501\n", "1,000,000 units"),
        ("vc,nodes,units_per_node\np,1,4\np,1,4\n", "appears twice"),
        ("vc,nodes,units_per_node\nq,1,4\n", "virtual cluster 'p' is none of q"),
    ],
)
def test_an_invalid_cluster_file_is_reported_with_row_and_column(
    tmp_path: Path, text: str, told: str
) -> None:
    table = JobTable((replace(rigid("a", 3), vc="p"),))
    refused(told, cluster_pools, sizes(tmp_path, text), table)


def test_a_cluster_of_jsonl_with_numbers_beyond_floats_is_reported(
    tmp_path: Path,
) -> None:
    path, table = tmp_path / "vcs.jsonl", JobTable((rigid("a", 3),))
    for number in ("1" + "0" * 400, "1e400", "NaN", "null", "[1]", "true"):
        path.write_text(f'{{"vc": "p", "nodes": {number}, "units_per_node": 4}}\n')
        told = "row 1, column nodes: expected a whole number"
        refused(told, cluster_pools, str(path), table)


@pytest.mark.parametrize(
    "cluster", ["100000000x8", "8x100000000", "1001x1000", "9" * 5000 + "x1"]
)
def test_a_cluster_beyond_any_machine_is_refused_before_it_is_made(
    tmp_path: Path, cluster: str, told: Callable[..., str]
) -> None:
    path = tmp_path / "jobs.parquet"
    write_parquet(jobs_to_frame(JobTable((rigid(),))), path)
    tracemalloc.start()
    told(
        f"--cluster {cluster} --jobs {path} --out {tmp_path / 'out'}",
        "1,000,000 units",
        code=2,
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_cluster_names_kinds_and_nodes_of_several_sizes() -> None:
    (pool,) = cluster_pools("2x2:slow+1x4:fast", JobTable((rigid(),)))
    trace = pool.trace
    assert trace.kinds == ("slow", "slow", "fast")
    assert (trace.units, trace.node_units) == (8, (2, 2, 4))
    assert trace.joins(0).tolist() == [0, 1, 4, 5, 8, 9, 10, 11]
    (equal,) = cluster_pools("2x2:slow+1x2:fast", JobTable((rigid(),)))
    assert (equal.trace.by_unit, equal.trace.units) == (False, 6)
    with pytest.raises(InputError, match="each need a kind"):
        cluster_pools("2x2:slow+1x4", JobTable((rigid(),)))


def test_kinds_of_a_cluster_are_replayed_from_the_command_line(
    here: Path, told: Callable[..., str]
) -> None:
    jobs = Path(__file__).parents[2] / "examples" / "kinds" / "jobs.csv"
    line = f"--cluster 2x4:a100+3x2:v100 --jobs {jobs} --no-u"
    idle = ("idle unit-hours on 8 units", "idle unit-hours on 6 units")
    told(f"{line} --backend exact --out out", *idle)
    told(f"{line} --policy fifo", "fifo knows no kinds of units", code=2)
    told(f"{line} --option kinds=k", "a cluster names the kinds itself", code=2)


def test_a_cluster_that_is_neither_a_size_nor_a_file_is_reported() -> None:
    table = JobTable((rigid(),))
    for cluster in ("8by8", "8x", "no.csv", "-1x3"):
        refused("NODESxUNITS", cluster_pools, cluster, table)
    refused("needs nodes", cluster_pools, "0x4", table)


def test_a_cluster_is_replayed_from_the_command_line(
    here: Path, told: Callable[..., str]
) -> None:
    jobs = [replace(rigid(f"j{k}", 2, 100, at=k), vc="pq"[k % 2]) for k in range(6)]
    write_parquet(jobs_to_frame(JobTable(tuple(jobs))), Path("jobs.parquet"))
    path = sizes(here, "vc,nodes,units_per_node\np,1,4\nq,2,2\n")
    told(f"--cluster {path} --jobs jobs.parquet --policy equal-share --out out")
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["metrics"]["jobs_finished"] == 6
    assert summary["metrics"]["U"] is None
    assert summary["options"]["max_jobs"] == 0
    assert set(pd.read_parquet("out/steps.parquet")["vc"]) == {"p", "q"}
