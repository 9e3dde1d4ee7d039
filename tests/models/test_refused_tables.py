"""Tables of every reader that are refused, with file, row, column and job: the cases of tests/data/refused.toml."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from toy_application import workload, write_application

from bft.models import (
    DurationEstimator,
    Forecaster,
    read_application,
    read_jobs,
    read_measurements,
    read_philly_jobs,
    read_swf_jobs,
    read_table,
    read_throughputs,
    read_tiresias_jobs,
    read_unit_memory,
    read_venus_jobs,
    read_xi,
    submissions,
)
from bft.models.learned.packing import PackingAnalyser, sharing_scores
from bft.models.learned.saved_models import read_model
from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay.trace.trace_files import read_trace


def through(learn: Callable[..., Any]) -> Callable[[Path], Any]:
    """What is made of a table, which is known by its file's name."""
    return lambda path: learn(read_table(path), source=str(path))


READERS: dict[str, Callable[[Path], Any]] = {
    "jobs": read_jobs,
    "durations": through(DurationEstimator.train),
    "forecasts": through(Forecaster.train),
    "submissions": through(submissions),
    "profiles": through(PackingAnalyser.train),
    "shared speeds": through(sharing_scores),
    "model": read_model,
    "tiresias": read_tiresias_jobs,
    "swf": read_swf_jobs,
    "philly": read_philly_jobs,
    "venus": read_venus_jobs,
    "pollux": lambda path: read_pollux_jobs(path, path.parent / "apps"),
    "applications": lambda path: workload(path.parent, "a,0,toy,2,128"),
    "application": lambda path: read_application(path.parent),
    "throughputs": read_throughputs,
    "pairs": lambda path: read_measurements([path]),
    "memory": read_unit_memory,
    "spreadsheet": read_xi,
    "table": read_table,
    "trace": read_trace,
}
TABLES = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "refused.toml").read_text("utf-8")
)
CASES = [
    pytest.param(
        name.partition(",")[0], each["file"], each.get("head", "") + text, said
    )
    for name, each in TABLES.items()
    for text, said in each["cases"]
]


@pytest.mark.parametrize(("reader", "file", "text", "said"), CASES)
def test_a_table_is_refused_where_it_is_wrong(
    reader: str, file: str, text: str, said: str, here: Path
) -> None:
    write_application(here / "apps" / "toy")
    path = here / file
    path.write_text(text)
    message = str(refused("", READERS[reader], path))
    assert message.startswith(str(path.parent))
    assert [part for part in said.split("…") if part not in message] == []
    assert not (here / "ran").exists()  # what a pickle would have done
