"""Grid Engine's accounting file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import (
    BEGIN_S,
    SyntheticJob,
    damages,
    idle_seconds,
    idle_seconds_of,
    ingest,
    job_lists,
    read_into,
    read_lines,
    sge,
    survives,
)

from bft.datasets import generate_log
from bft.models import InputError
from bft.replay.logs import Collector, Diagnosis


def record(
    host: str = "a",
    start: object = BEGIN_S,
    end: object = BEGIN_S + 9,
    job: object = 7,
    pe: str = "NONE:1:0",
) -> str:
    return f"q:{host}:g:u:name:{job}:sge:0:{BEGIN_S}:{start}:{end}:0:0:1{':0' * 19}:{pe}:0:0:0:-l h_rt=1:0:NONE:0:0:0"


# Written by sge_qmaster 8.1.9 (Debian 12): a job on n3 alone that asked for two hosts, and one whose tasks Grid Engine
# started on n1 and n4 (qrsh -inherit).
REAL = """\
# Version: 8.1.9
#
# DO NOT MODIFY THIS FILE MANUALLY!
#
all.q:n3:root:root:sleep:2:sge:0:1795444437:1795444438:1795444441:0:0:3:0.003876:0.006770:4808.000000:0:0:0:0:633:0:0:0.000000:32:0:0:0:16:9:NONE:defaultdepartment:mpi:8:0:0.010646:0.000000:0.000811:-pe mpi 8:0.000000:NONE:26824704.000000:0:0
all.q:n1:root:root:tight.sh:1:sge:0:1795444439:1795444439:1795444444:0:0:5:0.002624:0.009053:4832.000000:0:0:0:0:707:2:0:128.000000:64:0:0:0:7:3:NONE:defaultdepartment:mpi:8:0:0.011677:0.000000:0.000038:-pe mpi 8:0.000000:1.n1:5836800.000000:0:0
all.q:n4:root:root:tight.sh:1:sge:0:1795444439:1795444439:1795444445:0:0:6:0.003024:0.007892:4792.000000:0:0:0:0:703:0:0:0.000000:40:0:0:0:5:3:NONE:defaultdepartment:mpi:8:0:0.010916:0.000000:0.000038:-pe mpi 8:0.000000:1.n4:5918720.000000:0:0
all.q:n1:root:root:tight.sh:1:sge:0:1795444437:1795444438:1795444445:0:0:7:0.109973:0.029575:18184.000000:0:0:0:0:14651:1:0:48.000000:40:0:0:0:321:136:NONE:defaultdepartment:mpi:8:0:0.139548:0.000000:0.001220:-pe mpi 8:0.000000:NONE:24547328.000000:0:0
"""  # noqa: E501


busy = partial(read_lines, "sge")


@given(job_lists())
def test_round_trip(jobs: list[SyntheticJob]) -> None:
    assert np.array_equal(idle_seconds_of(ingest("sge", sge(jobs))), idle_seconds(jobs))


@given(st.data())
def test_damaged_logs_are_read_or_refused(data: st.DataObject) -> None:
    survives("sge", data.draw(damages(sge(data.draw(job_lists())))))


def test_milliseconds() -> None:
    assert busy(record(start=BEGIN_S * 1000 + 250, end=f"{BEGIN_S + 9}750"))[0] == {
        ("a", 0.25, 9.75)
    }


@pytest.mark.parametrize(
    "job",
    [
        {"start": 0, "end": 0},
        {"end": 0},
        {"start": "-/-", "end": "-/-"},
        {"host": "UNKNOWN"},
    ],
)
def test_jobs_that_never_ran_are_left_out(job: dict[str, object]) -> None:
    found, diagnosis = busy(record(**job))  # type: ignore[arg-type]
    assert not found
    assert list(diagnosis.left_out) == [
        "a job that never ran: no start, no end or no host"
    ]


def test_a_rescheduled_job_ran_twice() -> None:
    assert busy(record("a"), record("b", BEGIN_S + 20, BEGIN_S + 30))[0] == {
        ("a", 0, 9),
        ("b", 20, 30),
    }


def test_a_parallel_job_of_one_record_may_have_more_hosts() -> None:
    _, diagnosis = busy(
        record(pe="mpi:64:0"),
        record(pe="mpi:64:1"),
        record("b", pe="mpi:64:1"),
        record(pe="smp:1:0", job=8),
    )
    ((told, tally),) = diagnosis.notes.items()
    assert "names one host only" in told
    assert (tally.count, tally.line, tally.detail) == (1, 1, "job 7, 64 slots")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (record(start="x"), "start_time, field 10, is no time"),
        (record(end="1612900000123456"), "end_time, field 11, is no time"),
        (record(end=BEGIN_S - 1), "ends before it starts"),
        (record(job="x"), "job_number"),
        (record(host="a b"), "no name of a host"),
        (record(host=""), "no name of a host"),
    ],
)
def test_unusable_rows_are_reported(text: str, reason: str) -> None:
    found, diagnosis = busy(text)
    assert not found
    assert [reason in told for told in diagnosis.skipped] == [True], diagnosis.skipped
    with pytest.raises(InputError, match=r"log\.0: line 1: "):
        read_into(Collector(), Diagnosis(strict=True), "sge", text)


def test_a_file_of_something_else_is_refused() -> None:
    with pytest.raises(
        InputError,
        match="line 1 is no record of Grid Engine, with at least 13 fields: 3 fields",
    ):
        busy("a:b:c", "dd")


@pytest.mark.reference
def test_published_accounting_log(reference: Path) -> None:
    text = (reference / "logs" / "sge" / "xdmod-unit-accounting.log").read_text()
    found, diagnosis = busy(*text.splitlines())
    assert (diagnosis.rows, diagnosis.used) == (2, 2)
    assert found == {("testhost", 1311095354 - BEGIN_S, 1311095414 - BEGIN_S)}


def test_a_summary_is_refused() -> None:
    """Ten jobs of MPI that want more slots than any job on one host has, and none of which names a second host."""
    smp = [record(job=100, pe="smp:32:0")]
    wide = [record(job=number, pe="mpi:64:0") for number in range(10)]
    with pytest.raises(
        InputError, match=r"line 2: 10 jobs of MPI have more slots .* \(32\)"
    ):
        busy(*smp, *wide)
    busy(*smp, *wide[:9])
    busy(*smp, *wide, *(record("b", job=number, pe="mpi:64:0") for number in (8, 9)))
    busy(*smp, *(record(job=number, pe="mpi:32:0") for number in range(10)))
    diagnosis = Diagnosis(allow_few=True)
    read_into(Collector(), diagnosis, "sge", "\n".join([*smp, *wide]))
    assert "their other hosts look idle" in "".join(diagnosis.warnings())


def test_records_of_a_real_grid_engine() -> None:
    found, diagnosis = busy(*REAL.splitlines())
    seconds = {(host, *(round(one + BEGIN_S) for one in span)) for host, *span in found}
    assert seconds == {
        ("n1", 1_795_444_438, 1_795_444_445),
        ("n3", 1_795_444_438, 1_795_444_441),
        ("n4", 1_795_444_439, 1_795_444_445),
    }
    ((told, tally),) = diagnosis.notes.items()
    assert "names one host only" in told
    assert tally.detail == "job 2, 8 slots"


def test_a_generated_log_has_the_fields_of_a_real_one() -> None:
    def kinds(record: str) -> list[bool]:
        """Which fields are numbers, but for those that name a job, its category and its task."""
        fields = record.split(":")
        fields[4] = fields[39] = fields[41] = ""
        return [field.replace(".", "").isdecimal() for field in fields]

    *_, real = REAL.splitlines()
    made = generate_log("sge", nodes=8, days=1).splitlines()
    assert made
    assert all(kinds(record) == kinds(real) for record in made)
