"""Admission by deadlines, where a user reads of it; `tests/rules/admission.py` has the rule."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def refusing(told: Callable[..., str], here: Path) -> Callable[..., Any]:
    """Replays jobs on some units with and without refusals; returns the summary and what is said."""

    def call(units: int, *rows: str, options: str = "") -> tuple[dict[str, Any], str]:
        head = "name,Tsub,deadline,Jmin,Jmax,Pmax,Tcup,Tcdw,Ns,Ps,Os"
        curve = ',0,0,"[0,2]","[0,20]","[0,20]"'
        Path("j.csv").write_text("\n".join([head, *(row + curve for row in rows)]))
        line = f"--cluster {units}x1 --jobs j.csv --policy equal-share --option admission=deadline"
        said = told(f"{line} {options} --out run")
        return json.loads(Path("run/summary.json").read_text()), " ".join(said.split())

    return call


AT = "1970-01-01T00:00:00Z"


def test_refused_jobs_are_counted_and_said(refusing: Any, told: Any) -> None:
    due = f"{AT},1970-01-01T00:00:10Z,1,2,100"
    summary, said = refusing(2, f"a,{due}", f"b,{due}", f"c,{due}", f"d,{AT},,1,2,100")
    refused = "1 of 3 jobs with deadlines were refused and never run (c); summary.json names all"
    assert refused in said
    assert f"--option admission=deadline: {refused}" in summary["notes"]
    metrics = summary["metrics"]
    assert metrics["admission"] == {"with_deadlines": 3, "refused": ["c"]}
    assert (metrics["jobs_finished"], metrics["jobs"]) == (3, 4)
    expected = {"jobs": 4, "submitted": 4, "refused": 1, "left_out": 0}
    expected |= {"in_system": 3, "finished": 3, "cancelled": 0}
    assert expected.items() <= metrics["census"].items()
    assert metrics["census"]["counted"]["jobs_submitted"] == "submitted"
    without = "admission-units has no effect without --option admission=deadline"
    told("--cluster 2x1 --jobs j.csv --option admission-units=3", without, code=2)


def test_a_replay_that_refuses_a_job_does_not_beat_its_own_bounds(
    refusing: Any,
) -> None:
    """One unit of 10 samples/s: a is done after 1,000 s, b could be after 2,000 s at best, and has 500 s."""
    b = f"b,{AT},1970-01-01T00:08:20Z,1,1,10000"
    metrics = refusing(1, f"a,{AT},,1,1,10000", b)[0]["metrics"]
    assert metrics["jct_to_end_mean_s"] == pytest.approx(1000)
    assert metrics["bounds"]["jct_mean_s"] == pytest.approx(1000)
    # b counts here: another policy may have it admitted.
    assert metrics["bound"] == pytest.approx(2e4)
    counted = metrics["census"]["counted"]
    assert counted["bounds.jct_mean_s"] == counted["jct_to_end_mean_s"]
    assert metrics["jain_fairness_of_mean_units"] == pytest.approx(1.0)  # of a alone
