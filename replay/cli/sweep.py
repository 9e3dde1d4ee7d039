"""`bft-replay sweep`: a grid over any options of a replay, on one machine or many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.replay.cli.frames import (
    as_json,
    as_markdown,
    check_suffixes,
    records,
    show_table,
    write_frame,
)
from bft.replay.cli.main import EXIT_BAD_INPUT, EXIT_DEGRADED
from bft.replay.cli.messages import say_note, say_progress, say_warning
from bft.replay.cli.parameters import Command, Group, NamesWholeOption, OneOf, together
from bft.replay.cli.study_options import (
    plan_of,
    plan_options,
    study_progress,
    worker_options,
)
from bft.replay.options.naming import label_of
from bft.replay.options.options import FIELDS

if TYPE_CHECKING:
    import pandas as pd

    from bft.replay.studies.carry_out import Workers
    from bft.replay.studies.study import Plan, Study

# As in bft.replay.studies, whose import would be too slow for printing help.
SYSTEMS = ("slurm", "pbs", "lsf", "flux")
DEFAULT = "all"

_out = click.option(
    "--out",
    metavar="DIR",
    default="sweep-study",
    show_default=True,
    help="Folder of the study.",
)
_who = together(
    worker_options,
    click.option(
        "--dask",
        metavar="ADDRESS",
        help="Workers of a Dask cluster, by its scheduler's address.",
    ),
)
_keep = together(
    click.option(
        "--whole",
        is_flag=True,
        help="Keep whole run directories. [summaries and wall times]",
    ),
    click.option("--again", is_flag=True, help="Repeat replays that are already done."),
)


class _Sweep(Group):
    """A group whose default command plans, runs and collects."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (
            args[0] not in self.commands and args[0] not in ("-h", "--help")
        ):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Sweep)
def sweep() -> None:
    """Replay a grid of options: each takes several values, with commas between, and all combinations are replayed.

    `bft-replay sweep -Tfwd 10,30,60 -maxJ 5,10,0 --seed 0:8` plans, runs and collects; `sweep all --help` lists the
    options. Finished replays are skipped: after a kill, the same command goes on. For job arrays: plan, run --index I,
    collect.
    """


@sweep.command(
    name=DEFAULT,
    cls=NamesWholeOption,
    short_help="Plan, run and collect (the default).",
)
@plan_options
@_who
@_keep
@_out
def all_(**given: Any) -> int:
    """Plan a grid, replay what is not done yet, and collect."""
    study, plan, keys = _planned(given)
    return _run(study, plan, keys, given)


@sweep.command(
    cls=NamesWholeOption, short_help="Write the plan of a grid, for run and collect."
)
@plan_options
@click.option(
    "--script",
    "system",
    type=OneOf(SYSTEMS),
    help="Write a job script of this batch system too.",
)
@_out
def plan(**given: Any) -> None:
    """Write the plan of a grid, and a job script that runs each point as a job of an array."""
    study, planned, _ = _planned(given)
    say_progress(f"{len(planned.points)} points: {study.folder / 'plan.json'}")
    if given["system"]:
        from bft.replay.studies.carry_out import script
        from bft.replay.studies.study import write_whole

        path = study.folder / f"sweep.{given['system']}.sh"
        (study.folder / "logs").mkdir(exist_ok=True)
        write_whole(path, script(given["system"], study.folder, len(planned.points)))
        say_progress(
            f"job script: {path}; then bft-replay sweep collect --out {study.folder}"
        )


@sweep.command(cls=Command, short_help="Replay points of a plan.")
@click.option(
    "--index",
    type=int,
    metavar="I",
    help="Only this point, from 0, in this process. [all not done yet]",
)
@_who
@_keep
@_out
def run(**given: Any) -> int:
    """Replay the points of a plan that are not done yet, or the one of an index."""
    from bft.replay.studies.study import Study

    study = Study(Path(given["out"]))
    planned, keys = study.read_plan()
    return _run(study, planned, keys, given)


@sweep.command(cls=Command, short_help="Put the results of all points into one table.")
@_out
def collect(out: str) -> int:
    """Collect the results of a study into results.parquet: one row a point, with every option and every metric."""
    from bft.replay.studies.study import Study

    study = Study(Path(out))
    return _collected(study, *study.read_plan())


@sweep.command(cls=Command, short_help="Which values are best, and by how much.")
@click.option(
    "--metric",
    default="U",
    show_default=True,
    help="Metric to compare; of times and losses less is better.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="OPTION",
    help="The options to compare; may be repeated. [all but seeds]",
)
@click.option(
    "-o",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="Write the table: .md, .csv, .parquet, .json.",
)
@click.option("--json", "as_json_", is_flag=True, help="As JSON.")
@_out
def best(
    out: str, metric: str, by: tuple[str, ...], outputs: tuple[str, ...], as_json_: bool
) -> None:
    """Report which values of the options are best, over all other varied options, with the spread."""
    from bft.replay.studies.study import Study
    from bft.replay.studies.sweeping import best as best_of
    from bft.replay.studies.sweeping import option_named

    check_suffixes(outputs)
    study = Study(Path(out))
    planned, keys = study.read_plan()
    frame = study.frame(planned, keys)
    table = best_of(
        frame,
        planned.varied,
        metric,
        [option_named(each, planned.varied) for each in by],
    )
    document = {"metric": metric, "rows": records(table)}
    titles, rows = _shown(table)
    for output in outputs:
        write_frame(table, output, as_markdown(titles, rows), document)
    if as_json_:
        click.echo(as_json(document))
        return
    show_table(titles, rows)
    top, left = table.iloc[0], int((frame["status"] != "done").sum())
    names = [
        name
        for name in table.columns
        if name not in ("points", "mean", "low", "high", "wins")
    ]
    of = (
        f"over {top['points']} points {_number(top['low'])} to {_number(top['high'])}"
        if top["points"] > 1
        else "one point"
    )
    click.echo(
        f"Best by {metric}: {label_of({name: top[name] for name in names})}, mean {_number(top['mean'])} ({of})."
    )
    if left:
        say_note(f"{left} of {len(frame)} points are not done")


def _planned(given: dict[str, Any]) -> tuple[Study, Plan, list[str]]:
    from bft.replay.studies.study import Study

    study = Study(Path(given["out"]))
    planned = plan_of(given)
    return study, planned, study.write_plan(planned)


def _run(study: Study, planned: Plan, keys: list[str], given: dict[str, Any]) -> int:
    from bft.replay.studies.carry_out import carry_out

    only = given.get("index")
    with study_progress(again=given["again"]) as onlooker:
        account = carry_out(
            study,
            planned,
            keys,
            _workers(given),
            whole=given["whole"],
            only=only,
            again=given["again"],
            onlooker=onlooker,
        )
    for note, count in account.notes.items():
        say_note(f"{note} ({count} point{'s' * (count != 1)})")
    if account.degraded:
        say_warning(
            f"degraded, fallbacks were used or answers invalid: {'; '.join(account.degraded)}"
        )
    if only is not None:
        return (
            EXIT_BAD_INPUT
            if account.failures
            else EXIT_DEGRADED
            if account.degraded
            else 0
        )
    return _collected(study, planned, keys) or (
        EXIT_DEGRADED if account.degraded else 0
    )


def _collected(study: Study, planned: Plan, keys: list[str]) -> int:
    frame = study.collect(planned, keys)
    counts = frame["status"].value_counts()
    said = ", ".join(
        f"{counts[status]} {status}"
        for status in ("done", "failed", "missing")
        if status in counts
    )
    click.echo(f"{said}: {study.folder / 'results.parquet'}")
    if "done" not in counts:
        return EXIT_BAD_INPUT
    return EXIT_DEGRADED if len(counts) > 1 else 0


def _workers(given: dict[str, Any]) -> Workers:
    from bft.replay.studies.carry_out import dask, local

    if given.get("index") is not None:
        return local(0)
    return dask(given["dask"]) if given["dask"] else local(given["workers"])


def _shown(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    titles = [
        FIELDS[name].flag if name in FIELDS else str(name) for name in table.columns
    ]
    return titles, [
        [_number(value) for value in row] for row in table.itertuples(index=False)
    ]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
