"""Measured applications, and jobs of Pollux' artifact that train them: their speed, and what their agent decides."""

import gzip
import itertools
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from toy_application import EPOCHS, step_s, workload, write_application

from bft.models import JobTable, noise_scale
from bft.models.speed.applications import canonical, read_application
from bft.models.speed.dynamics import (
    SECOND_NS,
    ApplicationProfile,
    split_batch,
)
from bft.models.speed.goodput import (
    BatchLimits,
    Observations,
    _Objective,
    fit_throughput,
)
from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay import Decision, EqualShare, Replay, Rules, State, Traits, always_idle

APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")


def step(nodes: int, replicas: int, atomic: int) -> float:
    """Linear, so that interpolation must be exact."""
    return 0.1 * nodes + 0.02 * replicas + 0.001 * atomic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["placement,local_bsz,step_time,sync_time"]
    for ring in ("1", "2", "3", "4", "11", "12", "22", "33", "44", "111", "222", "444"):
        nodes, replicas = len(ring), sum(map(int, ring))
        lines += [
            f"{ring},{m},{step(nodes, replicas, m)},{0.05 * nodes}" for m in (8, 16, 32)
        ]
    (tmp_path / "placements.csv").write_text("\n".join(lines) + "\n")
    for batch, factor in ((32, 1), (128, 3)):
        rows = [
            f"{100 * k + batch / 64},{100 * k * 32 // batch},1,{k},{factor * k}"
            for k in (1, 2, 3)
        ]
        text = "progress,iteration,metric,grad_sqr,grad_var\n" + "\n".join(rows) + "\n"
        (tmp_path / f"validation-{batch}.csv.gz").write_bytes(
            gzip.compress(text.encode())
        )
    return tmp_path


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any), st.integers(0, 5)
)
def test_rotations_and_empty_nodes_are_one_placement(
    ring: list[int], turn: int
) -> None:
    turn %= len(ring)
    assert (
        canonical(ring[turn:] + ring[:turn]) == canonical(ring) == canonical([*ring, 0])
    )
    assert sum(canonical(ring)) == sum(ring)
    assert canonical(ring) <= tuple(count for count in ring if count)


def test_step_times_measured_between_and_beyond(folder: Path) -> None:
    application = read_application(folder)
    measured = application.step_time([0, 2, 1], 16)
    assert measured == (step(2, 3, 16), 0.1, "measured")
    assert measured.gradient_s == pytest.approx(step(2, 3, 16) - 0.1)
    assert application.step_time([2, 1], 24).step_s == pytest.approx(step(2, 3, 24))
    between = application.step_time([1, 3, 1], 20)  # 113 was not measured
    assert between.source == "interpolated"
    assert between.step_s == pytest.approx(step(3, 5, 20))
    for ring, atomic in (([1, 2], 64), ([4] * 9, 16)):
        beyond = application.step_time(ring, atomic)
        assert beyond.source == "modelled"
        assert 0 < beyond.sync_s < beyond.step_s


def test_too_few_placements_to_interpolate_are_modelled(folder: Path) -> None:
    (folder / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,8,1,0\n2,8,1.1,0.1\n"
    )
    assert read_application(folder).step_time([1, 1], 8).source == "modelled"


def test_progress_and_noise(folder: Path) -> None:
    application = read_application(folder)
    assert application.limits.initial == 32
    assert application.epoch_ends.tolist() == [100.5, 200.5, 300.5]
    assert application.total_progress == 300.5
    assert [application.epoch_at(p) for p in (0, 100.4, 100.5, 300.5, 1e9)] == [
        0,
        0,
        1,
        3,
        3,
    ]
    assert application.gradient(1, 32) == (2, 2)
    assert application.gradient(1, 80) == (2, 4)  # half way between the batch sizes
    assert application.gradient(9, 1e9) == (3, 9)
    assert noise_scale(*application.gradient(1, 80), application.limits.initial) == 64
    assert application.samples(32) == 300 * 32
    assert application.samples(128) == 75 * 128


def test_a_curve_at_a_fixed_batch(folder: Path) -> None:
    application = read_application(folder)
    curve = application.curve(batch=64, max_units=100, units_per_node=4)
    assert curve.last == 8  # 64 / 8 samples at least
    assert curve.at(2) == pytest.approx(64 / step(1, 2, 32))
    assert curve.at(8) == pytest.approx(64 / step(2, 8, 8))
    # Two passes of 32 on one unit.
    assert curve.at(1) == pytest.approx(64 / (2 * step(1, 1, 32) - 0.05))


def test_missing_files_are_reported(folder: Path) -> None:
    for path in folder.glob("validation-*"):
        path.unlink()
    refused(r"no validation-M\.csv", read_application, folder)
    (folder / "placements.csv").unlink()
    refused(r"no placements\.csv", read_application, folder)
    refused("expected a folder", read_application, folder / "nowhere")


@pytest.mark.reference
@pytest.mark.parametrize("name", APPLICATIONS)
def test_published_applications(reference: Path, name: str) -> None:
    folder = reference / "pollux" / "traces" / name
    application = read_application(folder)
    frame = pd.read_csv(folder / "placements.csv.gz", dtype={"placement": str})
    for row in frame.iloc[:: max(len(frame) // 100, 1)].itertuples():
        found = application.step_time(
            [int(digit) for digit in str(row.placement)], row.local_bsz
        )
        assert found == (row.step_time, row.sync_time, "measured")
    # Every placement of 4 nodes × 4 units is a rotation of one that was measured.
    for ring in itertools.product(range(5), repeat=4):
        if any(ring):
            assert canonical(ring) in application.steps
    # Whole nodes up to the size of the published cluster were measured or lie between measured ones.
    least = application.limits.atomic_min
    assert {application.step_time([4] * n, least).source for n in range(1, 17)} <= {
        "measured",
        "interpolated",
    }
    middle = application.epoch_at(application.total_progress / 2)
    half = application.gradient(middle, application.limits.initial)
    assert np.isfinite(noise_scale(*half, application.limits.initial))
    assert application.epoch_at(application.total_progress) == len(
        application.epoch_ends
    )


@pytest.fixture(scope="module")
def applications(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pollux") / "traces"
    write_application(folder / "toy")
    return folder


# --- reading


def test_a_row_becomes_a_job(applications: Path) -> None:
    (job,) = workload(applications, "a,7,toy,2,128")
    assert (job.name, job.tsub_ns, job.model, job.batch_size) == (
        "a",
        7 * SECOND_NS,
        "toy",
        128.0,
    )
    assert (job.jmin, job.request, job.jmax) == (1, 2, 512 // 16)
    assert job.pmax == EPOCHS[-1] * 64


def test_the_curve_takes_as_long_as_the_training(applications: Path) -> None:
    """At the user's batch of 128 on 2 units of a node: 64 each, 0.84 s a step, each worth 301 / 151 steps at 64."""
    (job,) = workload(applications, "a,0,toy,2,128")
    assert job.pmax / job.rates[2] == pytest.approx(EPOCHS[-1] / (301 / 151) * 0.84)
    assert job.rates[32] == job.rates[8]  # replicas would get fewer than 16 samples
    assert job.jmax <= job.scalability.last


def test_invalid_files_are_named(applications: Path, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    refused("no such file", read_pollux_jobs, table, applications)
    table.write_text("name,time,application,num_replicas,batch_size\na,0,toy,1,64\n")
    refused("no folder `traces`", read_pollux_jobs, table)
    refused("no folder toy", read_pollux_jobs, table, tmp_path)


def test_a_table_beside_the_folders_states_speed_and_restart_seconds(
    tmp_path: Path,
) -> None:
    traces = tmp_path / "traces"
    write_application(traces / "toy")
    (traces / "applications.csv").write_text(
        "application,slowdown,restart_s,policy_restart_s,max_local_bsz\ntoy,1.5,50,30,32\n"
    )
    table = workload(traces, "a,0,toy,2,128")
    (job,) = table
    assert (job.restart_s, job.policy_restart_s) == (50.0, 30.0)
    assert table.notes == (
        "applications.csv states slowdowns and restart seconds by application",
    )
    as_measured = read_application(traces / "toy", atomic_max=32)
    assert job.profile.application.limits == as_measured.limits
    rate, _ = job.profile.start().rate((2,), 0.0, 0)
    unchanged = ApplicationProfile(as_measured, 128).start().rate((2,), 0.0, 0)[0]
    assert rate == pytest.approx(unchanged / 1.5)


def test_measurements_by_kind_of_units(tmp_path: Path) -> None:
    """Units of kind `fast` are 4 times as fast; `slow` has no measurements, and goes as measured without a kind."""
    traces = tmp_path / "traces"
    write_application(traces / "toy", fast=4.0)
    (traces / "applications.csv").write_text(
        "application,max_local_bsz,max_local_bsz@fast\ntoy,64,32\n"
    )
    path = Path(workload(traces, "a,0,toy,2,128").source)
    (job,) = read_pollux_jobs(path, traces, units_per_node={"slow": 4, "fast": 8})
    assert job.profile.on("fast").limits.atomic_max == 32
    assert job.profile.on("slow").limits.atomic_max == 64
    assert job.profile.on("fast").single_rate == pytest.approx(4 * 64 / 0.74)
    assert list(job.by_kind) == ["slow", "fast"]
    assert job.on("fast").rates[4] == pytest.approx(4 * job.on("slow").rates[4])
    # 8 units are on two nodes of 4, but on one of 8.
    assert job.on("fast").rates[8] > 4.5 * job.on("slow").rates[8]
    rates = [
        job.profile.start().rate((4,), 0.0, 0, kind=kind)[0]
        for kind in ("", "slow", "fast")
    ]
    assert rates == pytest.approx([rates[0], rates[0], 4 * rates[0]])


def test_what_tables_lack_is_said(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    write_application(traces / "toy", fast=4.0)
    write_application(traces / "other")
    assert workload(traces, "a,0,toy,2,64").notes == ()
    (note,) = workload(traces, "a,0,toy,2,64", "b,0,other,2,64").notes
    assert (
        note
        == "other was not measured on kind fast: there it goes as measured without a kind"
    )
    (traces / "applications.csv").write_text("application,slowdown\nother,2\n")
    table = workload(traces, "a,0,toy,2,128")
    assert table.notes[0].endswith("it has no row for toy")
    assert table.jobs[0].restart_s is None
    # The layout of the artifact is found.
    assert len(read_pollux_jobs(table.source)) == 1


# --- batches


@given(st.integers(1, 64), st.integers(64, 4096))
def test_a_batch_is_shared_out_within_memory(replicas: int, batch: int) -> None:
    limits = BatchLimits(64, 4096, 1, 100)
    split = split_batch(batch, replicas, limits)
    whole = replicas * split.atomic * (split.accumulation + 1)
    assert 1 <= split.atomic <= limits.atomic_max
    assert whole <= max(limits.most, replicas)
    assert whole >= batch or whole > limits.most - replicas * (split.accumulation + 1)
    if replicas == 1 and batch > 64:
        assert split.accumulation >= 1
    elif batch <= replicas * limits.atomic_max:
        assert split.accumulation == 0


# --- speed


def test_true_speed_by_hand(applications: Path) -> None:
    """2 units of a node at a batch of 128: the first epoch of 1000 steps ends after 1000 / gain steps of 0.84 s."""
    (job,) = workload(applications, "a,0,toy,2,128")
    one = job.profile.start()
    rate, until = one.rate((2,), 0.0, 0)
    step, _ = step_s("2", 64)
    assert rate == pytest.approx(64 * (301 / 151) / step, rel=1e-9)
    assert until == pytest.approx(1000 / (301 / 151) * step * SECOND_NS, abs=2)
    # Asked again it answers the same, and hits the end of the epoch.
    again, same = one.rate((2,), rate * (until // 3) / SECOND_NS, until // 3)
    assert (again, same) == (pytest.approx(rate, rel=1e-12), until)
    _, after = one.rate((2,), rate * until / SECOND_NS, until)
    assert after == pytest.approx(2 * until, abs=4)
    # Work that was lost is done again: the epoch ends later.
    lost = job.profile.start()
    lost.rate((2,), 0.0, 0)
    _, after = lost.rate((2,), rate * (until // 2) / SECOND_NS - rate * 10, until // 2)
    assert after == pytest.approx(until + 10 * SECOND_NS, abs=10)


class Moves(EqualShare):
    """One of these numbers of units every 100 s, in turn."""

    def __init__(self, sizes: list[int], *, tunes: bool = False) -> None:
        self.sizes, self.kind = sizes, Traits(migrates=True, tunes=tunes)

    def decide(self, state: State) -> Decision:
        at = state.time_ns // (100 * SECOND_NS)
        count = self.sizes[at % len(self.sizes)]
        return Decision((count,), wake_ns=(at + 1) * 100 * SECOND_NS)


def replayed(jobs: JobTable, policy: Moves) -> Any:
    """The record of the job."""
    trace = always_idle(5, 0, 10**6 * SECOND_NS, units_per_node=4)
    return Replay(trace, jobs, policy, Rules()).run().records[0]


@pytest.mark.parametrize("whole", [True, False])
def test_whole_seconds(applications: Path, whole: bool) -> None:
    """An epoch of 1000 steps takes 421.4 s: the three end at 421, 842 and 1263 s, or at 1264.2 s."""
    epoch_s = 1000 / (301 / 151) * step_s("2", 64)[0]
    jobs = workload(applications, "a,0,toy,2,128", whole_seconds=whole)
    end_s = 3 * (round(epoch_s) if whole else epoch_s)
    within = 0 if whole else 10
    found = replayed(jobs, Moves([2])).finish_ns
    assert found == pytest.approx(end_s * SECOND_NS, abs=within)


@examples(15)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8), st.booleans(), st.booleans()
)
def test_progress_is_conserved_however_often_it_is_moved(
    applications: Path, sizes: list[int], tunes: bool, whole: bool
) -> None:
    """A job moved every 100 s finishes, with exactly its work done."""
    jobs = workload(applications, "a,0,toy,2,128", whole_seconds=whole)
    record = replayed(jobs, Moves(sizes, tunes=tunes))
    assert record.finish_ns is not None
    assert record.work == pytest.approx(jobs.jobs[0].pmax, rel=1e-9)


# --- the agent


def test_the_agent_learns_what_it_has_run_only(applications: Path) -> None:
    (job,) = workload(applications, "a,0,toy,2,128")
    one = job.profile.start(tunes=True)
    assert one.goodput is None
    assert one.profiled == 0
    rate, until = one.rate((2,), 0.0, 0)
    assert until == 60 * SECOND_NS  # the agent looks again
    assert one.goodput is None  # asked at the start: nothing has run
    assert one.split.atomic == 32  # M0 = 64 on 2 replicas until something is known
    one.rate((2, 2), rate * 60, until)
    assert one.profiled == 2
    assert list(one.observed) == [("", 1, 2, 32)]
    assert one.goodput.pgns == 300 * 64
    # One batch size seen: half of 0.42 s is taken for constant.
    assert one.goodput.parameters.alpha_c == pytest.approx(0.42 / 2)


def test_the_agent_knows_a_kind_of_units_only_when_it_has_run_there(
    tmp_path: Path,
) -> None:
    write_application(tmp_path / "traces" / "toy", fast=4.0)
    (job,) = workload(tmp_path / "traces", "a,0,toy,2,128")
    one = job.profile.start(tunes=True)
    rate, until = one.rate((1,), 0.0, 0, kind="slow")
    progress, later = rate * until / SECOND_NS, 2 * until
    rate, _ = one.rate((4,), progress, until, kind="fast")
    assert one.goodput_on("fast") is None
    assert one.profiled == 1
    # What it knew on the slow kind does not choose the batch here: it begins with M0.
    assert one.split == (16, 0)
    one.rate((4,), progress + rate * (later - until) / SECOND_NS, later, kind="fast")
    slow, fast = one.goodput_on("slow"), one.goodput_on("fast")
    assert slow.pgns == fast.pgns
    assert float(slow.parameters.gradient_time(64)) == pytest.approx(0.74)
    assert float(fast.parameters.gradient_time(16)) == pytest.approx(0.26 / 4)
    assert one.goodput == fast


def test_a_job_that_may_not_tune_keeps_the_users_batch(applications: Path) -> None:
    (job,) = workload(applications, "a,0,toy,2,256")
    one = job.profile.start(tunes=False)
    one.rate((4,), 0.0, 0)
    assert one.split == (64, 0)
    one.rate((1,), 0.0, 0)
    assert one.split == (64, 3)


def test_memory_survives_a_checkpoint(tmp_path: Path) -> None:
    write_application(tmp_path / "traces" / "toy", fast=4.0)
    (job,) = workload(tmp_path / "traces", "a,0,toy,2,128")
    one = job.profile.start(tunes=True)
    progress, now = 0.0, 0
    for kind, *placement in (("", 1), ("slow", 2), ("fast", 2, 2), ("", 4, 4)):
        rate, until = one.rate(tuple(placement), progress, now, kind=kind)
        assert until is not None
        progress, now = progress + rate * (until - now) / SECOND_NS, until
    other = job.profile.start(tunes=True)
    other.restore(json.loads(json.dumps(one.state())))
    assert other.goodput == one.goodput
    assert other.rate((4, 4), progress, now) == one.rate((4, 4), progress, now)
    assert other.state() == one.state()


@pytest.mark.reference
def test_published_applications_are_read_whole(reference: Path) -> None:
    jobs = read_pollux_jobs(reference / "pollux" / "workloads" / "workload-6.csv")
    assert len(jobs) == 160
    assert {job.model for job in jobs} == {
        "bert",
        "cifar10",
        "deepspeech2",
        "imagenet",
        "ncf",
        "yolov3",
    }
    assert {job.jmax for job in jobs if job.model == "ncf"} == {1}
    assert all(np.isfinite(job.rates).all() and job.rates[1] > 0 for job in jobs)


@pytest.mark.reference
def test_an_agents_fit_stays_within_bounds(reference: Path) -> None:
    """The observations of a job for which the fit's line search once overflowed."""
    application = read_application(reference / "pollux" / "traces" / "cifar10")
    seen = {
        (1,): [128],
        (1, 1): [140, 121, 199, 213, 229, 246, 264, 283, 304, 326],
        (2, 1): [289, 383, 411],
        (2,): [264, 403, 433, 464],
        (3,): [441, 508, 585, 628, 674, 723, 776],
    }
    runs = [
        (placement, atomic) for placement, batches in seen.items() for atomic in batches
    ]
    taken = [application.step_time(placement, atomic) for placement, atomic in runs]
    observed = Observations(
        np.array([float(len(placement)) for placement, _ in runs]),
        np.array([float(sum(placement)) for placement, _ in runs]),
        np.array([float(atomic) for _, atomic in runs]),
        np.array([one.step_s for one in taken]),
        np.array([one.gradient_s for one in taken]),
    )
    for published in (False, True):
        fitted = fit_throughput(observed, published=published)
        value, _ = _Objective(observed)(np.array(astuple(fitted)))
        assert value < 0.1


@pytest.mark.reference
def test_efficiency_and_fits_of_the_published_applications_are_drawn(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from fit_goodput import draw, efficiencies

    from bft.models.speed.applications import read_application

    cifar = reference / "pollux" / "traces" / "cifar10"
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "cifar10").symlink_to(cifar)
    (file,) = draw(tmp_path / "traces", tmp_path / "figures")
    assert file.read_bytes().startswith(b"\x89PNG")
    table = efficiencies(read_application(cifar))
    assert (table.iloc[:, 0] == 1).all()  # the initial batch
    assert table.gt(0).all(axis=None)
    assert table.le(1).all(axis=None)
