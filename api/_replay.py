"""Functions that need no run: a replay, one decision, a trace of logs, the bundled data set; and names of arguments."""

from __future__ import annotations

import copy
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import pandas as pd

from bft import milp
from bft._run import Run, path_of
from bft.milp import Problem, Solution
from bft.models import InputError, JobTable, XiTable, jobs_from_frame, xi_from_frame
from bft.models.checks import FLAG, refuse_unknown
from bft.models.errors import option_names
from bft.replay import Options, Policy
from bft.replay.cli.watcher import Shown
from bft.replay.inputs.files import Files
from bft.replay.inputs.notes import Notes, Watcher
from bft.replay.options.options import FIELDS, PRICES
from bft.replay.policies import PolicyError
from bft.replay.policies.registry import BUILT_IN, check_made, named, policy_type
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import trace_from_frame

if TYPE_CHECKING:
    from bft.replay.logs.ingest import IngestOptions

_log = logging.getLogger("bft.replay")


def replay(
    trace: str | Path | pd.DataFrame | NodeTrace | None = None,
    jobs: str | Path | Sequence[str | Path] | pd.DataFrame | JobTable | None = None,
    *,
    policy: str | Policy | Callable[..., Policy] | None = None,
    xi: str | Path | pd.DataFrame | XiTable | None = None,
    out: str | Path | None = None,
    force: bool = False,
    progress: bool = False,
    **options: Any,
) -> Run:
    """Replay jobs on a node trace: which job gets which idle node, and the outcome.

    Parameters
    ----------
    trace
        A file, a frame in one of its forms (docs/formats.md), or a `NodeTrace`; None: the bundled one.
    jobs
        A file, a list of files, a frame with one row per job, or a `JobTable`; None: the bundled ones, or beside a
        trace a generated workload.
    policy
        Who decides: one of `bft-replay list policies`; or a policy of your own, a class or an object with `name` and
        `decide(state)`. Default: milp, with `xi` milp-sharing.
    xi
        What sharing units costs whom.
    out
        Run directory; None: a temporary folder, see `Run.save`.
    force
        Replace an earlier run in `out`.
    progress
        Show a bar on standard error.
    **options
        Any option of `bft-replay replay --help` and `list options` by its long name, as in `max_jobs=20`, `tfwd=120`,
        `preset="best"`, `backend="exact"`, `dedicated=False` (--no-u), `policy_options={"most": 8}` (--set). What each
        may be is checked as there; `bft.replay.Options` lists them.

    Returns
    -------
    Run
        Notes on what changes the result are in `Run.notes`, and are logged by `bft.replay` as warnings.

    Raises
    ------
    InputError
        For a file or frame that cannot be used, an unknown option, or a value that is not allowed.
    PolicyError
        When the policy fails.

    Examples
    --------
    >>> import bft
    >>> trace, jobs = bft.load_example()
    >>> run = bft.replay(trace, jobs.head(5), tfwd=120, policy="equal-share", dedicated=False)
    >>> run.summary["options"]["tfwd_s"], run.metrics["jobs_finished"]
    (120.0, 5)
    >>> bft.replay(trace, jobs, tfwdd=120)
    Traceback (most recent call last):
    bft.models.errors.InputError: unknown option 'tfwdd'; did you mean 'tfwd_s'?
    """
    from bft.replay.run import execute

    with arguments_named():
        in_memory, names = in_memory_inputs(trace, jobs, xi)
        stated = {**options, **names}
        native = options.get("jobs_format", "native") == "native"
        if "jobs" in in_memory and not native:
            raise InputError(
                "jobs_format is for files: a frame or JobTable has the native columns"
            )
        with chosen(policy) as name:
            made = Options(**full_names({**stated, "policy": name}))
            made_up = tempfile.mkdtemp(prefix="bft-") if out is None else out
            folder = path_of("out", made_up)
            try:
                with (
                    Shown(drawn=True) if progress else nullcontext(_Logged()) as watcher
                ):
                    execute(
                        made,
                        folder,
                        force=force,
                        watcher=watcher,
                        files=Files(in_memory),
                    )
                    if isinstance(watcher, Shown):
                        watcher.done()
                return Run.temporary(folder) if out is None else Run(folder)
            except BaseException as error:
                # What a policy that failed had replayed before is in the folder, which the message names.
                kept = isinstance(error, PolicyError) and str(folder) in str(error)
                if out is None and not kept:
                    shutil.rmtree(folder, ignore_errors=True)
                raise


def in_memory_inputs(
    trace: Any, jobs: Any, xi: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the objects that take the place of files, and the name of each object and file in the options.

    Raises
    ------
    InputError
        When one of them has another type, or is an invalid frame.
    """
    frame = "(a DataFrame)"
    if isinstance(jobs, pd.DataFrame):
        jobs = jobs_from_frame(jobs, source=frame)
    if isinstance(xi, pd.DataFrame):
        xi = xi_from_frame(xi, source=frame)
    objects: dict[str, Any] = {}
    names: dict[str, Any] = {}
    kinds: dict[str, tuple[Any, Any]] = {
        "node_trace": (trace, (NodeTrace, pd.DataFrame)),
        "jobs": (jobs, JobTable),
        "xi": (xi, XiTable),
    }
    for option, (value, kind) in kinds.items():
        if isinstance(value, kind):
            objects[option] = value
            # A frame may have a column of that name.
            source = "" if isinstance(value, pd.DataFrame | XiTable) else value.source
            names[option] = source or f"(a {type(value).__name__})"
        elif isinstance(value, str | Path):
            names[option] = str(value)
        elif option == "jobs" and isinstance(value, list | tuple):
            names[option] = tuple(map(str, value))
        elif value is not None:
            role = option.removeprefix("node_")
            raise InputError(
                f"{role}: expected a path, a DataFrame or an object of ours, not {type(value).__name__}"
            )
    return objects, names


@contextmanager
def chosen(policy: Any, called: str | None = None) -> Iterator[str | None]:
    """The name of a policy while the block runs; a class, a function or an object is known by its own, or as `called`.

    A class of this package is known by the name that it has on the command line.
    """
    if policy is None or isinstance(policy, str) or is_built_in(policy):
        yield policy.name if is_built_in(policy) else policy
        return
    if callable(policy):
        factory = policy
        title = getattr(policy, "name", None) or getattr(policy, "__name__", "")
    else:
        check_made(type(policy).__name__, policy)
        factory, title = _again(policy), policy.name
    if not isinstance(title, str):  # a property of instances
        title = policy.__name__
    with named(_as_name(called or title), factory):
        yield _as_name(called or title)


def is_built_in(policy: Any) -> bool:
    """Whether this is the class of one of the policies that the command line knows."""
    name = getattr(policy, "name", None)
    known = isinstance(name, str) and name in BUILT_IN
    return known and policy_type(str(name)).factory is policy


def _as_name(title: str) -> str:
    """A title in the form of the policies' names: SmallestFirst is smallest-first."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", title).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "own"


def _again(policy: Policy) -> Callable[[], Policy]:
    """A function that makes the same policy: each replay has one of its own, as it was handed over."""
    kept = copy.deepcopy(policy)

    def make() -> Policy:
        return copy.deepcopy(kept)

    traits = getattr(policy, "traits", None)
    if traits is not None:
        make.traits = traits  # type: ignore[attr-defined]
    return make


class _Logged(Watcher):
    """Shows nothing, and logs notes."""

    def note(self, text: str) -> None:
        _log.warning("%s", text)


def stages(count: int, *, progress: bool) -> AbstractContextManager[Watcher]:
    """What shows the stages of an evaluation; a note that several replays have is logged once."""
    if progress:
        return Shown(drawn=True, stages=count)
    return nullcontext(Notes(_Logged()))


class Example(NamedTuple):
    """A node trace, and a job table as a frame: one row per job.

    Examples
    --------
    >>> import bft
    >>> trace, jobs = bft.load_example()
    >>> bft.Example(trace, jobs.head(3)).jobs["model"].tolist()
    ['AlexNet', 'VGG16', 'ResNet18']
    """

    trace: NodeTrace
    jobs: pd.DataFrame


def load_example() -> Example:
    """Load the bundled data set: a synthetic trace of 512 nodes over two days, and 60 training jobs.

    Examples
    --------
    >>> import bft
    >>> trace, jobs = bft.load_example()
    >>> trace
    <NodeTrace: 512 nodes, 1,474 events, 2021-02-10T00:00:00 to 2021-02-12T00:00:00>
    >>> jobs.loc[0, "name"]
    'J00000-AlexNet'
    """
    from bft.datasets import load_bundled

    table, jobs = load_bundled()
    return Example(
        trace_from_frame(
            table.frame, source="bundled: summit-like-512", metadata=table.metadata
        ),
        jobs,
    )


# What a keyword may leave out at its end.
_UNITS = ("_s", "_gib")


def full_names(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their whole names, paths as texts: `tfwd` is `tfwd_s`.

    Raises
    ------
    InputError
        When one option is stated by both of its names.

    Examples
    --------
    >>> full_names({"tfwd": 60, "set limits": 9})
    {'tfwd_s': 60, 'set limits': 9}
    """
    if not isinstance(stated, Mapping):
        raise InputError(f"expected a dictionary by name of option, not {stated!r:.60}")
    flat: dict[str, Any] = {}
    for name, value in stated.items():
        whole = next(
            (name + unit for unit in ("", *_UNITS) if name + unit in FIELDS), name
        )
        if whole in flat:
            raise InputError(f"{name} and {whole} are one option: give it once")
        flat[whole] = str(value) if isinstance(value, Path) else value
    constants = flat.get("policy_options")
    if isinstance(constants, Mapping):
        flat["policy_options"] = tuple(
            (key, str(value)) for key, value in constants.items()
        )
    return flat


# How errors call options here: `max_jobs`, `force=True`, where the command line has flags.
_ARGUMENTS = {
    "force": "force=True",
    **{name: name for name in ("out", "begin", "end")},
    **{
        name: f"{name}={not field.default}" if field.check is FLAG else name
        for name, field in {**FIELDS, **PRICES}.items()
    },
}


@contextmanager
def arguments_named() -> Iterator[None]:
    """Make the errors of a block speak of arguments, not of flags.

    Examples
    --------
    >>> with arguments_named():
    ...     Options(tfwd_s=-1)
    Traceback (most recent call last):
    bft.models.errors.InputError: tfwd_s: expected a number of seconds > 0 and at most 1e+09, not -1
    """
    token = option_names.set(_ARGUMENTS)
    try:
        yield
    finally:
        option_names.reset(token)


def ingest(
    files: str | Path | Sequence[str | Path], form: str = "auto", **options: Any
) -> NodeTrace:
    """Make a node trace of a scheduler's logs, as `bft-replay ingest` does.

    Parameters
    ----------
    files
        One log, or several that are one log.
    form
        Their format: `slurm`, `pbs`, `lsf`, `sge`, `cobalt` and so on (`bft-replay list formats` lists all), or
        `auto`, which their first lines show.
    **options
        Those of the command: `nodes`, `events`, `reservations` (each one file or several), `tz`, `begin`, `end`
        (a text, datetime or Timestamp), `min_gap_s`, `partition`, `machine` and others; see
        `bft.replay.logs.IngestOptions`.

    Returns
    -------
    NodeTrace
        `bft.replay.write_trace(trace, "trace.parquet")` writes it. Its notes list skipped rows and assumptions.

    Raises
    ------
    InputError
        When a file cannot be read; names file and line.

    Examples
    --------
    >>> import bft
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> row = ",2021-02-10T00:00:00Z,2021-02-10T01:00:00Z"
    >>> rows = ["node,start,end", '"n[1-4]"' + row, "n1" + row.replace("T01", "T03")]
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "log.csv")
    ...     _ = file.write_text(chr(10).join(rows))
    ...     trace = bft.ingest(file, "intervals", begin="2021-02-10", end="2021-02-10T03:00:00")
    >>> trace.nodes, trace.idle_node_seconds() / 3600
    (('n1', 'n2', 'n3', 'n4'), 6.0)
    """
    from bft.replay.logs.ingest import IngestOptions, ingested

    refuse_unknown(options, {field.name for field in fields(IngestOptions)})
    with arguments_named():
        made = ingested(form, several(files), log_options(options))
    return replace(made.trace, notes=(*made.trace.notes, *made.account.warnings()))


def log_options(stated: Mapping[str, Any]) -> IngestOptions:
    """Options of logs, of which some may be one file or several, or instants."""
    from bft.replay.logs.ingest import IngestOptions

    options = dict(stated)
    for name in ("nodes", "events", "reservations"):
        if name in options:
            options[name] = several(options[name])
    for name in ("begin", "end"):
        if isinstance(options.get(name), datetime):  # a Timestamp is one too
            options[name] = options[name].isoformat()
    return IngestOptions(**options)


def several(files: str | Path | Sequence[str | Path]) -> list[str]:
    """Names of one file, or of several."""
    each = files if isinstance(files, list | tuple) else [files]
    return [str(path_of("files", file)) for file in each]


@overload
def solve(problem: Problem, **options: Any) -> Solution: ...
@overload
def solve(problem: Mapping[str, Any], **options: Any) -> dict[str, Any]: ...


def solve(
    problem: Problem | Mapping[str, Any], **options: Any
) -> Solution | dict[str, Any]:
    """Solve one allocation problem: which job gets how many of the units that are there.

    Parameters
    ----------
    problem
        A `bft.milp.Problem`, or a document as `bft-replay solve` reads it (docs/formats.md).
    **options
        `backend`, `formulation`, `time_limit_s`, `gap`, `threads`, `ties` and others, with the checks of the command
        line: see `bft.replay.SolverOptions`.

    Returns
    -------
    Solution or dict
        Of a document a document: status, objective, and units by name of the job.

    Raises
    ------
    ProblemError
        When the problem is malformed, or the backend cannot solve it.
    InputError
        When an option is unknown or has a value that it may not have.

    Examples
    --------
    >>> import bft
    >>> curve = {"Jmin": 1, "Jmax": 4, "Ns": [0, 1, 4], "Os": [0, 10, 30], "Tcup": 20, "Tcdw": 10}
    >>> jobs = [{"name": "a", **curve, "current": [0]}, {"name": "b", **curve, "current": []}]
    >>> answer = bft.solve({"units": 5, "Tfwd": 120, "jobs": jobs})
    >>> answer["counts"], answer["status"]
    ({'a': 1, 'b': 4}, 'optimal')
    """
    refuse_unknown(options, SolverOptions.__dataclass_fields__)
    solver = SolverOptions(**{"backend": "auto", **options})
    if isinstance(problem, milp.Problem):
        return solver.solve(problem)
    document = milp.parse(problem)
    return milp.answer(document, solver.solve(document.problem))
