"""Random worlds for Hypothesis: node traces, job tables and rules of a replay, and for the net all options together."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from rules.world import SECOND
from strategies import sizes

from bft.models import Curve, Job, JobTable, write_jobs
from bft.replay import NodeTrace, Rules, from_changes, write_trace
from bft.replay.options.options import FIELDS

START = 1_613_000_040 * SECOND  # a whole minute


@st.composite
def traces(draw: st.DrawFn, *, leaves: bool = True, most_nodes: int = 4) -> NodeTrace:
    nodes = draw(st.integers(most_nodes - 2, most_nodes))
    idle = st.booleans() if leaves else st.just(True)
    later = st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, nodes - 1), idle),
        min_size=2,
        max_size=16,
    )
    # Most nodes are idle at first: where nothing is, nothing happens.
    rows = [
        (0, node, draw(st.sampled_from([True, True, True, False])))
        for node in range(nodes)
    ] + draw(later)
    rows.sort(key=lambda row: row[0])
    times = START + np.array([row[0] for row in rows], dtype=np.int64) * SECOND
    return from_changes(
        [f"n{i}" for i in range(nodes)],
        times,
        np.array([row[1] for row in rows], dtype=np.int32),
        np.array([row[2] for row in rows], dtype=bool),
        start=START - draw(st.sampled_from([0, 0, 2])) * SECOND,
        end=int(times[-1]) + draw(st.sampled_from([0, 40, 200, 200])) * SECOND,
        units_per_node=draw(st.sampled_from([1, 1, 2, 3])),
    )


@st.composite
def tables(draw: st.DrawFn, *, few: bool = False) -> JobTable:
    jobs = []
    for k in range(draw(st.integers(2, 4) if few else st.integers(4, 8))):
        jmax = draw(st.integers(1, 5))
        jmin = draw(st.integers(0, jmax))
        some = draw(sizes(jmin, jmax))
        rates = st.sampled_from([1.0, 2.0, 4.0, 1.0, 2.0, 4.0, 0.0])
        curve = Curve(
            np.arange(jmax + 1), np.array([0.0, *(draw(rates) for _ in range(jmax))])
        )
        submit = START + draw(st.integers(-3, 20)) * SECOND
        deadline = draw(
            st.none()
            | st.none()
            | st.integers(1, 60).map(lambda s, submit=submit: submit + s * SECOND)
        )
        jobs.append(
            Job(
                name=f"j{k}",
                tsub_ns=submit,
                jmin=jmin,
                jmax=jmax,
                pmax=float(draw(st.integers(10, 90))),
                tcup_s=float(draw(st.integers(0, 4))),
                tcdw_s=float(draw(st.integers(0, 4))),
                scalability=curve,
                objective=curve,
                jreq=draw(
                    st.none() | st.sampled_from(some or range(max(jmin, 1), jmax + 1))
                ),
                weight=draw(st.sampled_from([1.0, 1.0, 2.0])),
                user=draw(st.sampled_from("pq")),
                vc=draw(st.sampled_from("ab")),
                deadline_ns=deadline,
                skew=draw(st.sampled_from([None, 1.0, 5.0])),
                spread_slowdown=draw(st.sampled_from([1.0, 2.0])),
                sizes=some,
                extra={"estimate_s": float(draw(st.integers(5, 60)))},
            )
        )
    return JobTable(tuple(jobs))


any_rules = st.builds(
    Rules,
    max_jobs=st.sampled_from([0, 0, 2, 3]),
    cost_model=st.sampled_from(["bftrainer", "stall"]),
    events=st.sampled_from(["all", "all", "all", "node"]),
    min_interval_s=st.sampled_from([0.0, 0.0, 0.0, 3.0, 7.0]),
    checkpoint_interval_s=st.sampled_from([0.0, 3.0, 7.0, 600.0]),
    start_overhead_s=st.sampled_from([0.0, 0.0, 2.0, 30.0]),
    restart_overhead=st.sampled_from([(), ((1, 1.0), (2, 5.0))]),
    restart_overlap=st.sampled_from([0.0, 0.5, 1.0]),
    network_interference=st.sampled_from([0.0, 0.0, 0.5]),
    admission=st.sampled_from(["all", "deadline"]),
    admission_units=st.sampled_from([None, None, 2]),
)


# --- a whole replay, all options drawn together -----------------------------------------------------------------------

Options = dict[str, Any]
RARE = {field.key for field in FIELDS.values() if field.rare}
KINDS = ("fast", "slow")


@dataclass(frozen=True)
class Case:
    """A replay as somebody asks for it: input files, and options by their names in Python.

    `xi`: (xi_a, xi_b) by pair of models. `kinds`: one for each node.
    """

    trace: NodeTrace
    jobs: JobTable
    options: Options
    xi: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()

    def write(self, folder: Path) -> Options:
        """Write the files into a folder; return all options, those that name the files first."""
        write_trace(self.trace, folder / "trace.parquet")
        write_jobs(self.jobs, folder / "jobs.parquet")
        named = {"trace": "trace.parquet", "jobs": "jobs.parquet"}
        if self.xi:
            pairs = [(*models, *ratios) for models, ratios in self.xi.items()]
            _write(folder / "xi.csv", ("model_a", "model_b", "xi_a", "xi_b"), pairs)
            named["xi"] = "xi.csv"
        if self.kinds:
            of_nodes = list(zip(self.trace.nodes, self.kinds, strict=True))
            _write(folder / "kinds.csv", ("node", "kind"), of_nodes)
            named["kinds"] = "kinds.csv"
        return {**named, **self.options}

    def but(self, **changes: Any) -> Case:
        """The same replay with other options."""
        return replace(self, options={**self.options, **changes})


def _write(path: Path, head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def words(options: Options) -> Iterator[str]:
    """The options as words of the command line."""
    for name, value in options.items():
        flag = {"trace": "-ndmap", "tfwd": "-Tfwd"}.get(
            name, f"--{name.replace('_', '-')}"
        )
        if name == "policy_options":
            for constant, text in value.items():
                yield from ("--set", f"{constant}={text}")
        elif flag[2:] in RARE:
            for text in texts(name, value):
                yield from ("--option", f"{flag[2:]}={text}")
        elif value is False:
            yield {"dedicated": "--no-u"}.get(name, f"--no-{flag[2:]}")
        elif value is True:
            yield flag
        else:
            for text in texts(name, value):
                yield from (flag, text)


def texts(name: str, value: Any) -> list[str]:
    """The value of an option as the command line has it, or several."""
    if name == "forbid":
        return [",".join(pair) for pair in value]
    if isinstance(value, tuple):
        return [",".join(f"{units}:{seconds}" for units, seconds in value)]
    return [
        {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    ]


def some(**drawn: st.SearchStrategy[Any]) -> st.SearchStrategy[Options]:
    """Some of these options."""
    return st.fixed_dictionaries({}, optional=drawn)


ALWAYS = some(
    max_jobs=st.sampled_from([0, 0, 1, 2, 3]),
    cost_model=st.just("stall"),
    events=st.just("node"),
    min_interval=st.sampled_from([1.0, 3.0]),
    checkpoint_interval=st.sampled_from([0.0, 3.0, 7.0]),
    start_overhead=st.sampled_from([2.0, 9.0]),
    network_interference=st.just(0.5),
    seed=st.integers(1, 3),
    shuffle_submits=st.just(True),
    scale_arrivals=st.just(2.0),
    align_jobs=st.just(True),
    repeat=st.just(2),
    price_per_node_hour=st.just(2.0),
)


def some_and(
    stated: st.SearchStrategy[Options], **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[Options]:
    """Some of these options, and where there are any, some of those that need one."""
    both = st.tuples(stated, some(**more))
    return both.map(lambda two: {**two[0], **two[1]} if two[0] else {})


RESTARTS = some_and(
    some(restart_overhead=st.sampled_from([((1, 1.0), (2, 5.0)), ((8, 3.0),)])),
    restart_overlap=st.sampled_from([0.5, 1.0]),
)
# What --option kinds does not go with, each on its own: options of the world, and of milp.
HOST = some_and(
    some(
        return_time=st.sampled_from([1.0, 5.0, 60.0]),
        reserve=st.sampled_from([1, 1, 3]),
    ),
    free_first=st.just(False),
)
ADMISSION = some_and(some(admission=st.just("deadline")), admission_units=st.just(2))
SIZES = some(cap_units=st.sampled_from([2, 3, 4]))
MILP = some(
    tfwd=st.sampled_from([1.0, 10.0, 60.0, 60.0]),
    objective=st.sampled_from(
        [
            "throughput",
            "efficiency",
            "power:0.5",
            "useful-time",
            "own+srpt:0.5",
            "power:0.5+ageing:0.01:2",
        ]
    ),
    deadline_boost=st.just(5.0),
)
SOLVERS = st.sampled_from(
    [{}, {"backend": "exact"}, {"backend": "exact"}, {"backend": "highs"}]
)
CURVES = some(curves=st.sampled_from(["learn", "profile"]))
SHARED = some(
    xi_max=st.just(1.5), xi_partners=st.just(1), forbid=st.just((("m0", "m1"),))
)

_YES_NO = st.sampled_from(["yes", "no"])
_CONSOLIDATED = {"consolidate": _YES_NO}
_ROUNDS = {"interval_s": st.sampled_from(["0", "5"])}
_QUEUED = {"backfill": _YES_NO, **_CONSOLIDATED}
_TIRESIAS = {
    **_ROUNDS,
    "limits": st.sampled_from(["3,9", "5"]),
    "promote": st.sampled_from(["1", "2"]),
    "placement": st.sampled_from(["all", "none"]),
}
# Policies, and values of their constants.
ALONE: dict[str, dict[str, st.SearchStrategy[str]]] = {
    "milp": {
        "remaining": st.just("predicted"),
        "profile_s": st.just("3"),
        "profile_sizes": st.just("2"),
    },
    "equal-share": {},
    "fifo": _QUEUED,
    "sjf": _QUEUED,
    "srtf": {"by": st.sampled_from(["unit-time", "units"]), **_CONSOLIDATED},
    "qssf": _QUEUED,
    "yarn-cs": {"by": st.just("user"), "max_share": st.just("0.5"), **_CONSOLIDATED},
    "optimus": _ROUNDS,
    "tiresias-l": _TIRESIAS,
    "tiresias-g": {**_TIRESIAS, "delta": st.just("9")},
    "sia": {**_ROUNDS, "power": st.sampled_from(["-1", "0.5"])},
    "pollux": {**_ROUNDS, "avoid": _YES_NO},
}
SHARES: dict[str, dict[str, st.SearchStrategy[str]]] = {
    "milp-sharing": {},
    "lucid": {"switch_s": st.just("3"), "quiet_jobs": st.just("0")},
    "srtf-ars": _CONSOLIDATED,
    "srtf-wrs": {"helps": st.just("speed"), **_CONSOLIDATED},
    "sjf-bsbf": _CONSOLIDATED,
}
OF_KINDS = ("milp", "sia")
EVERY = ("milp", "milp", "milp", "milp", *ALONE, *SHARES, "milp-sharing")


@st.composite
def cases(
    draw: st.DrawFn, policies: tuple[str, ...] = EVERY, *, kinds: bool | None = None
) -> Case:
    """A replay with any options that go together; `kinds`: whether units have kinds, None for either."""
    policy = draw(st.sampled_from(policies))
    trace = draw(traces(most_nodes=6).filter(lambda trace: bool(len(trace.joined))))
    of_nodes: tuple[str, ...] = ()
    if policy in OF_KINDS and kinds is not False:
        of_each = st.tuples(*[st.sampled_from(KINDS)] * len(trace.nodes))
        of_nodes = draw(of_each if kinds else st.just(()) | of_each)
    shares = policy in SHARES
    constants = {**ALONE, **SHARES}[policy]
    options: Options = {
        "policy": policy,
        "oversized": "skip",
        "dedicated": draw(st.booleans()),
    }
    parts = [ALWAYS, RESTARTS]
    if policy in ("milp", "milp-sharing", "sia"):
        parts.append(
            SOLVERS if not shares else st.sampled_from([{}, {"backend": "highs"}])
        )
    if policy in ("milp", "milp-sharing"):
        parts.append(MILP)
    if shares:
        parts.append(SHARED)
    if not of_nodes:
        options["oversized"] = draw(st.sampled_from(["cap", "cap", "skip"]))
        parts += [HOST, ADMISSION, SIZES]
        if policy in ("milp", "milp-sharing"):
            parts.append(CURVES)
    for part in parts:
        options |= draw(part)
    stated = draw(some(**constants))
    if policy == "pollux":
        stated |= {"population": "4", "generations": "2"}
    if policy == "lucid":
        stated |= {"estimator": "none", "packing": "no"}
    if stated:
        options["policy_options"] = stated
    if options["dedicated"]:
        del options["dedicated"]
    jobs = [_more(draw, job) for job in draw(tables(few=True))]
    jobs[0] = replace(jobs[0], tsub_ns=min(jobs[0].tsub_ns, START), deadline_ns=None)
    xi = {}
    if shares:
        ratios = st.tuples(*[st.sampled_from([1.0, 1.1, 1.4, 2.5])] * 2)
        xi = draw(
            st.fixed_dictionaries(
                {("m0", "m1"): ratios}, optional={("m0", "m0"): ratios}
            )
        )
    return Case(trace, JobTable(tuple(jobs)), options, xi, of_nodes)


def _more(draw: st.DrawFn, job: Job) -> Job:
    """The job with an objective and curves of its own on some kinds, and a model."""
    rates = st.lists(
        st.sampled_from([1.0, 2.0, 3.0, 4.0, 4.5, 0.0]),
        min_size=job.jmax,
        max_size=job.jmax,
    )

    def curve() -> Curve:
        return Curve(np.arange(job.jmax + 1), np.array([0.0, *draw(rates)]))

    on = draw(st.sets(st.sampled_from(KINDS)))
    return replace(
        job,
        model=draw(st.sampled_from(["m0", "m1"])),
        objective=job.objective if draw(st.booleans()) else curve(),
        by_kind={kind: (curve(), curve()) for kind in KINDS if kind in on},
    )
