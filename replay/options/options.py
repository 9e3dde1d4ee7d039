"""Everything that decides a replay's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from bft.models.checks import (
    Arrival,
    Assignment,
    Check,
    Flag,
    Maybe,
    Name,
    Number,
    Pair,
    SecondsBySize,
    Several,
    Text,
    Watts,
    check_fields,
    checked,
    did_you_mean,
    seconds,
    whole,
)
from bft.models.errors import InputError
from bft.models.objective_terms import ObjectiveText
from bft.models.searches.port import Workload
from bft.models.searches.registry import make_workload
from bft.replay.engine.rules import Rules
from bft.replay.options.effects import LUCID_CONSTANTS, check_constants, contradictions, kind_of
from bft.replay.policies.solver import SolverOptions

# Other formats of job tables -> their readers.
JOB_FORMATS = {
    "tiresias": "bft.models.workloads.jobs_tiresias:read_tiresias_jobs",
    "venus": "bft.models.workloads.jobs_venus:read_venus_jobs",
    "pollux": "bft.models.workloads.jobs_pollux:read_pollux_jobs",
    "philly": "bft.models.workloads.jobs_philly:read_philly_jobs",
    "swf": "bft.models.workloads.jobs_swf:read_swf_jobs",
}
# Jobs in play at once where nodes come and go, as published; on a fixed cluster all are.
MAX_JOBS = 10
# What a decision may take, as published, seconds.
DECISION_LIMIT_S = 10.0
# What Pollux' artifact charges for every start, seconds.
POLLUX_START_S = 30.0
# What a restart of a preempted job costs in Lucid's artifact: units, seconds.
LUCID_RESTARTS = ((8, 40.0), (64, 60.0))
# -Tfwd as published, seconds.
FORWARD_S = 10.0
# Presets (docs/beyond.md) -> the values of their options; options given beside a preset take precedence.
PRESETS: dict[str, dict[str, Any]] = {
    "best": {"tfwd_s": 60.0, "objective": "power:0.5+ageing:60:2", "max_jobs": 0, "backend": "auto"},
}
# A default that depends on other options: `Options` fills it in (_DEFAULTS).
_DEPENDS: Any = None

_FILE: Check = Maybe(Text())


def _policies() -> Iterator[str]:
    from bft.replay.policies.registry import each_policy_name

    return each_policy_name()


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that decides a replay's result; recorded in summary.json.

    The values check themselves, so that the command line, config files and Python share one set of errors. Names are
    taken in capitals or not, paths as text or `Path`, whole numbers where seconds are expected. `policy`, `oversized`,
    `tfwd_s`, `objective`, `rules` and `solver` have defaults that depend on other options; once made, they hold what
    applies.

    Parameters
    ----------
    rules
        How the world works. One that is given holds as it is; without, or by `Options.of`, `--cluster` and `--preset`
        let all jobs be in play, and `--compat` sets the overheads of a start.
    solver
        What solves a decision. One that is given holds as it is; without, or by `Options.of`, a decision may take 10 s.

    Raises
    ------
    InputError
        When a value is not allowed, or does not go with another; names the option as the command line does.

    Examples
    --------
    >>> Options(tfwd_s=120).rules.max_jobs
    10
    >>> Options.of(tfwd_s=120, backend="exact", max_jobs=5) == Options(
    ...     tfwd_s=120, rules=Rules(max_jobs=5), solver=SolverOptions("exact", time_limit_s=10)
    ... )
    True
    >>> Options(tfwd_s=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: -Tfwd: expected a number of seconds > 0 and at most 1e+09, not -1
    """

    node_trace: str | None = checked("-ndmap", _FILE, None)
    job_bounds: str | None = checked("-bdfn", _FILE, None)
    job_curves: str | None = checked("-scfn", _FILE, None)
    jobs: str | None = checked("--jobs", _FILE, None)
    jobs_format: str = checked("--jobs-format", Name(("native", *JOB_FORMATS)), "native")
    applications: str | None = checked("--applications", _FILE, None)
    align_jobs: bool = checked("--align-jobs", Flag(), default=False)
    repeat: int = checked("--repeat", Number(1, 10_000, whole=True), 1)
    cap_units: int | None = checked("--cap-units", Maybe(whole(1)), None)
    shuffle_submits: bool = checked("--shuffle-submits", Flag(), default=False)
    arrival: str | None = checked("--arrival", Maybe(Arrival()), None)
    scale_arrivals: float = checked("--scale-arrivals", Number(0, 1e6), 1.0)
    workload: str | None = checked("--workload", Maybe(Text()), None)
    oversized: Literal["refuse", "skip", "cap"] = checked(
        "--oversized", Maybe(Name(("refuse", "skip", "cap"))), _DEPENDS
    )
    cluster: str | None = checked("--cluster", _FILE, None)
    first_node: int = checked("-nis", whole(0), 0)
    node_count: int | None = checked("-nN", Maybe(whole(1)), None)
    skip_rows: int | None = checked("--skip-rows", Maybe(whole(0)), None)
    sort: bool = checked("--sort", Flag(), default=False)
    walltimes: str | None = checked("--walltimes", _FILE, None)
    kinds: str | None = checked("--kinds", _FILE, None)
    policy: str = checked("--policy", Maybe(Name(_policies)), _DEPENDS)
    policy_options: tuple[tuple[str, str], ...] = checked("--set", Several(Assignment()), ())
    preset: Literal["best"] | None = checked("--preset", Maybe(Name(tuple(PRESETS))), None)
    tfwd_s: float = checked("-Tfwd", Maybe(seconds()), _DEPENDS)
    objective: str = checked("--objective", Maybe(ObjectiveText()), _DEPENDS)
    curves: Literal["known", "learn", "profile"] = checked("--curves", Name(("known", "learn", "profile")), "known")
    deadline_boost: float = checked("--deadline-boost", Number(1), 1.0)
    deadline_horizon_s: float = checked("--deadline-horizon", seconds(), 86_400.0)
    seed: int = checked("--seed", whole(0), 0)
    xi: str | None = checked("--xi", _FILE, None)
    xi_max: float | None = checked("--xi-max", Maybe(Number(1)), None)
    xi_partners: int = checked("--xi-partners", whole(1), 3)
    unit_memory_gib: float | None = checked("--unit-memory", Maybe(Number(0, above=True)), None)
    memory_table: str | None = checked("--memory-table", _FILE, None)
    sub_batch: float = checked("--sub-batch", Number(0, 1, above=True), 0.5)
    forbid: tuple[tuple[str, str], ...] = checked("--forbid", Several(Pair()), ())
    compat: Literal["reference", "lucid", "pollux"] | None = checked(
        "--compat", Maybe(Name(("reference", "lucid", "pollux"))), None
    )
    dedicated: bool = checked("--no-u", Flag(), default=True)
    bound: bool = checked("--bound", Flag(), default=False)
    node_watts: tuple[float, float] | None = checked("--node-watts", Maybe(Watts()), None)
    price_per_node_hour: float | None = checked("--price-per-node-hour", Maybe(Number(0, 1e9)), None)
    co2_per_kwh: float | None = checked("--co2-per-kwh", Maybe(Number(0, 1e5)), None)
    rules: Rules = _DEPENDS
    solver: SolverOptions = _DEPENDS

    def __post_init__(self) -> None:
        check_fields(self)
        for name, default in _DEFAULTS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default(self))
        for name, kind in PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"{name}: expected {kind.__name__}(...), not {getattr(self, name)!r}")
        what = next(contradictions(self), None)
        if what is not None:
            raise InputError(what)
        check_constants(self.policy, self.constants)
        self.make_workload()

    @classmethod
    def of(cls, **stated: Any) -> Options:
        """Options by their flat names, as in summary.json and on the command line; others have their defaults.

        None, where a default depends on other options, counts as not stated.

        Raises
        ------
        InputError
            As for the class, and for an unknown name.
        """
        unknown = next((name for name in stated if name not in FIELDS), None)
        if unknown is not None:
            raise InputError(f"unknown option {unknown!r}{did_you_mean(unknown, FIELDS)}")
        given: dict[str, dict[str, Any]] = {part: {} for part in ("", *PARTS)}
        for name, value in stated.items():
            if value is not None or name not in DEPENDENT:
                given[FIELDS[name].part][name] = value
        options = cls(**given[""])
        return replace(options, **{part: replace(getattr(options, part), **given[part]) for part in PARTS})

    def flat(self) -> dict[str, Any]:
        """Every option by its flat name, as summary.json records it."""
        return {name: each.of(self) for name, each in FIELDS.items()}

    def defaults(self) -> dict[str, Any]:
        """What each option is unless it is given, beside the others as they are; by flat name."""
        filled = {name: _DEFAULTS[name](self) for name in _DEFAULTS}
        return {
            name: getattr(filled[each.part], name) if each.part else filled.get(name, each.default)
            for name, each in FIELDS.items()
        }

    def changed(self) -> dict[str, str]:
        """Options that differ from their defaults: their flags on the command line, by flat name."""
        defaults = self.defaults()
        return {name: FIELDS[name].flag for name, value in self.flat().items() if value != defaults[name]}

    def from_preset(self, name: str, otherwise: Any) -> Any:
        """The preset's value of an option, or `otherwise`."""
        return PRESETS.get(self.preset or "", {}).get(name, otherwise)

    def make_workload(self) -> Workload | None:
        """The workload that submits and cancels jobs during a replay, a new one for each replay; None without one.

        Raises
        ------
        InputError
            When there is no such workload, or a value of its constants does not fit.
        """
        return None if self.workload is None else make_workload(self.workload, {"seed": self.seed})

    @property
    def constants(self) -> dict[str, str]:
        """What is set of the policy's own constants, as text by name; --set wins over --compat."""
        return {**(LUCID_CONSTANTS[self.policy] if self.compat == "lucid" else {}), **dict(self.policy_options)}


def _rules(options: Options) -> Rules:
    pollux = options.compat == "pollux"
    # Lucid itself does not preempt.
    lucid = LUCID_RESTARTS if options.compat == "lucid" and options.policy != "lucid" else ()
    return Rules(
        max_jobs=options.from_preset("max_jobs", MAX_JOBS if options.cluster is None else 0),
        start_overhead_s=POLLUX_START_S if pollux else 0.0,
        restart_overhead=SecondsBySize()(POLLUX_START_S) if pollux else lucid,
    )


# Defaults that depend on other options, in an order in which those stand before.
_DEFAULTS: dict[str, Callable[[Options], Any]] = {
    "policy": lambda o: "milp" if o.xi is None else "milp-sharing",
    # A queue of rigid jobs could wait for ever behind one that never runs.
    "oversized": lambda o: "refuse" if kind_of(o.policy).rigid else "skip",
    "tfwd_s": lambda o: o.from_preset("tfwd_s", FORWARD_S),
    "objective": lambda o: o.from_preset("objective", "own"),
    "rules": _rules,
    "solver": lambda o: SolverOptions(o.from_preset("backend", "cbc"), time_limit_s=DECISION_LIMIT_S),
}
# Of the rules and the solver's options those whose default depends on other options.
DEPENDENT = ("max_jobs", "start_overhead_s", "restart_overhead", "backend")
# Options that are values of several options.
PARTS: dict[str, type[Any]] = {"rules": Rules, "solver": SolverOptions}


@dataclass(frozen=True, slots=True)
class OptionField:
    """Where an option lies, and how the command line has it.

    Parameters
    ----------
    name
        Its flat name.
    part
        The part of `Options` that holds it; empty for `Options` itself.
    flag
        What the command line and errors call it.
    check
        What it may be.
    default
        What it is unless stated; None where that depends on other options.
    """

    name: str
    part: str
    flag: str
    check: Check
    default: Any

    def of(self, options: Options) -> Any:
        """What it is."""
        return getattr(getattr(options, self.part) if self.part else options, self.name)


def _fields() -> dict[str, OptionField]:
    places = [("", Options), *PARTS.items()]
    filled = [
        OptionField(each.name, part, each.metadata["flag"], each.metadata["check"], each.default)
        for part, kind in places
        for each in fields(kind)
        if each.name not in PARTS
    ]
    depend = {"time_limit_s": DECISION_LIMIT_S} | dict.fromkeys(DEPENDENT)
    return {each.name: replace(each, default=depend.get(each.name, each.default)) for each in filled}


# Every option by its flat name, in the order in which they are reported.
FIELDS = _fields()
