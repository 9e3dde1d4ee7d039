"""`bft-replay sweep`: a grid over any options of a replay, on one machine or many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models.checks import Name
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
from bft.replay.cli.parameters import Checked, TableCommand
from bft.replay.cli.study_options import (
    plan_of,
    plan_options,
    states_plan,
    study_progress,
    worker_options,
)
from bft.replay.options.naming import label_of
from bft.replay.options.options import FIELDS

if TYPE_CHECKING:
    from bft.replay.studies.study import Plan, Study

# As in bft.replay.studies, whose import would be too slow for printing help; "none" writes the plan alone.
SYSTEMS = ("slurm", "pbs", "lsf", "flux", "none")
# Options about the sweep that is in the folder, by their flags.
LATER = {"index": "--index", "collect": "--collect", "metric": "--best"}


@click.command(cls=TableCommand)
@plan_options
@worker_options
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Workers of a Dask cluster, by its scheduler's address.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Keep whole run directories. [summaries and wall times]",
)
@click.option("--again", is_flag=True, help="Repeat replays that are already done.")
@click.option(
    "--script",
    "system",
    type=Checked(Name(SYSTEMS)),
    help="Replay nothing: write the plan, and the job script of a batch system that replays it.",
)
@click.option(
    "--index",
    type=int,
    metavar="I",
    help="Of the sweep in --out replay this point only, from 0, as a job of an array does.",
)
@click.option(
    "--collect",
    is_flag=True,
    help="Replay nothing: put the results of the sweep in --out into one table.",
)
@click.option(
    "--best",
    "metric",
    metavar="METRIC",
    help="Replay nothing: tell which values are best by METRIC, such as U; of times and losses less is better.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="OPTION",
    help="With --best: the options to compare; may be repeated. [all but seeds]",
)
@click.option(
    "-o",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="With --best: write the table: .md, .csv, .parquet, .json.",
)
@click.option("--json", "as_json_", is_flag=True, help="With --best: as JSON.")
@click.option(
    "--out",
    metavar="DIR",
    default="sweep-study",
    show_default=True,
    help="Folder of the study.",
)
def sweep(**given: Any) -> int:
    """Replay a grid of options: each takes several values, with commas between, and all combinations are replayed.

    Finished replays are skipped: after a kill, the same command goes on, and so does `sweep --out DIR` alone. The
    results are one table, results.parquet.
    """
    from bft.replay.studies.study import Study

    check_suffixes(given["outputs"])
    study = Study(Path(given["out"]))
    later = next(
        (flag for name, flag in LATER.items() if given[name] not in (None, False)), None
    )
    if not states_plan(given):
        plan, keys = study.read_plan()
    elif later is None:
        plan = plan_of(given)
        keys = study.write_plan(plan)
    else:
        raise click.UsageError(
            f"{later} is about the sweep in --out: leave out the options of replays"
        )
    if given["system"]:
        _write_script(study, plan, given["system"])
        return 0
    if given["metric"] is not None:
        _report_best(study, plan, keys, given)
        return 0
    if given["collect"]:
        return _collected(study, plan, keys)
    return _run(study, plan, keys, given)


def _write_script(study: Study, plan: Plan, system: str) -> None:
    from bft.replay.studies.carry_out import script
    from bft.replay.studies.study import write_whole

    say_progress(f"{len(plan.points)} points: {study.folder / 'plan.json'}")
    if system == "none":
        return
    path = study.folder / f"sweep.{system}.sh"
    (study.folder / "logs").mkdir(exist_ok=True)
    write_whole(path, script(system, study.folder, len(plan.points)))
    then = f"bft-replay sweep --collect --out {study.folder}"
    say_progress(f"job script: {path}; then {then}")


def _run(study: Study, plan: Plan, keys: list[str], given: dict[str, Any]) -> int:
    from bft.replay.studies.carry_out import carry_out, dask, local

    only = given["index"]
    workers = local(given["workers"])
    if only is not None:
        workers = local(0)
    elif given["dask"]:
        workers = dask(given["dask"])
    with study_progress(again=given["again"]) as onlooker:
        account = carry_out(
            study,
            plan,
            keys,
            workers,
            whole=given["whole"],
            only=only,
            again=given["again"],
            onlooker=onlooker,
        )
    for note, count in account.notes.items():
        say_note(f"{note} ({count} point{'s' * (count != 1)})")
    if account.degraded:
        which = "; ".join(account.degraded)
        say_warning(f"degraded, fallbacks were used or answers invalid: {which}")
    code = EXIT_BAD_INPUT if account.failures else 0
    if only is None:
        code = _collected(study, plan, keys)
    return code or (EXIT_DEGRADED if account.degraded else 0)


def _collected(study: Study, plan: Plan, keys: list[str]) -> int:
    counts = study.collect(plan, keys)["status"].value_counts()
    there = [name for name in ("done", "failed", "missing") if name in counts]
    said = ", ".join(f"{counts[name]} {name}" for name in there)
    click.echo(f"{said}: {study.folder / 'results.parquet'}")
    if "done" not in counts:
        return EXIT_BAD_INPUT
    return EXIT_DEGRADED if len(counts) > 1 else 0


def _report_best(
    study: Study, plan: Plan, keys: list[str], given: dict[str, Any]
) -> None:
    """Report which values of the options are best, over all other varied options, with the spread."""
    from bft.replay.studies.study import best, option_named

    metric, varied = given["metric"], plan.varied
    frame = study.frame(plan, keys)
    by = [option_named(each, varied) for each in given["by"]]
    table = best(frame, varied, metric, by)
    document = {"metric": metric, "rows": records(table)}
    titles = [FIELDS[name].title if name in FIELDS else str(name) for name in table]
    rows = [[_number(cell) for cell in row] for row in table.itertuples(index=False)]
    for output in given["outputs"]:
        write_frame(table, output, as_markdown(titles, rows), document)
    if given["as_json_"]:
        click.echo(as_json(document))
        return
    show_table(titles, rows)
    top = table.iloc[0]
    spread = "one point"
    if top["points"] > 1:
        spread = f"over {top['points']} points {_number(top['low'])} to {_number(top['high'])}"
    figures = ("points", "mean", "low", "high", "wins")
    values = {str(name): top[str(name)] for name in table if name not in figures}
    click.echo(
        f"Best by {metric}: {label_of(values)}, mean {_number(top['mean'])} ({spread})."
    )
    left = int((frame["status"] != "done").sum())
    if left:
        say_note(f"{left} of {len(frame)} points are not done")


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
