"""Small worlds: node traces, jobs and scripted policies; and whole replays written down as data.

A case in a `.toml` file of `tests/data/worlds` has

    trace     "-3, 0 +ab, 10 -b, 20": from second -3 to 20; a and b turn idle at 0, b leaves at 10. Or
    cluster   "2x4": two nodes of four units, always idle
    per, kinds  units of a node of the trace, and the kind of each node
    jobs      a line each: NAME [UNITSxSECONDS] FIELD=VALUE ... [-> WHAT=VALUE ...]; UNITSxSECONDS is a rigid job, and
              after the arrow stands what must become of it, START-FINISH or a field of its record
    told      the latter alone, a line for each job
    policy    a name or several, with `set` for constants; or none with
    plan      the answer by second: counts, units by job, or `counts` and `kinds`; or a word of `ANSWERS`; and `traits`
    rules     fields of `Rules`; all jobs are in play unless it says otherwise
    xi        "a b 1.1 1.2, ...": models, ratios, and units; `sharing` has the other fields of `Interference`
    decisions, asked, finished, shown, outcome, steps, host, summary, error
              what the replay must yield beside the jobs
    each      variants: each of them with the other values in place of those above

Times are seconds from START. A whole number is met exactly, one with a decimal point to rounding.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bft.models import Curve, Job, JobTable, UnitMemory, xi_from_frame
from bft.replay import (
    Decision,
    Interference,
    NodeTrace,
    Outcome,
    Policy,
    Replay,
    Rules,
    SolverOptions,
    State,
    Traits,
    always_idle,
    from_changes,
    summarise,
)
from bft.replay.policies import policy_type
from bft.replay.results.dedicated import dedicated_traces
from bft.replay.results.host import host_metrics

SECOND = 1_000_000_000
START = 1_613_001_600 * SECOND  # a whole hour
DATA = Path(__file__).parents[2] / "data" / "worlds"
Rows = Sequence[tuple[float, str, int]]
OF_JOBS = {each.name for each in fields(Job)}


def instant(second: float) -> int:
    return START + round(second * SECOND)


def second(instant_ns: int | None) -> float | None:
    return None if instant_ns is None else (instant_ns - START) / SECOND


# --- traces and jobs --------------------------------------------------------------------------------------------------


def world(
    rows: Rows,
    end: float,
    *,
    start: float = 0,
    units_per_node: int = 1,
    nodes: str = "",
) -> NodeTrace:
    """A trace of rows (second, node letters, idle)."""
    single = [(t, n, bool(idle)) for t, letters, idle in rows for n in letters]
    single.sort(key=lambda row: row[0])
    names = nodes or "".join(sorted({n for _, n, _ in single}))
    return from_changes(
        list(names),
        np.array([instant(t) for t, _, _ in single], dtype=np.int64),
        np.array([names.index(n) for _, n, _ in single], dtype=np.int32),
        np.array([idle for *_, idle in single], dtype=bool),
        start=instant(start),
        end=instant(end),
        units_per_node=units_per_node,
    )


def cluster(nodes: int, per: int = 1, end: float = 1e7) -> NodeTrace:
    return always_idle(nodes, START, instant(end), units_per_node=per)


def traced(text: str, per: int = 1) -> NodeTrace:
    """A trace from the text of a case."""
    rows: list[tuple[float, str, int]] = []
    bounds = []
    for part in text.split(","):
        at, *changes = part.split()
        rows += [(float(at), each[1:], each[0] == "+") for each in changes]
        bounds += [] if changes else [float(at)]
    *start, end = bounds
    return world(rows, end, start=start[0] if start else 0, units_per_node=per)


def make(
    name: str = "j",
    rates: Sequence[float] = (0, 10, 18, 24),
    *,
    at: float = 0,
    up: float = 0,
    down: float = 0,
    due: float | None = None,
    **more: Any,
) -> Job:
    """A job with these rates on 0, 1, ... units, times what `by_kind` has; what is no field of a job is a column."""
    curve = Curve(np.arange(len(rates)), np.array(rates, dtype=float))
    columns = {key: more.pop(key) for key in more.keys() - OF_JOBS}
    factors = more.pop("by_kind", {})
    on = {kind: Curve(curve.ns, factor * curve.ps) for kind, factor in factors.items()}
    usual = {"jmin": 1, "jmax": len(rates) - 1, "pmax": 1e9}
    return Job(
        name,
        instant(at),
        tcup_s=up,
        tcdw_s=down,
        scalability=curve,
        objective=curve,
        deadline_ns=None if due is None else instant(due),
        by_kind={kind: (each, each) for kind, each in on.items()},
        extra=MappingProxyType(columns),
        **{**usual, **more},
    )


def rigid(name: str = "j", units: int = 1, seconds: float = 100.0, **more: Any) -> Job:
    """A job that takes so long on this number of units and runs on no other."""
    rates = [0.0] * units + [1.0]
    return make(name, rates, **{"pmax": seconds, "jmin": units, **more})


def between(rows: list[list[Any]], **given: Any) -> Interference:
    """Sharing by rows of two models, their ratios and, where it is stated, the units."""
    columns = ["model_a", "model_b", "xi_a", "xi_b", "units"][: len(rows[0])]
    return Interference(xi_from_frame(pd.DataFrame(rows, columns=columns)), **given)


def known(ratios: Mapping[tuple[str, str], Any], **given: Any) -> Interference:
    """The ratios of pairs of models: of both, or of both and the units."""
    return between([[*models, *of] for models, of in ratios.items()], **given)


# --- policies ---------------------------------------------------------------------------------------------------------


def greedy(state: State) -> list[int]:
    """First come first served, as much as fits."""
    left, counts = state.idle, []
    for view in state.jobs:
        n = min(view.job.jmax, left)
        counts.append(n if n >= view.job.jmin else 0)
        left -= counts[-1]
    return counts


def keep_one(state: State) -> list[int]:
    """One unit for each job, in order, as far as they go."""
    return [1 if k < state.idle else 0 for k in range(len(state.jobs))]


def start_all(state: State) -> Decision:
    """Each waiting job gets its request, first come first served."""
    places = state.machine.placement()
    found: dict[int, tuple[int, ...]] = {}
    for position, view in enumerate(state.jobs):
        if not view.units and (units := places.take(view.job.request)) is not None:
            found[position] = units
    return Decision.placed(found)


def regrow(state: State) -> list[int]:
    """Each job keeps its units; one without gets its request if that is there."""
    return [
        view.units or view.job.request * (state.idle >= view.job.request)
        for view in state.jobs
    ]


def joins(state: State) -> Decision:
    """Each waiting job sits on unit 0, beside whoever is there."""
    return Decision.placed(dict.fromkeys(state.jobs.waiting, (0,)))


Answer = Callable[[State], Sequence[Any] | Decision]
ANSWERS: dict[str, Answer] = {
    "greedy": greedy,
    "one": keep_one,
    "requests": start_all,
    "regrow": regrow,
    "joins": joins,
}


@dataclass
class Scripted:
    """Answers by a function, and remembers when it was asked what."""

    answer: Answer = greedy
    traits: Traits = Traits()
    name: str = "scripted"
    every_s: float = 0.0  # when it asks to be woken
    seen: list[State] = field(default_factory=list)

    def decide(self, state: State) -> Decision:
        self.seen.append(state)
        answer = self.answer(state)
        decision = answer if isinstance(answer, Decision) else Decision(tuple(answer))
        if not self.every_s:
            return decision
        return decision.waking(state.time_ns + round(self.every_s * SECOND))

    @property
    def asked(self) -> list[Any]:
        """Second, idle units, and units of each job."""
        return [
            [second(s.time_ns), s.idle, {view.job.name: view.units for view in s.jobs}]
            for s in self.seen
        ]


def planned(plan: Mapping[Any, Any]) -> Answer:
    """Counts, or units by job, by second; in between everybody keeps what it has."""
    by_second = {float(at): answer for at, answer in plan.items()}

    def answer(state: State) -> Decision:
        now = second(state.time_ns) or 0.0
        wake = min((instant(at) for at in by_second if at > now), default=None)
        found = by_second.get(now, {})
        if isinstance(found, list):
            return Decision(tuple(found), wake_ns=wake)
        if "counts" in found:
            kinds = tuple(kind or None for kind in found["kinds"])
            return Decision(tuple(found["counts"]), kinds=kinds, wake_ns=wake)
        names = state.jobs.positions
        return Decision.placed({names[j]: of for j, of in found.items()}, wake_ns=wake)

    return answer


def replay(
    trace: NodeTrace, jobs: Sequence[Job], policy: Policy | None = None, **rules: Any
) -> Outcome:
    """Replay; an `interference` is among the rules."""
    xi = rules.pop("interference", None)
    made = Rules(**{"max_jobs": 0, **rules})
    return Replay(trace, JobTable(tuple(jobs)), policy or Scripted(), made, xi).run()


def spans(outcome: Outcome) -> list[tuple[float | None, float | None]]:
    """Start and finish of each job."""
    return [(second(r.start_ns), second(r.finish_ns)) for r in outcome.records]


def everything(outcome: Outcome) -> list[Any]:
    """All that a replay has yielded, to the bit."""
    tables = (outcome.steps, outcome.allocations, outcome.scores)
    sums = ("idle_unit_seconds", "used_unit_seconds", "extra_gain", "paid", "work")
    length = outcome.end_ns - outcome.start_ns
    instants = range(outcome.start_ns, outcome.end_ns, length // 50 + 1)
    return [
        *(
            {of: getattr(r, of) for of in r.__slots__} | {"job": r.job.name}
            for r in outcome.records
        ),
        *(None if table is None else table.to_csv() for table in tables),
        *(getattr(outcome, name) for name in sums),
        *map(outcome.work_at, instants),
    ]


Saved = tuple[str, dict[str, list[bytes]]]


def saved(replay: Replay) -> Saved:
    """The state of a replay between two steps as a checkpoint keeps it, without a file: JSON, and past tables."""
    tables = {name: list(table.saved()) for name, table in replay.tables.items()}
    return json.dumps(replay.state()), tables


def resume(fresh: Replay, state: Saved) -> None:
    """Bring a new replay to a state."""
    for name, table in fresh.tables.items():
        table.restore(state[1][name])
    fresh.restore(json.loads(state[0]))


# --- cases ------------------------------------------------------------------------------------------------------------

Case = dict[str, Any]


def variants(path: Path) -> Iterator[Any]:
    """The cases of a file, each of their variants, as parameters of a test."""
    for name, stated in tomllib.loads(path.read_text("utf-8")).items():
        each = stated.pop("each", [{}])
        for number, variant in enumerate(each):
            case_id = f"{name}-{number}" if len(each) > 1 else name
            yield pytest.param(stated | variant, id=case_id)


def cases() -> Iterator[Any]:
    """All cases, those with several policies once with each."""
    for path in sorted(DATA.glob("*.toml")):
        for one in variants(path):
            (case,) = one.values
            policies = case.get("policy", "")
            for policy in [policies] if isinstance(policies, str) else policies:
                name = f"{one.id}-{policy}" if policy else one.id
                yield pytest.param(case | {"policy": policy}, id=name)


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def pairs(words: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE, UNITSxSECONDS and START-FINISH."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        short = re.fullmatch(r"([\d.]*)([x-])([\d.]*)", word)
        if equals:
            found[key] = value(text)
        elif short:
            names = ("units", "seconds") if short[2] == "x" else ("start", "finish")
            found |= zip(
                names, (value(short[k] or "null") for k in (1, 3)), strict=True
            )
        else:
            raise ValueError(word)
    return found


def parsed(case: Case) -> tuple[list[Job], list[dict[str, Any]]]:
    """The jobs, and what must become of each."""
    jobs, told = [], []
    for line in case["jobs"].strip().splitlines():
        stated, _, expected = line.partition("->")
        name, *words = stated.split()
        given = pairs(words)
        jobs.append((rigid if "units" in given else make)(name, **given))
        told.append(pairs(expected.split()))
    if "told" in case:
        told = [pairs(line.split()) for line in case["told"].strip().splitlines()]
    return jobs, told


def close(expected: Any) -> Any:
    """What a found value is compared with."""
    if isinstance(expected, float):
        return pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
    if isinstance(expected, list):
        return [close(each) for each in expected]
    if isinstance(expected, dict):
        return {key: close(each) for key, each in expected.items()}
    return expected


def plain(found: Any) -> Any:
    """A found value as TOML can state it, which knows no null."""
    if found is None:
        return math.nan
    if isinstance(found, dict):
        return {key: plain(each) for key, each in found.items()}
    return [plain(each) for each in found] if isinstance(found, list) else found


def held(outcome: Outcome, job: int) -> str:
    """What a job held, UNIT:FROM-TO."""
    rows = outcome.allocations
    found = sorted(
        (unit, start, end)
        for j, first, last, start, end in rows.itertuples(index=False)
        for unit in range(first, last + 1)
        if j == job
    )
    return ",".join(
        f"{unit}:{second(start):g}-{second(end):g}" for unit, start, end in found
    )


def of_job(outcome: Outcome, job: int, name: str) -> Any:
    """A field of a record, an instant in seconds, or what the job held."""
    record = outcome.records[job]
    if name == "held":
        return held(outcome, job)
    if name in ("start", "finish", "cancelled", "refused"):
        return second(getattr(record, f"{name}_ns"))
    return getattr(record, name)


def flat(figures: Mapping[str, Any], name: str) -> Any:
    """A figure by its path with dots."""
    for key in name.split("."):
        figures = figures[key]
    return figures


def policy_of(case: Case, xi: Interference | None) -> Policy:
    if not case["policy"]:
        plan = case.get("plan", "greedy")
        answer = ANSWERS[plan] if isinstance(plan, str) else planned(plan)
        traits = Traits(**dict.fromkeys(case.get("traits", ()), True))
        return Scripted(answer, traits, every_s=case.get("every", 0.0))
    kind = policy_type(case["policy"])
    run = {"tfwd_s": 120.0, "solver": SolverOptions("auto"), "interference": xi}
    run = {name: run[name] for name in run.keys() & kind.settings}
    constants = {
        name: tuple(of) if isinstance(of, list) else of
        for name, of in case.get("set", {}).items()
    }
    return kind.factory(**{**run, **constants})


def rules_of(case: Case) -> dict[str, Any]:
    return {
        name: tuple(map(tuple, of)) if isinstance(of, list) else of
        for name, of in case.get("rules", {}).items()
    }


def made(case: Case) -> Replay:
    if "trace" in case:
        trace = traced(case["trace"], case.get("per", 1))
    else:
        trace = cluster(*map(int, case["cluster"].split("x")))
    xi = None
    if "xi" in case:
        rows = [row.split() for row in case["xi"].split(",")]
        stated = dict(case.get("sharing", {}))
        if "forbidden" in stated:
            stated["forbidden"] = frozenset({frozenset(stated["forbidden"])})
        if "memory" in stated:
            known = [row.split() for row in stated["memory"].split(",")]
            stated["memory"] = UnitMemory([(m, int(n), float(x)) for m, n, x in known])
        xi = between([[*row[:2], *map(float, row[2:])] for row in rows], **stated)
    rules = Rules(**{"max_jobs": 0, **rules_of(case)})
    nodes = replace(trace, kinds=tuple(case.get("kinds", ())))
    table = JobTable(tuple(parsed(case)[0]))
    return Replay(nodes, table, policy_of(case, xi), rules, xi)


def decided(outcome: Outcome) -> pd.DataFrame:
    return outcome.steps[outcome.steps["status"] != "end"]


def told(policy: Scripted, what: str) -> Any:
    """What a policy was shown at its decisions: of jobs that had finished, or a field of those in play."""
    if what == "finished":
        of = attrgetter("job.name", "executed_s", "unit_seconds")
        return [[list(of(view)) for view in state.finished] for state in policy.seen]
    found = [getattr(view, what) for state in policy.seen for view in state.jobs]
    return [second(of) for of in found] if what.endswith("_ns") else found


def check(case: Case) -> None:
    """Replay a case, and compare; and resume it in the middle, which changes nothing."""
    if "error" in case:
        with pytest.raises(Exception, match=case["error"]):
            made(case).run()
        return
    replayed = made(case)
    outcome = replayed.run()
    for job, expected in enumerate(parsed(case)[1]):
        found = {name: of_job(outcome, job, name) for name in expected}
        assert found == close(expected), outcome.records[job].job.name
    for name, expected in case.get("outcome", {}).items():
        at = name in ("start", "end")
        found = second(getattr(outcome, f"{name}_ns")) if at else getattr(outcome, name)
        assert found == close(expected), name
    steps = decided(outcome)
    if "decisions" in case:
        times = steps["time"].astype("int64")
        assert [second(time) for time in times] == close(case["decisions"])
    for name, expected in case.get("steps", {}).items():
        assert outcome.steps[name].tolist() == close(expected), name
    if isinstance(replayed.policy, Scripted):
        policy = replayed.policy
        assert policy.asked == case.get("asked", policy.asked)
        if "finished" in case:
            assert told(policy, "finished") == case["finished"]
        for name, expected in case.get("shown", {}).items():
            assert plain(told(policy, name)) == close(expected), name
    if "summary" in case:
        dedicated = [
            replay(trace, parsed(case)[0], policy_of(case, None), **rules_of(case))
            for trace in (dedicated_traces(outcome) if "U" in case["summary"] else ())
        ]
        figures = summarise(outcome, dedicated)
        for name, expected in case["summary"].items():
            assert plain(flat(figures, name)) == close(expected), name
    if "host" in case:
        figures = host_metrics(outcome, replayed.rules.return_time_s)
        for name, expected in case["host"].items():
            assert plain(flat(figures, name)) == close(expected), name
    half, rest = made(case), made(case)
    for _ in range(len(steps) // 2):
        half.step()
    resume(rest, saved(half))
    assert everything(rest.run()) == everything(outcome)
