"""Several replays from Python: variants side by side, grids of options, and a machine by its logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bft._replay import (
    arguments_named,
    chosen,
    full_names,
    in_memory_inputs,
    is_built_in,
    log_options,
    several,
    stages,
)
from bft._run import path_of
from bft.models import InputError, JobTable, write_jobs
from bft.models.checks import refuse_unknown
from bft.replay import NodeTrace, write_trace
from bft.replay.inputs.files import Files
from bft.replay.logs.ingest import IngestOptions
from bft.replay.options.options import PRICES, WORLD
from bft.replay.policies import PolicyError
from bft.replay.report import charts_of_comparison, evaluation, plotted
from bft.replay.report.evaluation import Evaluation as Evaluation
from bft.replay.studies.carry_out import carry_out, given, local
from bft.replay.studies.comparison import Comparison as _Comparison
from bft.replay.studies.comparison import compared, table_of
from bft.replay.studies.study import Plan, Study, key_of
from bft.replay.trace.trace_files import trace_from_frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Comparison(_Comparison):
    """Variants on the same trace and jobs, as `bft.compare` returns them: a table in a notebook.

    `.frame` is the table, `.differences()` and `.sentences()` compare the other variants with the first, `.finishes`
    says when each of up to 20 jobs was done, `.variants` has the runs.
    """

    def __repr__(self) -> str:
        cautions, sentences = self.cautions(), self.sentences()
        table = self._table().to_string(index=False)
        before, after = (
            "".join(f"{each}.\n" for each in of) for of in (cautions, sentences)
        )
        return f"{before}{table}\n{after}"

    def _repr_html_(self) -> str:
        """The table, for notebooks, with what is said before and after it."""
        before = "".join(f"<p>{escape(each)}.</p>" for each in self.cautions())
        after = "".join(f"<li>{escape(each)}.</li>" for each in self.sentences())
        with pd.option_context("display.max_colwidth", None):  # no text is cut
            table = self._table().to_html(index=False)
        return f"{before}{table}<ul>{after}</ul>"

    def _table(self) -> pd.DataFrame:
        titles, rows = table_of(self)
        return pd.DataFrame(rows, columns=titles)

    def plot(self, chart: str = "compared") -> Figure:
        """Draw a chart of the page of several runs: compared (the outcome), compared-times and so on."""
        return plotted(charts_of_comparison(self), chart)


def compare(
    trace: str | Path | pd.DataFrame | NodeTrace | None = None,
    jobs: str | Path | pd.DataFrame | JobTable | None = None,
    variants: Mapping[str, Any] | Sequence[Any] = (),
    *,
    seeds: Sequence[int] = (),
    study: str | Path = "compare-study",
    workers: int | None = None,
    split: str | None = None,
    **options: Any,
) -> Comparison:
    """Replay the same trace and jobs in several ways, in parallel.

    Parameters
    ----------
    trace, jobs
        Files, frames or objects, as for `bft.replay`; the bundled ones by default.
    variants
        Policies: names, classes or objects, as for `bft.replay`; or a dictionary of them, or of options, by name.
    seeds
        Each variant is replayed with each of these.
    study
        Folder of the runs; existing runs are reused, but those of policies of your own.
    workers
        Number of processes; by default the number of processors. 0 runs everything in this process, where policies of
        your own always run.
    split
        Break the table down by `vc`, `user`, `model`, `size`, or sizes up to bounds as in `size:8,64`.
    **options
        Options of all variants, as for `bft.replay`.

    Returns
    -------
    Comparison
        A table in a notebook; `.frame` is the table, `.plot()` a picture, `.sentences()` compare with the first.

    Raises
    ------
    InputError
        When a value is not allowed, two variants have one name, or fewer than two could be replayed.

    Examples
    --------
    >>> import bft
    >>> from tempfile import TemporaryDirectory
    >>> trace, jobs = bft.load_example()
    >>> with TemporaryDirectory() as folder:
    ...     found = bft.compare(trace, jobs, ["fifo", "srtf"], dedicated=False, study=folder, workers=0)
    ...     found.frame[["variant", "jobs_finished"]].to_dict("list")
    {'variant': ['fifo', 'srtf'], 'jobs_finished': [25.0, 31.0]}
    """
    with arguments_named(), ExitStack() as registered:
        place = Study(path_of("study", study))
        common = {**_inputs(place, trace, jobs), **full_names(options)}
        named: dict[str, dict[str, Any]] = {}
        own: set[str] = set()
        for name, variant in _by_name(variants):
            options_of = (
                variant if isinstance(variant, Mapping) else {"policy": variant}
            )
            stated = full_names(options_of)
            policy = stated.get("policy")
            if policy is not None and not isinstance(policy, str):
                stated["policy"] = registered.enter_context(chosen(policy, name))
                if not is_built_in(policy):
                    own.add(stated["policy"])
            label = name or stated["policy"]
            if label in named:
                raise InputError(
                    f"two variants are called {label!r}",
                    hint="name them in a dictionary",
                )
            named[label] = stated
        plan = Plan.of(common, {"seed": seeds} if seeds else {}, named)
        mine = Plan(tuple(each for each in plan.points if each.options.policy in own))
        if (
            mine.points
        ):  # known in this process only, and another policy might have had their name
            files = Files()
            keys = [key_of(point.options, files) for point in mine.points]
            account = carry_out(place, mine, keys, local(0), whole=True, again=True)
            for label, error in account.failures.items():
                raise PolicyError(f"{label}: {error}")
        found = compared(place, plan, local(workers), split=split)
        return Comparison(**vars(found))


def sweep(
    trace: str | Path | pd.DataFrame | NodeTrace | None = None,
    jobs: str | Path | pd.DataFrame | JobTable | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    study: str | Path = "sweep-study",
    executor: Executor | None = None,
    workers: int | None = None,
    whole: bool = False,
    **options: Any,
) -> pd.DataFrame:
    """Replay all combinations of the values of a grid that are not done yet.

    Parameters
    ----------
    trace, jobs
        Files, frames or objects, as for `bft.replay`; the bundled ones by default.
    grid
        Values by option: `{"tfwd": [10, 60], "max_jobs": [5, 0]}`; the last varies fastest.
    variants
        Named sets of options, each with all combinations.
    study
        Folder of the runs.
    executor
        Workers: anything with the protocol of `concurrent.futures.Executor` whose workers see `study`.
    workers
        Without an executor: number of processes on this machine, by default one per processor; 0 means this process.
    whole
        Keep whole run directories, not only their summaries.
    **options
        Options of all points, as for `bft.replay`.

    Returns
    -------
    DataFrame
        One row per point: `index`, `key`, `status` (done, failed, missing), `error`, every option, every metric.

    Raises
    ------
    InputError
        When a value is not allowed or given twice.

    Examples
    --------
    >>> import bft
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     found = bft.sweep(grid={"max_jobs": [5, 10]}, policy="fifo", dedicated=False, study=folder, workers=0)
    >>> found[["max_jobs", "status"]].values.tolist()
    [[5, 'done'], [10, 'done']]
    """
    with arguments_named():
        place = Study(path_of("study", study))
        common = {**_inputs(place, trace, jobs), **full_names(options)}
        named = {
            str(name): full_names(options_of)
            for name, options_of in _by_name(variants or {})
        }
        plan = Plan.of(common, full_names(grid or {}), named)
        who = local(workers) if executor is None else given(executor)
        keys = place.write_plan(plan)
        carry_out(place, plan, keys, who, whole=whole)
        return place.collect(plan, keys)


def evaluate(
    files: str | Path | Sequence[str | Path],
    form: str = "auto",
    *,
    out: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> Evaluation:
    """Say what a machine's idle nodes are worth, what training yields there, and what the machine's own jobs pay.

    Parameters
    ----------
    files, form
        Logs and their format, as for `bft.ingest`.
    out
        Folder of all that is made; by default it is named after the log. What is done already, from the same files
        with the same options, is not done again.
    progress
        Show stages and a bar on standard error.
    **options
        Those of `bft-replay evaluate`: all of `bft.ingest` but `unit`, since logs do not say which GPUs a host job
        takes, and `keep_records`; `jobs` (a file; without it trainings are made up), `jobs_format`, `align_jobs`,
        `node_class`; `price_per_node_hour`, `host_price`, `node_watts`, `co2_per_kwh`, `price_per_kwh`.

    Returns
    -------
    Evaluation
        `.figures`, `.table` (a row for each reserve and return time), and `.page`, the path of the page.

    Raises
    ------
    InputError
        When a file cannot be read, or an option has no valid value.

    Examples
    --------
    >>> import bft
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder, "log.csv")
    ...     rows = ["n1,2021-02-10T00:00:00Z,2021-02-10T01:00:00Z", "n1,2021-02-10T03:00:00Z,2021-02-10T04:00:00Z"]
    ...     _ = log.write_text(chr(10).join(["node,start,end", *rows]))
    ...     window = {"begin": "2021-02-10", "end": "2021-02-10T04:00:00"}
    ...     found = bft.evaluate(log, "intervals", nodes="n[1-2]", out=Path(folder, "out"), **window)
    ...     round(found.figures["idle_share"], 6), found.page.exists()
    (0.75, True)
    """
    stated = {**WORLD, **PRICES}
    of_logs = {field.name for field in fields(IngestOptions)} - {"keep_records"}
    refuse_unknown(options, {*of_logs, *stated})
    names = several(files)
    with arguments_named(), stages(evaluation.STAGES, progress=progress) as shown:
        return evaluation.evaluate(
            form,
            names,
            log_options({name: options[name] for name in options if name in of_logs}),
            {name: options[name] for name in options if name in stated},
            None if out is None else path_of("out", out),
            watcher=shown,
        )


def _by_name(variants: Any) -> list[tuple[str | None, Any]]:
    """The variants, each with its name; those of a list are called as their policy."""
    if isinstance(variants, Mapping):
        return [(str(name), variant) for name, variant in variants.items()]
    if isinstance(variants, str) or not isinstance(variants, Sequence):
        raise InputError(
            f"variants: expected a list of policies, or a dictionary by name, not {variants!r}"
        )
    return [
        (variant if isinstance(variant, str) else None, variant) for variant in variants
    ]


def _inputs(study: Study, trace: Any, jobs: Any) -> dict[str, str]:
    """Options for trace and jobs; what is in memory is written to the study."""
    held, names = in_memory_inputs(trace, jobs, None)
    if isinstance(trace, pd.DataFrame):
        held["node_trace"] = trace_from_frame(trace, source="(a DataFrame)")
    if "node_trace" in held:
        names["node_trace"] = str(study.keep("trace", held["node_trace"], write_trace))
    if "jobs" in held:
        names["jobs"] = str(study.keep("jobs", held["jobs"], write_jobs))
    return names
