"""`bft-replay compare`: several policies, objectives, backends or options on the same trace and jobs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.replay.cli.frames import (
    as_json,
    as_markdown,
    check_suffixes,
    figure_options,
    records,
    show_table,
    write_frame,
    write_into,
)
from bft.replay.cli.main import EXIT_DEGRADED
from bft.replay.cli.messages import fitted, say_note, say_warning
from bft.replay.cli.parameters import TableCommand
from bft.replay.cli.study_options import (
    plan_of,
    plan_options,
    states_plan,
    study_progress,
    worker_options,
)

if TYPE_CHECKING:
    from bft.replay.studies.comparison import Comparison


@click.command(cls=TableCommand)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@plan_options
@worker_options
@click.option(
    "--split",
    metavar="vc|user|model|size",
    help="Break the table down: by virtual cluster, user, model or size.",
)
@click.option(
    "--out",
    metavar="DIR",
    default="compare-study",
    show_default=True,
    help="Folder of the runs.",
)
@click.option(
    "--different-inputs",
    is_flag=True,
    help="With RUN...: compare runs of different traces or jobs too.",
)
@click.option("--again", is_flag=True, help="Repeat replays that are already done.")
@click.option(
    "-o",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="Write the table: .md, .csv, .parquet, .json; may be repeated.",
)
@figure_options(
    "Write charts of the comparison as PNG files into DIR (needs the extra `report`)."
)
@click.option(
    "--json",
    "as_json_",
    is_flag=True,
    help="Write table and differences as JSON to standard output.",
)
def compare(runs: tuple[str, ...], **given: Any) -> int:
    """Replay the same trace and jobs in several ways, and put the results side by side.

    Every option of a replay takes several values, with commas between: --policy milp,pollux -Tfwd 60,120 compares four
    variants. Variants that differ only in --seed (--seed 0:8) count as one. The others are compared with the
    first variant. A finished replay is reused. With RUN..., existing run directories are compared instead, which
    had the same trace and jobs.
    """
    from bft.replay.studies.carry_out import local
    from bft.replay.studies.comparison import (
        compared,
        compared_runs,
        finish_cells,
        table_of,
    )
    from bft.replay.studies.study import Study

    check_suffixes(given["outputs"])
    if runs:
        if states_plan(given) or given["again"] or given["workers"] is not None:
            raise click.UsageError(
                "RUN... are done: leave out them, or the options that say how to replay"
            )
        comparison = compared_runs(
            [Path(run) for run in runs],
            split=given["split"],
            different=given["different_inputs"],
        )
    elif given["different_inputs"]:
        raise click.UsageError("--different-inputs is for RUN...")
    else:
        plan = plan_of(given)
        with study_progress(again=given["again"]) as onlooker:
            comparison = compared(
                Study(Path(given["out"])),
                plan,
                local(given["workers"]),
                split=given["split"],
                again=given["again"],
                onlooker=onlooker,
            )
    titles, rows = table_of(comparison)
    cautions, sentences = comparison.cautions(), comparison.sentences()
    document = _document(comparison, sentences)
    for output in given["outputs"]:
        below = "\n".join(f"- {each}." for each in sentences)
        parts = [*(f"{each}." for each in cautions), as_markdown(titles, rows), below]
        text = "\n\n".join(parts)
        write_frame(comparison.frame, output, text, document)

    def draw(folder: Path, form: str) -> None:
        from bft.replay.report import charts_of_comparison, write_charts

        write_charts(charts_of_comparison(comparison), folder, form)

    write_into(given, draw, force=True)
    if given["as_json_"]:
        click.echo(as_json(document))
    else:
        for caution in cautions:
            click.echo(fitted(f"{caution}.", sys.stdout))
        show_table(titles, rows, names=1 if given["split"] is None else 2)
        for sentence in sentences:
            click.echo(fitted(f"{sentence}.", sys.stdout))
        if comparison.finishes is not None:
            click.echo("\nFinished (UTC):")
            show_table(["", *comparison.finishes], finish_cells(comparison.finishes))
    if comparison.different:
        say_warning(
            f"the runs have different inputs: {'; '.join(comparison.different)}"
        )
    for note, count in comparison.notes.items():
        say_note(f"{note} ({count} replay{'s' * (count != 1)})")
    for label, error in comparison.failures.items():
        say_warning(f"{label} is missing: {error}")
    return EXIT_DEGRADED if comparison.failures or comparison.degraded else 0


def _document(comparison: Comparison, sentences: list[str]) -> dict[str, Any]:
    table, finishes = comparison.finishes, {}
    for label, column in () if table is None else table.items():
        # An instant that is no number is not itself: the job has not finished.
        texts = (None if at != at else at.isoformat() for at in column)
        finishes[str(label)] = dict(zip(map(str, column.index), texts, strict=True))
    return {
        "variants": records(comparison.frame),
        "runs": {
            v.label: [str(run.folder) for run in v.runs] for v in comparison.variants
        },
        "differences": [asdict(difference) for difference in comparison.differences()],
        "cautions": comparison.cautions(),
        "sentences": sentences,
        "finishes": finishes,
        "failures": comparison.failures,
        "notes": comparison.notes,
    }
