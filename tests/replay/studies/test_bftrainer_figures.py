"""The sweeps that answer BFTrainer's questions: on a small log, and the paper's headline on the published one."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bft.datasets import generate_dnn_jobs, generate_node_trace
from bft.models import jobs_from_frame


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import bftrainer_figures

    return bftrainer_figures


@pytest.fixture
def small(figures: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module on 12 generated nodes and 6 generated jobs, with short grids."""
    from bft.replay.trace.trace_files import trace_from_frame

    trace = trace_from_frame(generate_node_trace(nodes=12, days=0.3, seed=3).frame)
    frame = generate_dnn_jobs(
        jobs=6, first_submit="2021-02-10", interval_s=300, pmax=1e9
    ).assign(name=[f"J{n}-{'ab'[n % 2]}" for n in range(6)])
    jobs = jobs_from_frame(frame)
    monkeypatch.setattr(figures, "read_trace", lambda file: trace)
    monkeypatch.setattr(figures, "read_published_jobs", lambda bounds, curves: jobs)
    monkeypatch.setattr(figures, "published_log", lambda: {"node_trace": "log"})
    monkeypatch.setattr(figures, "published_jobs", lambda name: {"a": "b", "c": "d"})
    few = {
        "window": {"tfwd_s": (10, 120)},
        "parallel": {"max_jobs": (1, 0)},
        "costs": {},
        "objective": {},
    }
    kept = {
        name: replace(figures.FIGURES[name], grid=grid, nodes=12)
        for name, grid in few.items()
    }
    monkeypatch.setattr(figures, "FIGURES", kept)
    monkeypatch.setattr(figures, "FACTORS", (1, 10))
    return figures


def test_each_figure_is_a_table(
    small: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "window,parallel,costs,objective"
    monkeypatch.setattr(sys, "argv", ["bftrainer_figures.py", "--only", names])
    small.main()
    printed = capsys.readouterr().out
    for name in names.split(","):
        assert f"\n{name}: " in printed
    assert "throughput, h" in printed


def test_dearer_rescales_yield_less(small: Any, tmp_path: Path) -> None:
    frame = small.replayed("costs", tmp_path)
    once, tenfold = frame.set_index("label").loc[["1", "10"]].to_dict("records")
    assert once["outcome"] > tenfold["outcome"]
    assert once["preemption_cost"] < tenfold["preemption_cost"]
    assert once["rescales"] >= tenfold["rescales"]


@pytest.mark.slow
@pytest.mark.reference
def test_the_search_reaches_what_the_paper_reports(
    figures: Any, reference: Path, tmp_path: Path
) -> None:
    # "up to 93 %" of dedicated nodes, on the log and the jobs that were published with it
    frame = figures.replayed("hpo", tmp_path)
    assert frame["U"].max() == pytest.approx(0.93, abs=0.01)
