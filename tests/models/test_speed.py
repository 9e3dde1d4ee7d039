"""Measured applications, and fits of speed: step times, goodput, its best batch and laws, by second formulations."""

import gzip
import itertools
import json
import math
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from agreeing import agree
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from toy_application import EPOCHS, step_s, workload, write_application

from bft.models import (
    Curve,
    JobTable,
    OnlineCurve,
    noise_scale,
    read_application,
    read_pollux_jobs,
)
from bft.models.speed.applications import canonical
from bft.models.speed.dynamics import (
    SECOND_NS,
    ApplicationProfile,
    split_batch,
)
from bft.models.speed.goodput import (
    BatchLimits,
    Goodput,
    Observations,
    ThroughputParameters,
    _Objective,
    adascale_gain,
    fit_throughput,
    goodput_table,
    replica_cap,
    speedup_table,
)
from bft.models.speed.scalability import (
    SIZES_NEEDED,
    Kind,
    Throughputs,
    fit_scalability,
    read_throughputs,
)
from bft.replay import Decision, EqualShare, Replay, Rules, State, Traits, always_idle

APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")


def step(nodes: int, replicas: int, atomic: int) -> float:
    """Linear, so that interpolation must be exact."""
    return 0.1 * nodes + 0.02 * replicas + 0.001 * atomic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rings = ("1", "2", "3", "4", "11", "12", "22", "33", "44", "111", "222", "444")
    lines = ["placement,local_bsz,step_time,sync_time"]
    lines += [
        f"{ring},{m},{step(len(ring), sum(map(int, ring)), m)},{0.05 * len(ring)}"
        for ring in rings
        for m in (8, 16, 32)
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
    ends = [100.5, 200.5, 300.5]
    agree(
        application,
        {"limits.initial": 32, "epoch_ends": ends, "total_progress": ends[-1]},
    )
    epochs = {0: 0, 100.4: 0, 100.5: 1, 300.5: 3, 1e9: 3}
    assert {at: application.epoch_at(at) for at in epochs} == epochs
    # 80 is half way between the batch sizes.
    gradients = {(1, 32): (2, 2), (1, 80): (2, 4), (9, 1e9): (3, 9)}
    assert {at: application.gradient(*at) for at in gradients} == gradients
    assert noise_scale(2, 4, 32) == 64
    assert (application.samples(32), application.samples(128)) == (300 * 32, 75 * 128)


def test_a_curve_at_a_fixed_batch(folder: Path) -> None:
    curve = read_application(folder).curve(batch=64, max_units=100, units_per_node=4)
    assert curve.last == 8  # 64 / 8 samples at least
    # Two passes of 32 on one unit.
    assert 64 / curve.at([1, 2, 8]) == pytest.approx(
        [2 * step(1, 1, 32) - 0.05, step(1, 2, 32), step(2, 8, 8)]
    )


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
        assert application.step_time(
            [int(digit) for digit in str(row.placement)], row.local_bsz
        ) == (row.step_time, row.sync_time, "measured")
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
    half = application.gradient(
        application.epoch_at(application.total_progress / 2), application.limits.initial
    )
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
    stated = {"name": "a", "tsub_ns": 7 * SECOND_NS, "model": "toy", "batch_size": 128}
    sizes = {"jmin": 1, "request": 2, "jmax": 512 // 16}
    agree(job, {**stated, **sizes, "pmax": EPOCHS[-1] * 64})


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
    traces = write_application(tmp_path / "traces" / "toy").parent
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
    slowed, unchanged = (
        profile.start().rate((2,), 0.0, 0)[0]
        for profile in (job.profile, ApplicationProfile(as_measured, 128))
    )
    assert slowed == pytest.approx(unchanged / 1.5)


def test_measurements_by_kind_of_units(tmp_path: Path) -> None:
    """Units of kind `fast` are 4 times as fast; `slow` has no measurements, and goes as measured without a kind."""
    traces = write_application(tmp_path / "traces" / "toy", fast=4.0).parent
    (traces / "applications.csv").write_text(
        "application,max_local_bsz,max_local_bsz@fast\ntoy,64,32\n"
    )
    path = Path(workload(traces, "a,0,toy,2,128").source)
    (job,) = read_pollux_jobs(path, traces, units_per_node={"slow": 4, "fast": 8})
    assert list(job.by_kind) == ["slow", "fast"]
    of_kinds = [job.profile.on(kind) for kind in job.by_kind]
    assert [each.limits.atomic_max for each in of_kinds] == [64, 32]
    assert of_kinds[1].single_rate == pytest.approx(4 * 64 / 0.74)
    faster = job.on("fast").rates[[4, 8]] / job.on("slow").rates[[4, 8]]
    # 8 units are on two nodes of 4, but on one of 8.
    assert faster[0] == pytest.approx(4)
    assert faster[1] > 4.5
    rates = [
        job.profile.start().rate((4,), 0.0, 0, kind=kind)[0]
        for kind in ("", "slow", "fast")
    ]
    assert rates == pytest.approx([rates[0], rates[0], 4 * rates[0]])


def test_what_tables_lack_is_said(tmp_path: Path) -> None:
    traces = write_application(tmp_path / "traces" / "toy", fast=4.0).parent
    write_application(traces / "other")
    assert workload(traces, "a,0,toy,2,64").notes == ()
    assert workload(traces, "a,0,toy,2,64", "b,0,other,2,64").notes == (
        "other was not measured on kind fast: there it goes as measured without a kind",
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


def replayed(jobs: JobTable, policy: Moves):
    trace = always_idle(5, 0, 10**6 * SECOND_NS, units_per_node=4)
    return Replay(trace, jobs, policy, Rules()).run().records[0]


@pytest.mark.parametrize("whole", [True, False])
def test_whole_seconds(applications: Path, whole: bool) -> None:
    """An epoch of 1000 steps takes 421.4 s: the three end at 421, 842 and 1263 s, or at 1264.2 s."""
    epoch_s = 1000 / (301 / 151) * step_s("2", 64)[0]
    jobs = workload(applications, "a,0,toy,2,128", whole_seconds=whole)
    end_s = 3 * (round(epoch_s) if whole else epoch_s)
    assert replayed(jobs, Moves([2])).finish_ns == pytest.approx(
        end_s * SECOND_NS, abs=(0 if whole else 10)
    )


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
    assert (one.goodput, one.profiled) == (None, 0)
    rate, until = one.rate((2,), 0.0, 0)
    assert until == 60 * SECOND_NS  # the agent looks again
    # Asked at the start, nothing has run: M0 = 64 on 2 replicas until something is known.
    agree(one, {"goodput": None, "split.atomic": 32})
    one.rate((2, 2), rate * 60, until)
    assert (one.profiled, list(one.observed)) == (2, [("", 1, 2, 32)])
    # One batch size seen: half of 0.42 s is taken for constant.
    half = pytest.approx(0.42 / 2)
    agree(one.goodput, {"pgns": 300 * 64, "parameters.alpha_c": half})


def test_the_agent_knows_a_kind_of_units_only_when_it_has_run_there(
    tmp_path: Path,
) -> None:
    traces = write_application(tmp_path / "traces" / "toy", fast=4.0).parent
    (job,) = workload(traces, "a,0,toy,2,128")
    one = job.profile.start(tunes=True)
    rate, until = one.rate((1,), 0.0, 0, kind="slow")
    progress, later = rate * until / SECOND_NS, 2 * until
    rate, _ = one.rate((4,), progress, until, kind="fast")
    # What it knew on the slow kind does not choose the batch here: it begins with M0.
    assert (one.goodput_on("fast"), one.profiled, one.split) == (None, 1, (16, 0))
    one.rate((4,), progress + rate * (later - until) / SECOND_NS, later, kind="fast")
    slow, fast = one.goodput_on("slow"), one.goodput_on("fast")
    assert (slow.pgns, one.goodput) == (fast.pgns, fast)
    assert float(slow.parameters.gradient_time(64)) == pytest.approx(0.74)
    assert float(fast.parameters.gradient_time(16)) == pytest.approx(0.26 / 4)


def test_a_job_that_may_not_tune_keeps_the_users_batch(applications: Path) -> None:
    (job,) = workload(applications, "a,0,toy,2,256")
    one = job.profile.start(tunes=False)
    for units, accumulation in ((4, 0), (1, 3)):
        one.rate((units,), 0.0, 0)
        assert one.split == (64, accumulation)


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


@pytest.mark.slow
@pytest.mark.reference
def test_published_applications_are_read_whole(reference: Path) -> None:
    jobs = read_pollux_jobs(reference / "pollux" / "workloads" / "workload-6.csv")
    assert (len(jobs), {job.model for job in jobs}) == (160, {*APPLICATIONS})
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
    rows = [
        (len(placement), sum(placement), atomic, taken.step_s, taken.gradient_s)
        for placement, batches in seen.items()
        for atomic in batches
        for taken in [application.step_time(placement, atomic)]
    ]
    observed = Observations(*np.array(rows, dtype=float).T)
    for published in (False, True):
        value, _ = _Objective(observed)(
            np.array(astuple(fit_throughput(observed, published=published)))
        )
        assert value < 0.1


@pytest.mark.reference
def test_efficiency_and_fits_of_the_published_applications_are_drawn(
    reference: Path, tmp_path: Path, benchmark
) -> None:
    cifar = reference / "pollux" / "traces" / "cifar10"
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "cifar10").symlink_to(cifar)
    program = benchmark("fit_goodput")
    (file,) = program.draw(tmp_path / "traces", tmp_path / "figures")
    assert file.read_bytes().startswith(b"\x89PNG")
    table = program.efficiencies(read_application(cifar))
    assert (table.iloc[:, 0] == 1).all()  # the initial batch
    assert (table.gt(0) & table.le(1)).all(axis=None)


TRUTH = ThroughputParameters(0.05, 0.002, 0.08, 0.003, 0.02, 0.001, 1.5)
LIMITS = BatchLimits(initial=64, most=4096, atomic_min=16, atomic_max=256)


def grid(nodes: list[int], per_node: list[int], atomic: list[int]) -> Observations:
    n, r, m = (np.array(axis, dtype=float) for axis in zip(
        *[(n, n * k, m) for n in nodes for k in per_node for m in atomic], strict=True
    ))  # fmt: skip
    return Observations(n, r, m, TRUTH.step_time(n, r, m), TRUTH.gradient_time(m))


def objective(parameters: ThroughputParameters, observed: Observations) -> float:
    return _Objective(observed)(np.array(astuple(parameters)))[0]


# --- step times -------------------------------------------------------------------------------------------------------

times = st.floats(1e-6, 10)
parameters = st.builds(
    ThroughputParameters, times, times, times, times, times, times, st.floats(1, 10)
)


@given(
    parameters,
    st.integers(1, 8),
    st.integers(0, 24),
    st.integers(1, 512),
    st.integers(0, 5),
)
def test_step_times_by_the_letter(
    p: ThroughputParameters, nodes: int, more: int, m: int, s: int
) -> None:
    replicas = nodes + more
    grad = p.alpha_c + p.beta_c * m
    alpha, beta = (p.alpha_r, p.beta_r) if nodes == 1 else (p.alpha_n, p.beta_n)
    sync = 0.0 if replicas == 1 else alpha + beta * (replicas - 2)
    high = max(grad, sync)
    step = s * grad + high * ((grad / high) ** p.gamma + (sync / high) ** p.gamma) ** (
        1 / p.gamma
    )
    assert p.step_time(nodes, replicas, m, s) == pytest.approx(step, rel=1e-9)
    assert p.throughput(nodes, replicas, m, s) == pytest.approx(
        replicas * m * (s + 1) / step, rel=1e-9
    )


@pytest.mark.parametrize("gamma", [1.0, 10.0])
def test_tiny_times_do_not_underflow(gamma: float) -> None:
    p = ThroughputParameters(1e-40, 0, 1e-40, 0, 1e-40, 0, gamma)
    assert p.step_time(1, 2, 1) == pytest.approx(1e-40 * 2 ** (1 / gamma))


SEEN = Observations(*np.array([[1, 1], [1, 2], [8, 8], [1, 1], [1, 0.5]], dtype=float))
MEASURED = Throughputs("m", np.array([1.0, 2.0]), np.array([10.0, 19.0]))


@pytest.mark.parametrize(
    ("good", "wrong", "message"),
    [
        (LIMITS, {"atomic_min": 0}, "atomic_min"),
        (LIMITS, {"atomic_min": 65}, "atomic_min"),
        (LIMITS, {"most": 63}, "most"),
        (LIMITS, {"atomic_max": 8}, "atomic_min"),
        (SEEN, {"step_s": [1.0, -1.0]}, "step_s: expected numbers > 0, but entry 2 is -1.0"),
        (SEEN, {"nodes": [1.0, 3.0]}, "but entry 2 has 2 replicas on 3 nodes"),
        (SEEN, {"atomic": [1.0]}, "atomic: expected 2 values"),
        (SEEN, {"gradient_s": [math.nan, 1]}, "gradient_s: expected numbers > 0, but entry 1 is nan"),
        (MEASURED, {"units": [1.0, 1.5]}, "units: expected whole numbers"),
        (MEASURED, {"units": [1.0, -1.0]}, "units: expected numbers > 0, but entry 2 is -1.0"),
        (MEASURED, {"throughput": [0.0, 1.0]}, "throughput: expected numbers > 0, but entry 1"),
        (MEASURED, {"throughput": [1.0, math.nan]}, "expected numbers > 0, but entry 2 is nan"),
        (MEASURED, {"throughput": [1.0]}, "throughput: expected 2 values"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(good, wrong, message: str) -> None:
    change = {name: np.array(value) if isinstance(value, list) else value for name, value in wrong.items()}  # fmt: skip
    refused(message, replace, good, **change, error=ValueError)


# --- fits -------------------------------------------------------------------------------------------------------------


@examples(30)
@given(st.integers(0, 2**32 - 1))
def test_the_gradient_is_that_of_the_objective(seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed = grid([1, 2, 3], [1, 2, 4], [16, 64])
    at = np.r_[rng.uniform(0.01, 1, 6), rng.uniform(1.1, 9)]
    value = _Objective(observed)
    _, slope = value(at)
    for k in range(7):
        step = np.eye(7)[k] * 1e-6 * at[k]
        numeric = (value(at + step)[0] - value(at - step)[0]) / (2 * step[k])
        assert slope[k] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_the_objective_is_the_published_one() -> None:
    observed = grid([1, 2], [1, 4], [16, 64])
    p = ThroughputParameters(0.06, 0.001, 0.05, 0.002, 0.03, 0.003, 2.0)
    predicted = p.step_time(observed.nodes, observed.replicas, observed.atomic)
    gradient = p.gradient_time(observed.atomic)

    def rmse(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(np.mean((np.log(a) - np.log(b)) ** 2)))

    expected = rmse(gradient, observed.gradient_s) + rmse(predicted, observed.step_s)
    expected += 1e-3 * 1.0 + 1e-2 * ((0.002 / 0.05) ** 2 + (0.003 / 0.03) ** 2)
    assert objective(p, observed) == pytest.approx(expected, rel=1e-9)


def test_noise_free_steps_give_their_parameters_back() -> None:
    fitted = fit_throughput(grid([1, 2, 4], [1, 2, 3, 4], [16, 64, 256]))
    held = grid([3, 8], [1, 4], [32, 128])
    np.testing.assert_allclose(
        fitted.step_time(held.nodes, held.replicas, held.atomic), held.step_s, rtol=0.02
    )
    assert fitted.gamma == pytest.approx(TRUTH.gamma, abs=0.05)


def test_no_random_parameters_do_better() -> None:
    rng = np.random.default_rng(0)
    exact = grid([1, 2, 4], [1, 2, 4], [16, 64])
    observed = replace(exact, step_s=exact.step_s * rng.lognormal(0, 0.1, len(exact)))
    fitted = fit_throughput(observed)
    best = objective(fitted, observed)
    for _ in range(300):
        other = astuple(fitted) * rng.lognormal(0, rng.choice([0.01, 0.1, 1]), 7)
        other[6] = np.clip(other[6], 1, 10)
        assert objective(ThroughputParameters(*other.tolist()), observed) >= best - 1e-6


def test_what_was_not_observed_is_hoped_for() -> None:
    least, hoped = 1e-8, pytest.approx(1.1e-8)
    alone = fit_throughput(grid([1], [1], [64]))
    # One batch size: half of the mean is constant.
    half = pytest.approx(TRUTH.gradient_time(64) / 2)
    unknown = {"alpha_r": least, "beta_r": least, "beta_n": hoped}
    agree(alone, {"alpha_c": half, **unknown})
    assert alone.step_time(1, 1, 64) == pytest.approx(
        TRUTH.step_time(1, 1, 64), rel=1e-3
    )
    linear = 16 * alone.throughput(1, 1, 64)
    assert alone.throughput(4, 16, 64) == pytest.approx(linear, rel=1e-3)
    for per_node, unknown in (([1, 2], {"beta_r": least}), ([1, 2, 4], {})):
        local = fit_throughput(grid([1], per_node, [16, 64]))
        alpha_n = pytest.approx(1.1 * local.alpha_r)
        beta_n = pytest.approx(1.1 * local.beta_r)
        agree(local, {**unknown, "alpha_n": alpha_n, "beta_n": beta_n})
    across = fit_throughput(grid([2], [1], [16, 64]))
    agree(across, dict.fromkeys(("alpha_r", "beta_r", "beta_n"), least))


# --- goodput ----------------------------------------------------------------------------------------------------------

limits = st.tuples(
    st.integers(1, 64),
    st.integers(0, 200),
    st.integers(0, 400),
    st.integers(0, 4000),
    st.booleans(),
).map(lambda t: BatchLimits(t[0] + t[1], t[0] + t[1] + t[3], t[0], t[0] + t[2]))


def best_by_loops(goodput: Goodput, nodes: int, replicas: int) -> float:
    """The best goodput over the 50 batches, one at a time."""
    lim, p, best = goodput.limits, goodput.parameters, 0.0
    least = max(lim.initial, lim.atomic_min * replicas)
    if least > lim.most:
        return 0.0
    for k in range(50):
        local = least * (lim.most / least) ** (k / 49) / replicas
        passes = math.ceil(local / lim.atomic_max - 1e-8)
        if replicas == 1 and local > lim.initial + 1e-8:
            passes = max(passes, 2)
        m = min(math.ceil(local / passes - 1e-8), lim.most // (replicas * passes))
        if lim.atomic_min <= m <= lim.atomic_max:
            batch = max(m * passes * replicas, lim.initial)
            efficiency = (goodput.pgns + lim.initial) / (goodput.pgns + batch)
            rate = (
                replicas
                * m
                * passes
                / float(p.step_time(nodes, replicas, m, passes - 1))
            )
            best = max(best, rate * efficiency)
    return best


@given(parameters, limits, st.floats(0, 1e6), st.integers(1, 8), st.integers(0, 60))
def test_the_best_batch_by_plain_loops(
    p: ThroughputParameters, lim: BatchLimits, pgns: float, n: int, more: int
) -> None:
    goodput = Goodput(p, pgns, lim)
    found, m, s = goodput.best_batch(n, n + more)
    assert float(found) == pytest.approx(best_by_loops(goodput, n, n + more), rel=1e-9)
    if found > 0:
        assert lim.atomic_min <= m <= lim.atomic_max
        assert (n + more) * m * (s + 1) <= lim.most
        assert float(found) == pytest.approx(
            float(goodput.at(n, n + more, m, s)), rel=1e-12
        )
    else:
        assert (m, s) == (0, 0)


@given(st.floats(1e-6, 1e3), st.floats(0, 1e3), st.floats(1, 1e3))
def test_adascale_gain_is_the_scale_times_the_efficiency(
    sqr: float, var: float, scale: float
) -> None:
    """Two formulas, of two papers: a step of AdaScale is worth what goodput counts it."""
    gain = adascale_gain(sqr, var, scale)
    goodput = Goodput(TRUTH, noise_scale(sqr, var, LIMITS.initial), LIMITS)
    assert gain == pytest.approx(
        scale * float(goodput.efficiency(scale * LIMITS.initial)), rel=1e-9
    )
    assert 1 - 1e-12 <= gain <= scale * (1 + 1e-12)


def test_noise_scales_and_gains_at_their_ends() -> None:
    # No noise: a larger batch is worth one step; all noise: as many as it is larger; nothing is known.
    ends = [(1.0, 0.0), (0.0, 1.0), (-1.0, 2.0)]
    assert [adascale_gain(*each, 8.0) for each in ends] == [1, 8, 1]
    scales = [noise_scale(each, 6.0, 64) for each in (2.0, 0.0, -1e-9)]
    assert scales == [192, math.inf, math.inf]
    assert Goodput(TRUTH, math.inf, LIMITS).efficiency([64, 4096]).tolist() == [1, 1]


def test_a_single_replica_beyond_the_first_batch_accumulates() -> None:
    _, m, s = Goodput(TRUTH, math.inf, replace(LIMITS, most=256)).best_batch(1, 1)
    assert (int(m), int(s)) == (128, 1)


def test_replicas_worth_trying() -> None:
    caps = {0: 1, 1: 2, 3: 6, 100: 64}
    assert {profiled: replica_cap(profiled, LIMITS) for profiled in caps} == caps
    assert replica_cap(100, replace(LIMITS, most=160)) == 10


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_holds_what_each_placement_gives() -> None:
    goodput = Goodput(TRUTH, 500.0, LIMITS)
    table = goodput_table(goodput, 3, 12)
    expected = [
        [float(goodput.best_batch(n, r)[0]) if 1 <= n <= r else 0.0 for r in range(13)]
        for n in range(4)
    ]
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    assert goodput_table(Goodput(TRUTH, 500.0, LIMITS), 3, 12) is table  # kept by value
    with pytest.raises(ValueError, match="read-only"):
        table[1, 1] = 0


def test_a_curve_is_its_own_goodput() -> None:
    curve = Curve(np.array([0.0, 2, 4]), np.array([0.0, 20, 30]))
    two_nodes = [0, 0, 1, 1.25, 1.5, 1.5]
    np.testing.assert_allclose(
        speedup_table(curve, 2, 5, 1, 2), [[0] * 6, [0, 0.5, *two_nodes[2:]], two_nodes]
    )


@given(parameters, st.floats(0, 1e5), st.integers(1, 4), st.integers(0, 12))
def test_the_fair_share_has_speed_up_one(
    p: ThroughputParameters, pgns: float, nodes: int, more: int
) -> None:
    table = speedup_table(Goodput(p, pgns, LIMITS), 4, 16, nodes, nodes + more)
    if nodes + more <= 16:
        assert table[nodes, nodes + more] == pytest.approx(1)
    assert np.isfinite(table).all()
    assert (table >= 0).all()


def test_a_share_too_large_or_too_small_still_compares() -> None:
    few = Goodput(TRUTH, 500.0, replace(LIMITS, most=64))  # at most four replicas
    assert speedup_table(few, 2, 8, 2, 8)[2, 4] == pytest.approx(1)
    late = Curve(
        np.array([0.0, 3, 4, 8]), np.array([0.0, 0, 40, 80])
    )  # nothing below four units
    assert speedup_table(late, 1, 8, 1, 2)[1, [2, 4, 8]].tolist() == pytest.approx(
        [0, 2, 4]
    )
    dead = Curve(np.array([0.0, 4]), np.array([0.0, 0]))
    assert not speedup_table(dead, 1, 4, 1, 2).any()


# --- published traces -------------------------------------------------------------------------------------------------


@pytest.mark.reference
@pytest.mark.parametrize(
    "name", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
)
def test_placements_not_seen_are_predicted_within_ten_percent(
    reference, name: str
) -> None:
    application = read_application(reference / "pollux" / "traces" / name)
    observed = application.observations
    ring = np.repeat(
        np.arange(len(application.steps)),
        [len(rows) for rows in application.steps.values()],
    )
    rng = np.random.default_rng(0)
    errors = []
    count = len(application.steps)
    for _ in range(3):
        held = np.isin(ring, rng.choice(count, count // 5, replace=False))
        fitted, test = fit_throughput(observed[~held]), observed[held]
        predicted = fitted.step_time(test.nodes, test.replicas, test.atomic)
        errors.append(np.abs(predicted / test.step_s - 1))
    assert np.median(np.concatenate(errors)) <= 0.10


SIZES = np.array([1.0, 2, 4, 8, 16])


def measured(units: list[float], throughput: list[float]) -> Throughputs:
    return Throughputs("m", np.array(units), np.array(throughput))


# --- fits -------------------------------------------------------------------------------------------------------------


@given(st.floats(1e-3, 1e6), st.floats(0, 1), st.sampled_from([0.0, 1e-4, 0.01]))
def test_laws_come_back_from_their_points(
    p1: float, sigma: float, kappa: float
) -> None:
    rates = p1 * SIZES / (1 + sigma * (SIZES - 1) + kappa * SIZES * (SIZES - 1))
    fit = fit_scalability(
        measured(SIZES.tolist(), rates.tolist()),
        "usl" if kappa else "amdahl",
        sizes=[1, 3, 64],
    )
    assert fit.errors.max() < 1e-6
    n = np.array([1.0, 3, 64])
    expected = p1 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
    np.testing.assert_allclose(fit.curve.ps[1:], expected, rtol=1e-4)
    p1, sigma = pytest.approx(p1, rel=1e-4), pytest.approx(sigma, abs=1e-4)
    agree(fit.parameters, {"P1": p1, "sigma": sigma})


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=8))
def test_no_serial_fraction_does_better_than_the_fitted_one(rates: list[float]) -> None:
    n, p = np.arange(1.0, len(rates) + 1), np.array(rates)
    fit = fit_scalability(measured(n.tolist(), rates), "amdahl")

    def loss(p1: float, sigma: float) -> float:
        return float((((p * (1 + sigma * (n - 1)) / (p1 * n)) - 1) ** 2).sum())

    best = loss(fit.parameters["P1"], fit.parameters["sigma"])
    for sigma in np.linspace(0, 1, 21):
        shape = p * (1 + sigma * (n - 1)) / n
        assert best <= loss((shape**2).sum() / shape.sum(), sigma) * (1 + 1e-9) + 1e-12


def test_the_piecewise_curve_goes_through_the_medians() -> None:
    fit = fit_scalability(measured([4, 1, 1, 1, 2], [30, 10, 11, 500, 19]))
    agree(fit.curve, {"ns": [0, 1, 2, 4], "ps": [0, 11, 19, 30]})
    np.testing.assert_allclose(fit.errors, [0, 0.1, 0, 1 - 11 / 500, 0])
    np.testing.assert_allclose(fit.efficiency(), [1, 19 / 22, 30 / 44])


@pytest.mark.parametrize("kind", SIZES_NEEDED)
def test_points_outside_the_measured_range_are_marked(kind: Kind) -> None:
    fit = fit_scalability(
        measured([2, 4, 8], [20, 35, 60]), kind, sizes=[1, 2, 4, 8, 9, 64]
    )
    marked = [False, True, False, False, False, True, True]
    agree(fit, {"kind": kind, "extrapolated": marked, "beyond": [1, 9, 64]})
    assert (fit.curve.ps[1:] > 0).all()


def test_beyond_its_last_size_a_piecewise_curve_does_not_grow() -> None:
    fit = fit_scalability(measured([2, 8], [20, 60]), sizes=[1, 8, 100])
    assert fit.curve.ps.tolist() == [0, 10, 60, 60]


@pytest.mark.parametrize("kind", SIZES_NEEDED)
def test_order_and_scale_of_measurements_do_not_matter(kind: Kind) -> None:
    units, rates = [1.0, 2, 2, 4, 8], [10.0, 19, 21, 36, 60]
    fit = fit_scalability(measured(units, rates), kind, sizes=[1, 6, 16])
    back = fit_scalability(measured(units[::-1], rates[::-1]), kind, sizes=[1, 6, 16])
    np.testing.assert_allclose(fit.curve.ps, back.curve.ps, rtol=2e-3)
    small = fit_scalability(
        measured(units, [r * 1e-9 for r in rates]), kind, sizes=[1, 6, 16]
    )
    np.testing.assert_allclose(small.curve.ps * 1e9, fit.curve.ps, rtol=1e-9)


@pytest.mark.parametrize(
    ("units", "rates", "warning"),
    [
        ([1, 2, 4], [10, 19, 15], "not monotone: 4 units give 15 samples/s, 2 give 19"),
        (
            [1, 1, 2],
            [10, 12, 20],
            "noisy: repetitions at 1 units spread over 18% of their median",
        ),
        ([1, 2], [10, 22], "superlinear: a unit of 2 gives 10% more than one of 1"),
        ([4], [10], "one size only (4): nothing is known of scaling"),
        ([1, 1, 2], [10, 10.5, 19], None),
    ],
)
def test_doubtful_measurements_are_reported(
    units: list[float], rates: list[float], warning: str | None
) -> None:
    assert fit_scalability(measured(units, rates)).warnings == (
        () if warning is None else (warning,)
    )


@pytest.mark.parametrize(("kind", "needed"), [("amdahl", 2), ("usl", 3)])
@given(st.lists(st.floats(1, 1e4), min_size=3, max_size=3))
def test_fits_with_fewer_sizes_than_parameters_fall_back_to_piecewise(
    kind: Kind, needed: int, gains: list[float]
) -> None:
    rates = np.cumsum(sorted(gains, reverse=True)).tolist()
    units = [1.0, 2.0, 4.0]
    for count in range(1, needed):
        fit = fit_scalability(
            measured(units[:count] * 2, rates[:count] * 2), kind, sizes=[1, 64]
        )
        assert (fit.kind, fit.parameters) == ("piecewise", {})
        assert fit.curve.ps[-1] == rates[count - 1], "no more than was measured"
        why = f"{kind} takes {needed} sizes to be determined, and {count}"
        assert why in fit.warnings[0]
    just = fit_scalability(measured(units[:needed], rates[:needed]), kind)
    assert just.kind == kind
    assert f"{kind} goes through any {needed} sizes" in just.warnings[0]


def test_the_peak_is_the_largest_of_the_best_sizes() -> None:
    assert [
        fit_scalability(measured([1, 2, 4], [10, 19, last])).peak for last in (15, 19)
    ] == [2, 4]
    assert fit_scalability(measured([1, 2], [10, 19]), sizes=[1, 64]).peak == 64, (
        "constant is not falling"
    )


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("model,units,throughput\nb,1,10\na,4,30\nb,2,20\n", "", [("b", [1, 2], [10, 20]), ("a", [4], [30])]),
        ("job,units,step_time,batch_size\nx,1,0.5,64\n", "", [("x", [1], [128])]),
        ("units,throughput\n1,10\n", "", [("runs", [1], [10])]),
        ("units,throughput\n1,10\n", "net", [("net", [1], [10])]),
    ],
)  # fmt: skip
def test_tables_in_several_forms(text: str, name: str, told, tmp_path) -> None:
    (tmp_path / "runs.csv").write_text(text)
    found = read_throughputs(tmp_path / "runs.csv", **{"name": name} if name else {})
    read = [(each.model, each.units.tolist(), each.throughput.tolist()) for each in found]  # fmt: skip
    assert read == told


# --- learning while running -------------------------------------------------------------------------------------------

concave = st.tuples(st.floats(1, 1e4), st.floats(0, 0.5))


def law(p1: float, sigma: float, n: float) -> float:
    return p1 * n / (1 + sigma * (n - 1))


@given(concave, st.lists(st.integers(1, 64), min_size=1, max_size=20))
def test_an_optimistic_curve_never_underestimates_unseen_sizes(
    truth: tuple[float, float], sizes: list[int]
) -> None:
    online = OnlineCurve()
    for size in sizes:
        online.observe(size, law(*truth, size), 60.0)
    estimate = online.estimate(128)
    assert estimate.at(sizes) == pytest.approx([law(*truth, size) for size in sizes])
    unseen = np.arange(max(online.sizes), 129)
    assert (estimate.at(unseen) >= law(*truth, unseen) * (1 - 1e-12)).all()


@given(concave, st.integers(1, 64))
def test_following_the_hope_finds_the_truth(
    truth: tuple[float, float], most: int
) -> None:
    """A scheduler that always tries the most promising size knows, in the end, the rate of the size it stays at."""
    online = OnlineCurve()
    online.observe(1, law(*truth, 1), 1.0)
    for _ in range(64):
        tried = int(np.argmax(online.estimate(most).table(most)))
        online.observe(tried, law(*truth, tried), 1.0)
    best = max(law(*truth, n) for n in range(1, most + 1))
    known = float(online.estimate(most).at(tried))
    assert (known, law(*truth, tried)) == pytest.approx((best, best))


def test_longer_observations_count_more() -> None:
    online = OnlineCurve()
    for rate, seconds in ((10, 30), (20, 10), (1e9, 0)):
        online.observe(2, rate, seconds)
    assert (online.rate(2), online.sizes) == (12.5, [2])
