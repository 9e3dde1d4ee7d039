"""Live bytes are offline bytes: what a watch decides is what a replay of its record decides, however looks come."""

import os
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bft.models import JobTable
from bft.replay import Replay
from bft.replay.engine.running import NEVER
from bft.replay.policies.checking import World, make_world
from bft.replay.policies.pollux import Pollux
from bft.replay.policies.registry import BUILT_IN, policy_type
from bft.replay.results.outcome_tables import write_outcome
from bft.replay.shadow import Record, Shadow, Watch
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, events_of

QUICK = {"pollux": partial(Pollux, interval_s=300.0, population=10, generations=5)}
NONE = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)


@contextmanager
def recorded(folder):
    folder.mkdir(exist_ok=True)
    record = Record(folder)
    try:
        yield record
    finally:
        os.close(record.file)


def begun(record: Record, trace: NodeTrace):
    """The lines of a record after the first one, which is written where there is none."""
    lines = record.lines()
    if next(lines, None) is None:
        names = ("nodes", "start", "units_per_node")
        record.write({name: getattr(trace, name) for name in names})
    return lines


class Killed(BaseException):
    """What SIGKILL does: nothing after it is done."""


def replay_of(world: World, name: str, trace: NodeTrace) -> Replay:
    make = QUICK.get(name) or partial(policy_type(name).make, world.settings())
    xi = world.interference if policy_type(name).traits.shares else None
    return Replay(trace, world.jobs, make(), world.rules, xi)


class Script:
    """Looks that come at drawn instants, some late, and the clock that goes on while they are waited for."""

    def __init__(self, rng: np.random.Generator, world: World, every_s: float) -> None:
        trace = world.trace
        self.now = trace.start + 1
        self.late_s = (0.0, 0.0, 1.0, every_s, 100.0)
        self.missed = 0
        self.rng, self.every_s, self.nodes = rng, every_s, trace.nodes
        self.shadow: Shadow
        self.next_at = self.now
        self.idle = rng.random(len(trace.nodes)) < 0.7
        self.at: set[int] = set()  # instants of the engine at which looks are drawn

    def over(self) -> bool:
        return False

    def newest(self, within_s: float) -> tuple[int, dict[str, bool], int]:
        rng, due = self.rng, self.shadow.due()
        if self.now < due < self.next_at and rng.random() < 0.5:
            # At the very instant, or 1 ns beside.
            self.next_at = due + int(rng.choice([-1, 0, 0, 1]))
            self.at.add(due)
        waited = self.now + round(within_s * SECOND_NS)
        if self.next_at > waited:
            self.now = waited
            return 0, {}, 0
        self.now = max(self.now, self.next_at)
        gap = self.every_s * float(rng.choice([0.0, 0.2, 1.0, 1.0, 1.0, 4.0]))
        self.next_at = self.now + round(gap * SECOND_NS)
        flips = rng.random(len(self.idle)) < rng.choice([0.0, 0.1, 0.5])
        self.idle = self.idle ^ flips
        late_s = 0.0 if self.now in self.at else float(rng.choice(self.late_s))
        instant = self.now - round(late_s * SECOND_NS)
        named = dict(zip(self.nodes, self.idle.tolist(), strict=True))
        oldest = instant - round(float(rng.choice(self.late_s)) * SECOND_NS)
        return instant, named, oldest


def watched(name: str, seed: int, folder, drawn: Counter[str]):
    """The outcome of a watch that is killed and started again, its recorded trace, and what it told.

    What was drawn is counted.
    """
    rng = np.random.default_rng(seed)
    world = make_world(seed)
    # So little work that many jobs finish meanwhile.
    small = (replace(job, pmax=job.pmax / 8) for job in world.jobs)
    world = replace(world, jobs=JobTable(tuple(small)))
    trace = replace(world.trace, **events_of(NONE, NONE), end=NEVER, node_units=None)
    every_s = float(rng.choice([60.0, 300.0]))
    script = Script(rng, world, every_s)
    until = trace.start + int(rng.integers(600, 4 * 3600)) * SECOND_NS
    stop_at = until - int(rng.choice([-1, 0, 600])) * SECOND_NS
    told = []
    while True:
        with recorded(folder) as record:
            counted = partial(
                _alive, iter(range(int(rng.choice([5, 20, 60, 200, 10**9]))))
            )

            def write(line, record: Record = record, counted=counted) -> None:
                counted()
                record.write(line)
                counted()

            def tell(line, counted=counted) -> None:
                counted()
                told.append(line)

            lines = begun(record, trace)
            shadow = script.shadow = Shadow(replay_of(world, name, trace), write)
            shadow.again(lines)
            shadow.tell = tell
            settle_s = float(rng.choice([0.0, 0.0, 45.0]))
            often_s = every_s if seed % 3 else None
            now = partial(getattr, script, "now")
            loop = Watch(shadow, script, settle_s, often_s, until, now)
            try:
                outcome = loop.run(lambda: script.now >= stop_at)
            except Killed:
                drawn["kill"] += 1
                script.now += int(rng.choice([0, 1, 10, 1000])) * SECOND_NS
                continue
            made = record.trace(shadow.replay.trace.end)
            heard = [line for line in record.lines() if isinstance(line, list)]
        script.at &= {instant for instant, *changes in heard if changes}
        finishes = {int(done.finish_ns or 0) for done in outcome.records}
        submits = {job.tsub_ns for job in world.jobs.jobs}
        own = script.at - finishes - submits
        drawn.update({
            "late": shadow.late, "settles": settle_s > 0, "stopped": made.end < until,
            "finish": len(script.at & finishes), "submit": len(script.at & submits), "timer": len(own),
        })  # fmt: skip
        return replace(outcome, trace=made), made, told, world


def _alive(fate) -> None:
    if next(fate, None) is None:
        raise Killed


def bytes_of(folder, outcome) -> dict[str, bytes]:
    folder.mkdir()
    write_outcome(folder, outcome)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def holders_at(outcome, world: World, instant: int) -> dict[str, list[str]]:
    rows, per = outcome.allocations, world.trace.units_per_node
    held: dict[str, list[int]] = {}
    now = rows[(rows["start_ns"] <= instant) & (rows["end_ns"] > instant)]
    for row in now.itertuples():
        units = range(row.first_unit, row.last_unit + 1)
        held.setdefault(world.jobs.jobs[row.job].name, []).extend(units)
    nodes = outcome.trace.nodes
    return {
        job: [nodes[unit // per] for unit in sorted(units)]
        for job, units in held.items()
    }


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is lost here, and nobody presses Ctrl-C while nothing happens."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr("bft.replay.shadow.STOPS_WITHIN_S", 1e9)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(more, marks=pytest.mark.slow) for more in (2, 3))]
)
@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "schedule"])
def test_what_a_watch_decides_is_what_its_record_replays_to(
    name: str, seed: int, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    live, trace, told, world = watched(name, seed, tmp_path / "shadow", Counter())
    offline = replay_of(world, name, trace).run()
    assert bytes_of(tmp_path / "live", live) == bytes_of(tmp_path / "offline", offline)
    for line in told:
        if line["time_ns"] < offline.end_ns:
            assert line["hold"] == holders_at(offline, world, line["time_ns"]), line


def test_what_is_drawn_there_has_all_that_could_go_wrong(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    drawn: Counter[str] = Counter()
    for name in ("equal-share", "tiresias-l"):
        for seed in range(4):
            watched(name, seed, tmp_path / f"{name}-{seed}", drawn)
    assert min(drawn.values()) > 0, drawn


# --- by hand: the rules of order --------------------------------------------------------------------------------------


@contextmanager
def shadow_on(world: World, folder, told: list):
    """A shadow of a world and the record that it writes."""
    trace = replace(world.trace, **events_of(NONE, NONE), end=NEVER)
    with recorded(folder) as record:
        shadow = Shadow(replay_of(world, "equal-share", trace), record.write)
        shadow.again(begun(record, trace))
        shadow.tell = told.append
        yield shadow, record


WORLD = make_world(3)
EVERY_NODE = set(range(len(WORLD.trace.nodes)))
START = WORLD.trace.start


def same_as_offline(shadow: Shadow, outcome, record: Record, folder) -> bool:
    trace = record.trace(shadow.replay.trace.end)
    return bytes_of(folder / "live", replace(outcome, trace=trace)) == bytes_of(
        folder / "offline", replay_of(WORLD, "equal-share", trace).run()
    )


def test_a_watch_that_ends_with_its_last_decision_counts_it(tmp_path) -> None:
    with shadow_on(WORLD, tmp_path, told := []) as (shadow, record):
        shadow.hear(START + 5, EVERY_NODE)
        outcome = shadow.stop(START + 5)
        assert told[-1]["decided"]
        assert shadow.replay.trace.end == START + 6
        assert same_as_offline(shadow, outcome, record, tmp_path)


def test_after_a_restart_nothing_is_heard_of_before_what_was_told(
    tmp_path,
) -> None:
    told = []
    with shadow_on(WORLD, tmp_path, told) as (shadow, record):
        shadow.hear(START + 5, EVERY_NODE)
        while not told[-1]["ended"]:  # a job has finished: nobody was heard since
            shadow.passed(shadow.due())
        finish = told[-1]["time_ns"]
    with shadow_on(WORLD, tmp_path, []) as (shadow, record):
        assert shadow.status()["hold"] == told[-1]["hold"]
        shadow.hear(finish - 5, set())  # late: it was not there when it was decided
        outcome = shadow.stop(finish + 10)
        assert (shadow.late, shadow.heard_at) == (1, finish + 1)
        assert same_as_offline(shadow, outcome, record, tmp_path)


class Silence:
    """Looks of which none comes, and the clock."""

    now = START + 1

    def over(self) -> bool:
        return False

    def newest(self, within_s: float) -> tuple[int, dict[str, bool], int]:
        self.now += max(1, round(within_s * SECOND_NS))
        return 0, {}, 0


@pytest.mark.parametrize(("seconds", "left"), [(24, EVERY_NODE), (26, set())])
def test_after_two_and_a_half_periods_without_a_look_all_nodes_are_taken(
    seconds: int, left: set[int], tmp_path
) -> None:
    looks = Silence()
    with shadow_on(WORLD, tmp_path, []) as (shadow, record):
        until = START + seconds * SECOND_NS
        loop = Watch(shadow, looks, 0.0, 10.0, until, lambda: looks.now)
        loop.see((START, dict.fromkeys(WORLD.trace.nodes, True), START))
        outcome = loop.run(lambda: False)
        assert shadow.idle == left
        assert left or shadow.heard_at == START + 25 * SECOND_NS
        assert same_as_offline(shadow, outcome, record, tmp_path)


def test_looks_that_waited_while_it_decided_keep_the_nodes(tmp_path) -> None:
    idle = dict.fromkeys(WORLD.trace.nodes, True)
    with shadow_on(WORLD, tmp_path, told := []) as (shadow, _):
        loop = Watch(shadow, Silence(), 0.0, 10.0, NEVER, lambda: NEVER)
        loop.see((START, idle, START))
        loop.see((START + 60 * SECOND_NS, idle, START + 10 * SECOND_NS))
        assert all(line["idle"] for line in told)
        loop.see((START + 90 * SECOND_NS, idle, START + 90 * SECOND_NS))
        assert not all(line["idle"] for line in told)


def test_after_all_jobs_are_done_memory_stays_flat(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    with shadow_on(WORLD, tmp_path, []) as (shadow, _):
        shadow.hear(START + 5, EVERY_NODE)
        shadow.passed(NEVER - 1)
        assert shadow.due() == NEVER  # all jobs are done
        after = shadow.promised
        used = []
        for number in range(4000):
            if number % 2000 == 1000:
                tracemalloc.start()
            shadow.hear(after + number, EVERY_NODE - {number % 2})
            if number % 2000 == 1999:
                used.append(tracemalloc.get_traced_memory()[0])
                tracemalloc.stop()
        assert (
            max(used) < 10_000
        )  # of 1,000 events; none would be smaller than its instant


def test_a_torn_last_line_is_dropped(tmp_path) -> None:
    with recorded(tmp_path) as record:
        record.write([1, [], [0]])
    with record.path.open("ab") as file:
        file.write(b"[2, [0]")
    with recorded(tmp_path) as record:
        assert list(record.lines()) == [[1, [], [0]]]
        record.write([3])
        assert list(record.lines()) == [[1, [], [0]], [3]]
