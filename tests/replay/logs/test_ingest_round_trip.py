"""All formats: known jobs are read as written, and damaged logs are refused or counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import synthetic_logs as slurm
import synthetic_logs_more as more
import synthetic_logs_sources as sources
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import (
    HOSTS,
    SyntheticJob,
    ingest,
    job_lists,
    read_texts,
    survives,
)

from bft.replay.logs.formats import BUILT_IN, detect

pytestmark = pytest.mark.usefixtures("example_logs")
Writer = Callable[[Iterable[SyntheticJob]], str]
COLUMNS = tuple(slurm.sacct([]).strip().split("|"))


def older_batsim(jobs: Iterable[SyntheticJob]) -> str:
    """Jobs.csv as evalys has it of Batsim before 2.0."""
    text = sources.batsim(jobs)
    return text.replace("job_id,", "jobID,").replace("_resources", "_processors")


WRITERS: dict[str, tuple[str, Writer, dict[str, object]]] = {
    "sacct": ("slurm", slurm.sacct, {}),
    "sacct, semicolons": ("slurm", lambda jobs: slurm.sacct(jobs, ";"), {}),
    "sacct, two characters": ("slurm", lambda jobs: slurm.sacct(jobs, "^|"), {}),
    "sacct, columns named": (
        "slurm", lambda jobs: slurm.sacct(jobs).partition("\n")[2], {"fields": COLUMNS},
    ),
    "sacct --json": ("slurm-json", slurm.sacct_json, {}),
    "squeue --json": ("slurm-json", sources.squeue_json, {}),
    "events": ("slurm-events", slurm.sacctmgr_events, {}),
    "scontrol show res": ("slurm-reservations", slurm.scontrol_reservations, {}),
    "sacctmgr show res": ("slurm-reservations", slurm.sacctmgr_reservations, {}),
    "intervals": ("intervals", slurm.interval_table, {}),
    "cobalt": ("cobalt", more.cobalt, {"tz": "America/Chicago"}),
    "pbs": ("pbs", more.pbs, {}),
    "lsb.acct": ("lsf", more.lsb_acct, {}),
    "lsb.events": ("lsf-events", more.lsb_events, {}),
    "sge": ("sge", more.sge, {}),
    "swf": ("swf", lambda jobs: more.swf(jobs, 4), {"processors_per_node": 4}),
    "flux jobs": ("flux", sources.flux_table, {}),
    "flux jobs --json": ("flux", sources.flux_json, {}),
    "flux eventlogs": ("flux", sources.flux_eventlogs, {}),
    "oarstat": ("oar", sources.oar, {}),
    "oarstat --gantt": ("oar", sources.oar_gantt, {}),
    "condor_history -l": ("htcondor", sources.condor_long, {}),
    "condor_history -json": ("htcondor", sources.condor_json, {}),
    "kubectl get pods": ("kubernetes", sources.pods, {}),
    "philly": ("philly", sources.philly, {}),
    "ldms": ("ldms", sources.ldms, {}),
    "batsim": ("batsim", sources.batsim, {}),
    "batsim before 2.0": ("batsim", older_batsim, {}),
    "prometheus": ("prometheus", sources.prometheus, {}),
    "node list": (
        "slurm-nodes", lambda jobs: "".join(f"NodeName={','.join(job.hosts)} CPUs=4\n" for job in jobs), {},
    ),
}  # fmt: skip
for zone in ("Europe/Berlin", "America/Chicago", "Asia/Kolkata"):
    WRITERS[f"sacct, {zone}"] = (
        "slurm", lambda jobs, zone=zone: slurm.sacct(jobs, tz=zone), {"tz": zone},
    )  # fmt: skip
# These name no nodes.
COUNTS = ("prometheus", "swf")
# Here rows are not each a record of a job or an outage.
NO_RECORDS = ("prometheus", "ldms", "flux eventlogs", "oarstat --gantt")
ODD = "|;,:=\"'[]{}#.-09aé\n\t \0\udcff"


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "node list"])
@given(data=st.data())
def test_round_trip_and_a_file_given_twice_counts_once(
    name: str, data: st.DataObject
) -> None:
    kind, write, options = WRITERS[name]
    jobs = data.draw(job_lists(apart=name == "swf"))
    text = write(jobs)
    assert kind != "batsim" or detect(text.partition("\n")[0]) == "batsim"
    hosts = [f"n{k}" for k in range(len(HOSTS))] if kind == "batsim" else HOSTS
    given = {"nodes": [",".join(hosts)], "window": (0, more.LENGTH_S), **options}
    made = read_texts(kind, text, **given)
    idle, expected = more.idle_seconds_of(made.trace), more.idle_seconds(jobs)
    if name in COUNTS:
        idle, expected = idle.sum(axis=0), expected.sum(axis=0)
    assert np.array_equal(idle, expected)
    if data.draw(st.booleans()):
        twice = read_texts(kind, text, text, **given)
        assert more.taken(twice.trace) == more.taken(made.trace)
        assert name in NO_RECORDS or twice.account.used == made.account.used


@given(jobs=job_lists())
def test_a_delimiter_may_end_the_lines(jobs: list[SyntheticJob]) -> None:
    """As `sacct -p` has it, of jobs without free text that has delimiters or line breaks in it."""
    plain = [SyntheticJob(*(job.hosts, job.start_s, job.end_s), 6) for job in jobs]
    text = slurm.sacct(plain).replace("\n", "|\n")
    bare = text.partition("\n")[2]
    for read in (ingest("slurm", text), ingest("slurm", bare, fields=COLUMNS)):
        assert np.array_equal(more.idle_seconds_of(read), more.idle_seconds(jobs))


@given(jobs=job_lists())
def test_the_order_of_the_rows_does_not_matter(jobs: list[SyntheticJob]) -> None:
    one = ingest("slurm", slurm.sacct(jobs))
    other = ingest("slurm", slurm.sacct(jobs[::-1]))
    for column in ("times", "joined", "joined_at", "left", "left_at"):
        assert np.array_equal(getattr(one, column), getattr(other, column))
    assert one.nodes == other.nodes


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.data())
def test_damaged_logs_and_those_of_others_are_read_or_refused(
    name: str, data: st.DataObject
) -> None:
    kind, write, _ = WRITERS[name]
    text = write(data.draw(job_lists()))
    if data.draw(st.booleans()):
        kind = data.draw(st.sampled_from(list(BUILT_IN)))
    else:
        text = data.draw(more.damages(text))
    survives(kind, text)


@pytest.mark.parametrize("kind", BUILT_IN)
@given(
    text=st.text(ODD, max_size=300)
    | st.binary(max_size=300).map(lambda b: b.decode("utf-8", "surrogateescape"))
)
def test_any_text_is_read_or_refused(kind: str, text: str) -> None:
    survives(kind, text)
