"""A replay from Python, and the bundled data set for first steps."""

from __future__ import annotations

import copy
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bft._arguments import arguments_named, full_names
from bft._run import Run

if TYPE_CHECKING:
    import pandas as pd

    from bft.models import JobTable, XiTable
    from bft.replay import NodeTrace, Options, Policy
    from bft.replay.engine.watcher import Watcher
    from bft.replay.inputs.files import InMemoryInputs


_log = logging.getLogger("bft.replay")


def replay(
    trace: str | Path | pd.DataFrame | NodeTrace | None = None,
    jobs: str | Path | pd.DataFrame | JobTable | None = None,
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
        A file, a frame with one row per job, or a `JobTable`; None: the bundled ones, or beside a trace a generated
        workload.
    policy
        Who decides: one of `bft-replay policies`; or a policy of your own, a class or an object with `name` and
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
        Any option of `bft-replay replay --help` by its long name, as in `max_jobs=20`, `tfwd=120`, `preset="best"`,
        `backend="exact"`, `bound=True`, `dedicated=False` (--no-u), `policy_options={"most": 8}` (--set). What each
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
    from bft.models import InputError
    from bft.replay.options.options import Options

    with arguments_named():
        in_memory, names = in_memory_inputs(trace, jobs, xi)
        stated = {**options, **names}
        native = options.get("jobs_format", "native") == "native"
        if in_memory.jobs is not None and not native:
            raise InputError(
                "jobs_format is for files: a frame or JobTable has the native columns"
            )
        with chosen(policy) as name:
            given = full_names({**stated, "policy": name})
            made = Options.of(**{k: v for k, v in given.items() if v is not None})
            if out is not None:
                return _executed(made, Path(out), in_memory, force, progress)
            folder = Path(tempfile.mkdtemp(prefix="bft-"))
            try:
                _executed(made, folder, in_memory, force, progress)
                return Run.temporary(folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise


def _executed(
    options: Options,
    folder: Path,
    in_memory: InMemoryInputs,
    force: bool,
    progress: bool,
) -> Run:
    from bft.replay.run import execute

    with _watcher(progress=progress) as watcher:
        execute(options, folder, force=force, watcher=watcher, in_memory=in_memory)
    return Run(folder)


def in_memory_inputs(
    trace: Any, jobs: Any, xi: Any
) -> tuple[InMemoryInputs, dict[str, str]]:
    """Return the objects that take the place of files, and the name of each object and file in the options.

    Raises
    ------
    InputError
        When one of them has another type, or is an invalid frame.
    """
    import pandas as pd

    from bft.models import InputError, JobTable, XiTable, jobs_from_frame, xi_from_frame
    from bft.replay.inputs.files import InMemoryInputs
    from bft.replay.trace.node_trace import NodeTrace

    frame = "(a DataFrame)"
    if isinstance(jobs, pd.DataFrame):
        jobs = jobs_from_frame(jobs, source=frame)
    if isinstance(xi, pd.DataFrame):
        xi = xi_from_frame(xi, source=frame)
    objects: dict[str, Any] = {}
    names: dict[str, str] = {}
    kinds: dict[str, tuple[Any, Any]] = {
        "trace": (trace, (NodeTrace, pd.DataFrame)),
        "jobs": (jobs, JobTable),
        "xi": (xi, XiTable),
    }
    for role, (value, kind) in kinds.items():
        option = "node_trace" if role == "trace" else role
        if isinstance(value, kind):
            objects[role] = value
            names[option] = (
                getattr(value, "source", "") or f"(a {type(value).__name__})"
            )
        elif isinstance(value, str | Path):
            names[option] = str(value)
        elif value is not None:
            raise InputError(
                f"{role}: expected a path, a DataFrame or an object of ours, not {type(value).__name__}"
            )
    return InMemoryInputs(**objects), names


@contextmanager
def chosen(policy: Any, called: str | None = None) -> Iterator[str | None]:
    """The name of a policy while the block runs; a class, a function or an object is known by its own, or as `called`.

    A class of this package is known by the name that it has on the command line.
    """
    from bft.replay.policies.registry import check_made, named

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
    from bft.replay.policies.registry import BUILT_IN, policy_factory

    name = getattr(policy, "name", None)
    known = isinstance(name, str) and name in BUILT_IN
    return known and policy_factory(str(name)) is policy


def _as_name(title: str) -> str:
    """A title in the form of the policies' names: SmallestFirst is smallest-first."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", title).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "own"


def _again(policy: Policy) -> Callable[[], Policy]:
    """A function that makes the same policy: each replay has one of its own, as it was handed over."""
    kept = copy.deepcopy(policy)

    def make() -> Policy:
        return copy.deepcopy(kept)

    kind = getattr(policy, "kind", None)
    if kind is not None:
        make.kind = kind  # type: ignore[attr-defined]
    return make


@contextmanager
def _watcher(*, progress: bool) -> Iterator[Watcher]:
    from bft.replay.engine.watcher import Silent

    class Warns(Silent):
        def note(self, text: str) -> None:
            _log.warning("%s", text)

    if not progress:
        yield Warns()
        return
    from bft.replay.engine.watcher import Bar

    with Bar() as bar:
        yield bar
        bar.done()


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
    from bft.replay.trace.trace_files import trace_from_frame

    table, jobs = load_bundled()
    return Example(
        trace_from_frame(
            table.frame, source="bundled: summit-like-512", metadata=table.metadata
        ),
        jobs,
    )
