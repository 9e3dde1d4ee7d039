"""Slurm's logs and the generic format: known jobs are read as written, and damaged logs are refused or counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs import (
    interval_table,
    sacct,
    sacct_json,
    sacctmgr_events,
    sacctmgr_reservations,
    scontrol_reservations,
)
from synthetic_logs_more import (
    HOSTS,
    SyntheticJob,
    damages,
    idle_seconds,
    idle_seconds_of,
    ingest,
    job_lists,
    survives,
)
from synthetic_logs_sources import (
    batsim,
    condor_json,
    condor_long,
    flux_eventlogs,
    flux_json,
    flux_table,
    ldms,
    oar,
    oar_gantt,
    philly,
    pods,
    prometheus,
    squeue_json,
)

from bft.replay.logs import Settings, detect, format_names

WRITERS: dict[str, tuple[str, Callable[[Iterable[SyntheticJob]], str]]] = {
    "sacct": ("slurm", sacct),
    "sacct, semicolons": ("slurm", lambda jobs: sacct(jobs, ";")),
    "sacct, two characters": ("slurm", lambda jobs: sacct(jobs, "^|")),
    "sacct --json": ("slurm-json", sacct_json),
    "events": ("slurm-events", sacctmgr_events),
    "scontrol show res": ("slurm-reservations", scontrol_reservations),
    "sacctmgr show res": ("slurm-reservations", sacctmgr_reservations),
    "intervals": ("intervals", interval_table),
    "squeue --json": ("slurm-json", squeue_json),
    "flux jobs": ("flux", flux_table),
    "flux jobs --json": ("flux", flux_json),
    "flux eventlogs": ("flux", flux_eventlogs),
    "oarstat": ("oar", oar),
    "oarstat --gantt": ("oar", oar_gantt),
    "condor_history -l": ("htcondor", condor_long),
    "condor_history -json": ("htcondor", condor_json),
    "kubectl get pods": ("kubernetes", pods),
    "philly": ("philly", philly),
    "ldms": ("ldms", ldms),
    "batsim": ("batsim", batsim),
    "prometheus": ("prometheus", prometheus),
    "node list": (
        "slurm-nodes",
        lambda jobs: "".join(
            f"NodeName={','.join(job.hosts)} CPUs=4\n" for job in jobs
        ),
    ),
}
ODD = "|;,:=\"'[]{}#.-09aé\n\t \0\udcff"


# These name no nodes, or nodes of their own.
OTHERS = ("node list", "batsim", "prometheus")


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in OTHERS])
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    jobs = data.draw(job_lists())
    kind, write = WRITERS[name]
    assert np.array_equal(
        idle_seconds_of(ingest(kind, write(jobs))), idle_seconds(jobs)
    )


@pytest.mark.parametrize("older", [False, True])
@given(jobs=job_lists())
def test_round_trip_of_numbered_hosts(older: bool, jobs: list[SyntheticJob]) -> None:
    text = batsim(jobs)
    if older:  # as evalys has it of Batsim before 2.0
        text = text.replace("job_id,", "jobID,").replace("_resources", "_processors")
    assert detect(text.partition("\n")[0]) == "batsim"
    hosts = [f"n{place}" for place in range(len(HOSTS))]
    trace = ingest("batsim", text, hosts=hosts)
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


@given(jobs=job_lists())
def test_round_trip_of_counts(jobs: list[SyntheticJob]) -> None:
    idle = idle_seconds_of(ingest("prometheus", prometheus(jobs)))
    assert np.array_equal(idle.sum(axis=0), idle_seconds(jobs).sum(axis=0))


@given(
    jobs=job_lists(),
    tz=st.sampled_from(["Europe/Berlin", "America/Chicago", "Asia/Kolkata"]),
)
def test_round_trip_in_local_time(jobs: list[SyntheticJob], tz: str) -> None:
    assert np.array_equal(
        idle_seconds_of(ingest("slurm", sacct(jobs, tz=tz), tz=tz)), idle_seconds(jobs)
    )


@given(jobs=job_lists())
def test_columns_named_by_the_user_are_as_good_as_a_header(
    jobs: list[SyntheticJob],
) -> None:
    header, _, rows = sacct(jobs).partition("\n")
    fields = tuple(header.split("|"))
    read = ingest("slurm", rows, settings=Settings(fields=fields))
    assert np.array_equal(idle_seconds_of(read), idle_seconds(jobs))
    plain = [
        job for job in jobs if job.style in (0, 1, 3, 6)
    ]  # -p: a delimiter after the last column too
    rows = sacct(plain).partition("\n")[2].replace("\n", "|\n")
    read = (
        ingest("slurm", rows, settings=Settings(fields=fields))
        if plain
        else ingest("slurm", sacct(plain))
    )
    assert np.array_equal(idle_seconds_of(read), idle_seconds(plain))


@given(jobs=job_lists())
def test_the_order_of_the_rows_does_not_matter(jobs: list[SyntheticJob]) -> None:
    one, other = ingest("slurm", sacct(jobs)), ingest("slurm", sacct(jobs[::-1]))
    for column in ("times", "joined", "joined_at", "left", "left_at"):
        assert np.array_equal(getattr(one, column), getattr(other, column))
    assert one.nodes == other.nodes


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.data())
def test_damaged_logs_are_read_or_refused(name: str, data: st.DataObject) -> None:
    kind, write = WRITERS[name]
    survives(kind, data.draw(damages(write(data.draw(job_lists())))))


@pytest.mark.parametrize("kind", format_names())
@given(
    text=st.text(ODD, max_size=300)
    | st.binary(max_size=300).map(lambda b: b.decode("utf-8", "surrogateescape"))
)
def test_any_text_is_read_or_refused(kind: str, text: str) -> None:
    survives(kind, text)


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.data())
def test_any_reader_survives_the_logs_of_others(name: str, data: st.DataObject) -> None:
    survives(
        data.draw(st.sampled_from(list(format_names()))),
        WRITERS[name][1](data.draw(job_lists())),
    )


def test_all_hosts_are_seen_to_be_idle_where_no_job_is() -> None:
    job = SyntheticJob(HOSTS[:1], 0, 10, 0)
    assert (
        idle_seconds_of(ingest("slurm", sacct([job]))).sum()
        == idle_seconds([job]).sum()
        == 5 * 120 - 10
    )
