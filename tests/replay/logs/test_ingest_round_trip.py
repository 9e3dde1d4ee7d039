"""All formats, and tables of other sites: known jobs are read as written, and damaged logs are refused or counted."""

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_logs as logs
from drawing import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused
from synthetic_logs import (
    BEGIN_S,
    HOSTS,
    LENGTH_S,
    SyntheticJob,
    idle_seconds,
    idle_seconds_of,
    job_lists,
    read_texts,
    survives,
    written,
)

from bft.replay.logs import IngestOptions, ingested
from bft.replay.logs.formats import BUILT_IN

pytestmark = pytest.mark.usefixtures("example_logs")
MACHINE = {"nodes": [",".join(HOSTS)], "window": (0, logs.LENGTH_S)}
Writer = Callable[[Iterable[SyntheticJob]], str]
COLUMNS = tuple(written("sacct", []).strip().split("|"))


def headless(jobs: Iterable[SyntheticJob]) -> str:
    return written("sacct", jobs).partition("\n")[2]


def node_list(jobs: Iterable[SyntheticJob]) -> str:
    return "".join(f"NodeName={','.join(job.hosts)} CPUs=4\n" for job in jobs)


def outages(_: Iterable[SyntheticJob]) -> str:
    """A table of Cobalt's outages, which names no node."""
    times = [logs.stamp(second) for second in (0, 9, 20, 30)]
    rows = "{},{},1\n{},,1\n{},,0\n".format(*times)
    return f"START_TIMESTAMP,END_TIMESTAMP,IS_ALL_MACHINE_DOWN\n{rows}"


# By name the format, what writes it, and options.
WRITERS = {
    "sacct, columns named": ("slurm", headless, {"fields": COLUMNS}),
    "oarstat --gantt": ("oar", logs.oar_gantt, {}),
}
READ_AS = {
    "slurm": ("sacct",), "slurm-json": ("sacct --json", "squeue --json"), "slurm-events": ("events",),
    "slurm-reservations": ("scontrol show res", "sacctmgr show res"), "intervals": ("intervals",),
    "cobalt": ("cobalt",), "pbs": ("pbs",), "lsf": ("lsb.acct",), "lsf-events": ("lsb.events",), "sge": ("sge",),
    "flux": ("flux jobs", "flux jobs --json", "flux jobs --json, one by one", "flux eventlogs"), "oar": ("oarstat",),
    "kubernetes": ("kubectl get pods", "kubectl get pods --watch"),
    "htcondor": ("condor_history -l", "condor_history -json"), "philly": ("philly",),
}  # fmt: skip
for kind, names in READ_AS.items():
    WRITERS |= {name: (kind, partial(written, name), {}) for name in names}
for mark in (";", "^|"):
    WRITERS[f"sacct, {mark}"] = ("slurm", partial(written, "sacct", d=mark), {})
for size in (1, 4, 48):
    write = partial(logs.swf, processors_per_node=size)
    WRITERS[f"swf, nodes of {size}"] = ("swf", write, {})
for zone in ("Europe/Berlin", "America/Chicago", "Asia/Kolkata"):
    for name in ("sacct", "cobalt"):
        zoned = partial(written, name, tz=zone)
        WRITERS[f"{name}, {zone}"] = (WRITERS[name][0], zoned, {"tz": zone})
# Files beside a log, which are none by themselves.
BESIDE = {
    "node list": ("slurm-nodes", node_list, {}),
    "outages": ("cobalt", outages, {}),
}
# Here rows are not each a record of a job or an outage.
NO_RECORDS = ("flux eventlogs", "oarstat --gantt")


@pytest.mark.parametrize("name", WRITERS)
@examples(100, quick=6)
@given(data=st.data())
def test_round_trip_in_one_file_or_two_and_one_that_is_given_twice_counts_once(
    name: str, data: st.DataObject
) -> None:
    kind, write, options = WRITERS[name]
    jobs = data.draw(job_lists(apart=kind == "swf"))
    if "condor" in name:  # style 5 is a removed job: of no length, it counts until then
        assume(all(job.style != 5 or job.end_s > job.start_s for job in jobs))
    text = write(jobs)
    given = MACHINE | options
    parts = [text]
    if kind in ("pbs", "lsf-events"):  # written as things happen, and cut each day
        lines = text.splitlines(keepends=True)
        cut = data.draw(st.integers(0, 40))
        parts = ["".join(each) for each in (lines[:cut], lines[cut:]) if each]
    made = read_texts(kind, *parts, **given)
    idle, expected = logs.idle_seconds_of(made.trace), logs.idle_seconds(jobs)
    if kind == "swf":  # it names no nodes
        idle, expected = idle.sum(axis=0), expected.sum(axis=0)
    assert np.array_equal(idle, expected)
    if data.draw(st.booleans()):
        twice = read_texts(kind, text, text, **given)
        assert logs.taken(twice.trace) == logs.taken(made.trace)
        assert name in NO_RECORDS or twice.account.used == made.account.used


@given(job_lists())
def test_round_trip_of_states(jobs: list[SyntheticJob]) -> None:
    """Rows busy, idle and down by the style of a job, against a grid of seconds."""
    states = ["alloc", "idle", "down*", "idle"]
    made = read_texts("intervals", written("intervals", jobs, state=states), **MACHINE)
    idle_rows = [job for job in jobs if states[job.style % 4] == "idle"]
    not_idle = ~logs.idle_seconds([job for job in jobs if job not in idle_rows])
    stated = ~logs.idle_seconds(idle_rows) if idle_rows else np.ones_like(not_idle)
    assert np.array_equal(logs.idle_seconds_of(made.trace), stated & ~not_idle)
    overlap = any("idle rows overlap" in note for note in made.account.notes)
    assert overlap == bool(idle_rows and (stated & not_idle).any())


@examples(100, quick=10)
@given(jobs=job_lists())
def test_a_delimiter_may_end_the_lines_and_their_order_does_not_matter(
    jobs: list[SyntheticJob],
) -> None:
    """As `sacct -p` has it, of jobs without free text that has delimiters or line breaks in it."""
    plain = [SyntheticJob(job.hosts, job.start_s, job.end_s, 6) for job in jobs]
    text = written("sacct", plain).replace("\n", "|\n")
    bare = text.partition("\n")[2]
    for log in (text, bare, written("sacct", jobs), written("sacct", jobs[::-1])):
        fields = COLUMNS if log == bare else ()
        made = read_texts("slurm", log, fields=fields, **MACHINE).trace
        assert np.array_equal(logs.idle_seconds_of(made), logs.idle_seconds(jobs))


@pytest.mark.parametrize("name", [*WRITERS, *BESIDE])
@examples(100, quick=6)
@given(data=st.data())
def test_damaged_logs_and_those_of_others_are_read_or_refused(
    name: str, data: st.DataObject
) -> None:
    kind, write, _ = (WRITERS | BESIDE)[name]
    text = write(data.draw(job_lists()))
    if data.draw(st.booleans()):
        kind = data.draw(st.sampled_from(list(BUILT_IN)))
    else:
        text = data.draw(logs.damages(text))
    survives(kind, text)


@pytest.mark.parametrize("kind", BUILT_IN)
@examples(100, quick=10)
@given(
    text=st.text("|;,:=\"'[]{}#.-09aé\n\t \0\udcff", max_size=300)
    | st.binary(max_size=300).map(lambda b: b.decode("utf-8", "surrogateescape"))
)
def test_any_text_is_read_or_refused(kind: str, text: str) -> None:
    survives(kind, text)


INTERVALS = "node=hosts,start=began,end=finished"
SLURM = "JobID=id,NodeList=hosts,Start=began,End=finished,State=status"
WINDOW = {
    "begin": str(BEGIN_S),
    "end": str(BEGIN_S + LENGTH_S),
    "tz": "UTC",
    "min_gap_s": 0.0,
    "allow_few": True,
}


def frame(jobs: list[SyntheticJob], times: str) -> pd.DataFrame:
    """Jobs with column names of another site, one of them equal to ours with another meaning."""
    begun = pd.Series([BEGIN_S + job.start_s for job in jobs])
    ended = pd.Series([BEGIN_S + job.end_s for job in jobs])
    stamps = {
        "epochs": lambda s: s,
        "floats": lambda s: s.astype(float),
        "zoned": lambda s: pd.to_datetime(s, unit="s", utc=True),
        "naive": lambda s: pd.to_datetime(s, unit="s"),
    }[times]
    return pd.DataFrame(
        {
            "id": range(1, len(jobs) + 1),
            "end": [f'at the "end", or\nnot {k}' for k in range(len(jobs))],
            "hosts": [list(job.hosts) for job in jobs],
            "began": stamps(begun),
            "finished": stamps(ended),
            "status": ["COMPLETED"] * len(jobs),
        }
    )


@pytest.mark.parametrize(
    ("form", "columns"), [("intervals", INTERVALS), ("slurm", SLURM)]
)
@examples(100, quick=10)
@given(
    jobs=job_lists(),
    times=st.sampled_from(["epochs", "floats", "zoned", "naive"]),
    # What pandas writes without index=False is no column, once or twice; host lists keep their commas.
    how=st.sampled_from(["parquet", "csv", "with an index", "with two"]),
)
def test_any_table_with_a_map(
    form: str, columns: str, jobs: list[SyntheticJob], times: str, how: str
) -> None:
    table = frame(jobs, times)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs")
        if how == "parquet":
            table.to_parquet(file)
        else:
            table["hosts"] = table["hosts"].map(",".join)
            table.drop(columns="end").to_csv(file, index=how != "csv")
        if how == "with two":
            pd.read_csv(file).to_csv(file)
        options = {"columns": columns, "nodes": [",".join(HOSTS)]}
        trace = ingested(form, [str(file)], IngestOptions(**options, **WINDOW)).trace
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


# --- Parquet as others have it; text is in tests/data/logs/tables.toml ------------------------------------------------

BEGUN, ENDED = [BEGIN_S, BEGIN_S + 60], [BEGIN_S + 60, BEGIN_S + 90]
NODES = [["0", "12"], ["12"]]
JOBS = {"job_id": [1, 2], "nodes": NODES, "num_nodes_alloc": [2, 1], "job_state": ["COMPLETED"] * 2}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "table", "times", "zoned"),
    [
        ("pm100", JOBS, ("start_time", "end_time"), True),
        ("adastra", JOBS, ("start_time", "end_time"), False),
        ("fugaku", {"jid": ["j1", "j2"], "nnumr": [2, 1]}, ("sdt", "edt"), False),
    ],
)
def test_tables_as_others_have_them(
    columns: str, table, times: tuple[str, str], zoned: bool, here: Path
) -> None:
    stamps = [pd.to_datetime(each, unit="s", utc=zoned) for each in (BEGUN, ENDED)]
    frame = pd.DataFrame(table | dict(zip(times, stamps, strict=True)))
    frame.to_parquet(here / "jobs")
    options = {**WINDOW, "columns": columns, "end": str(BEGIN_S + 90)}
    made = ingested("auto", ["jobs"], IngestOptions(**options))
    assert (made.trace.idle_node_seconds(), made.account.used) == (30, 2)


def test_numbers_that_may_be_missing(here: Path) -> None:
    times = {"sdt": [BEGIN_S, BEGIN_S + 10.0], "edt": [BEGIN_S + 60.0, None]}
    pd.DataFrame({"jid": [1, 2], "nnuma": [2, 1], **times}).to_parquet(here / "jobs")
    columns = "JobID=jid,AllocNodes=nnuma,Start=sdt,End=edt"
    options = {**WINDOW, "columns": columns, "machine_nodes": 4, "end": str(BEGIN_S + 90)}  # fmt: skip
    made = ingested("slurm", ["jobs"], IngestOptions(**options))
    assert made.trace.idle_node_seconds() == 4 * 90 - 2 * 60 - 80
    assert not made.account.skipped


def test_parquet_that_is_damaged(here: Path) -> None:
    frame([SyntheticJob(("n1",), 0, 5, 0)], "epochs").to_parquet(here / "p")
    (here / "p").write_bytes((here / "p").read_bytes()[:-9])
    refused(
        "p: cannot be read as Parquet",
        ingested,
        "intervals",
        ["p"],
        IngestOptions(columns=INTERVALS),
    )
