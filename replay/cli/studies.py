"""`bft-replay compare` and `sweep`: the same trace and jobs replayed in several ways, on one machine or many."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.checks import (
    FLAG,
    SECTIONS,
    TEXT,
    Name,
    Number,
    OptionField,
    Several,
    whole,
)
from bft.models.objectives import OBJECTIVE
from bft.replay.cli.commands import (
    EXIT_BAD_INPUT,
    EXIT_DEGRADED,
    EXIT_INTERRUPTED,
    Command,
    fitted,
    of_key,
    say_error,
    say_note,
    say_progress,
    say_warning,
)
from bft.replay.cli.frames import (
    as_json,
    as_markdown,
    check_suffixes,
    figure_options,
    show_table,
    write_frame,
    write_into,
)
from bft.replay.cli.main import command_line
from bft.replay.cli.parameters import (
    Checked,
    Decorator,
    json_option,
    option,
    parameter_name,
    rare_option,
    setting,
    together,
)
from bft.replay.cli.watcher import Shown, watching
from bft.replay.options.naming import label_of
from bft.replay.options.options import FIELDS

if TYPE_CHECKING:
    from bft.replay.studies.comparison import Comparison
    from bft.replay.studies.study import Plan, Study

# Longer ranges are typing errors.
MAX_RANGE = 10_000


class Axis(Checked):
    """Values of an option with commas between, and of whole numbers ranges: 0:8 is 0 to 7, 0:64:16 every sixteenth.

    Of texts that may hold commas (files, pairs) it is one value; the option is repeated for others.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[Any]:
        """Return the values, or fail saying what was expected."""
        check = self.check
        splits = check in (FLAG, OBJECTIVE) or isinstance(check, Number | Name)
        ranges = check.kind == "integer"
        values: list[Any] = []
        for text in value.split(",") if splits else [value]:
            values += self._range(text) if ranges and ":" in text else [text]
        return [super(Axis, self).convert(each, param, ctx) for each in values]

    def _range(self, text: str) -> range:
        try:
            numbers = range(*map(int, text.split(":")))
        except (TypeError, ValueError):
            self.fail(f"expected a range such as 0:8 or 0:64:16, not {text!r}")
        if not 0 < len(numbers) <= MAX_RANGE:
            what = f"expected a range of 1 to {MAX_RANGE:,} numbers, not {text!r}"
            self.fail(what)
        return numbers


def _axis(field: OptionField) -> Decorator:
    """Return an option of several values for one of a replay."""
    if not field.rare and field.check is FLAG:
        return option(field, default=None)
    field = replace(field, default=None)
    if isinstance(field.check, Several):
        return option(field)
    metavar = field.metavar or "VALUE,..."
    return option(field, type=Axis(field.check), multiple=True, metavar=metavar)


_by_section = sorted(FIELDS.values(), key=lambda each: SECTIONS.index(each.section))
_axes = together(*map(_axis, _by_section), rare_option)


@click.command(cls=Command, add_help_option=False)
@_axes
def _variant(**given: Any) -> None:
    """The options of a variant."""


plan_options: Decorator = together(
    _axes,
    setting(
        "--variant variants",
        (
            "Options that belong together, as in 'short: --policy milp -Tfwd 10'; may be "
            "repeated."
        ),
        Several(TEXT),
        metavar="'NAME: OPTIONS'",
    ),
    setting(
        "--workers",
        "Processes of this machine; 0 for none beside this one. [as many as processors]",
        whole(0),
        metavar="N",
    ),
    setting("--again", "Repeat replays that are already done.", FLAG),
)


def states_plan(given: dict[str, Any]) -> bool:
    """Whether the command line says what to replay."""
    names = ("variants", *map(parameter_name, FIELDS.values()))
    return any(given[name] for name in names)


def plan_of(given: dict[str, Any]) -> Plan:
    """The plan that the command line asks for."""
    from bft.replay.studies.study import Plan

    options, grid = _stated(given)
    variants: dict[str, dict[str, Any]] = {}
    for text in given["variants"]:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not (colon and name):
            raise InputError(f"--variant: expected 'NAME: OPTIONS', not {text!r}")
        if name in variants:
            raise InputError(f"--variant: two variants are called {name!r}")
        variants[name] = _of_variant(name, rest)
    try:
        return Plan.of(options, grid, variants)
    except InputError as error:
        if len(grid.get("policy", ())) < 2 or error.hint:
            raise
        hint = "--variant 'NAME: OPTIONS' gives options to one of several policies"
        raise InputError(error.what, hint=hint) from error


def _stated(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Options with one value, and axes, of those that the command line gives."""
    options: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    for name, field in FIELDS.items():
        value = given.get(parameter_name(field))
        if not value:
            continue
        if name == "policy_options":
            for constant, text in value:
                grid.setdefault(f"set {constant}", []).append(text)
        elif field.check is FLAG and not field.rare:
            options[name] = not field.negated
        elif isinstance(field.check, Several):
            options[name] = value
        else:
            grid[name] = [each for values in value for each in values]
    return options, grid


def _of_variant(name: str, text: str) -> dict[str, Any]:
    """Return the values that the options of a variant state, by name."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--variant: {name}: {error}") from None
    context = _variant.make_context(f"--variant {name}", words)
    options, grid = _stated(context.params)
    if any(len(values) > 1 for values in grid.values()):
        raise InputError(f"--variant: {name}: expected one value of each option")
    return {**options, **{axis: value for axis, [value] in grid.items()}}


@contextmanager
def study_progress() -> Iterator[Shown]:
    """Show how far a study has come while the block runs; an interrupt ends the command, saying how to go on."""
    try:
        with watching() as shown:
            yield shown
    except KeyboardInterrupt:
        kept = "Interrupted: replays that were done are kept, and this command goes on from there:"
        say_error(kept)
        click.echo(command_line(without=("--again",)), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


# --- compare ---


@click.command(cls=Command)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@plan_options
@setting(
    "--split",
    "Break the table down: by virtual cluster, user, model or size; size:8,64 names the bounds.",
    metavar="vc|user|model|size",
)
@setting("--out", "Folder of the runs.", TEXT, "compare-study", metavar="DIR")
@setting(
    "--different-inputs",
    "With RUN...: compare runs of different traces or jobs too.",
    FLAG,
)
@setting(
    "--name names",
    "With RUN...: what the next of them is called; repeated for each. [what differs]",
    Several(TEXT),
    metavar="TEXT",
)
@setting(
    "-o outputs",
    "Write the table: .md, .csv, .parquet, .json; may be repeated.",
    Several(TEXT),
    metavar="FILE",
)
@figure_options(
    "Write charts of the comparison as PNG files into DIR (needs the extra `report`)."
)
@json_option("Write table and differences as JSON to standard output.")
def compare(runs: tuple[str, ...], **given: Any) -> int:
    """Replay the same trace and jobs in several ways, and put the results side by side.

    Every option of a replay takes several values, with commas between: --policy milp,pollux -Tfwd 60,120 compares four
    variants. Variants that differ only in --seed (--seed 0:8) count as one. The others are compared with the
    first variant. A finished replay is reused. With RUN..., existing run directories are compared instead, which
    had the same trace and jobs.

    Such as:
    bft-replay compare -ndmap trace.parquet --jobs jobs.csv --policy milp,pollux,equal-share
    bft-replay compare mine-itrOut other-itrOut
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
            names=given["names"],
        )
    elif given["different_inputs"] or given["names"]:
        raise click.UsageError("--different-inputs and --name are for RUN...")
    else:
        plan = plan_of(given)
        with study_progress() as onlooker:
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
    if given["as_json"]:
        click.echo(as_json(document))
    else:
        for caution in cautions:
            click.echo(fitted(f"{caution}.", sys.stdout))
        show_table(titles, rows, names=1 if given["split"] is None else 2)
        for sentence in sentences:
            click.echo(fitted(f"{sentence}.", sys.stdout))
        if comparison.finishes is not None:
            zone = comparison.longest.zone
            click.echo(f"\nFinished ({zone}):")
            cells = finish_cells(comparison.finishes, zone)
            show_table(["", *comparison.finishes], cells)
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
    table = comparison.finishes
    finishes = "{}" if table is None else table.to_json(date_format="iso")
    return {
        "variants": comparison.frame.to_dict("records"),
        "runs": {
            v.label: [str(run.folder) for run in v.runs] for v in comparison.variants
        },
        "differences": [asdict(difference) for difference in comparison.differences()],
        "cautions": comparison.cautions(),
        "sentences": sentences,
        "finishes": json.loads(finishes),
        "failures": comparison.failures,
        "notes": comparison.notes,
    }


# --- sweep ---

# As in bft.replay.studies.carry_out, whose import would be too slow for printing help; "none" writes the plan alone.
SYSTEMS = ("slurm", "pbs", "lsf", "flux", "none")
# Options about the sweep that is in the folder, by their flags.
LATER = {"index": "--index", "collect": "--collect", "best": "--best"}


@click.command(cls=Command)
@plan_options
@setting(
    "--dask",
    "Workers of a Dask cluster, by its scheduler's address.",
    metavar="ADDRESS",
)
@setting("--whole", "Keep whole run directories. [summaries and wall times]", FLAG)
@setting(
    "--script",
    (
        "Replay nothing: write the plan, and the job script of a batch system that replays "
        "it."
    ),
    Name(SYSTEMS),
)
@setting(
    "--index",
    "Of the sweep in --out replay this point only, from 0, as a job of an array does.",
    Number(kind="integer"),
    metavar="I",
)
@setting(
    "--collect",
    "Replay nothing: put the results of the sweep in --out into one table.",
    FLAG,
)
@setting(
    "--best",
    (
        "Replay nothing: tell which values are best by METRIC, such as U; of times and losses "
        "less is better."
    ),
    metavar="METRIC",
)
@setting(
    "--by",
    "With --best: the options to compare; may be repeated. [all but seeds]",
    Several(TEXT),
    metavar="OPTION",
)
@setting("--out", "Folder of the study.", TEXT, "sweep-study", metavar="DIR")
def sweep(**given: Any) -> int:
    """Replay a grid of options: each takes several values, with commas between, and all combinations are replayed.

    Finished replays are skipped: after a kill, the same command goes on, and so does `sweep --out DIR` alone. The
    results are one table, results.parquet.

    Such as:
    bft-replay sweep -ndmap trace.parquet -Tfwd 10,30,60 -maxJ 5,10,0 --seed 0:8
    bft-replay sweep --best U --by Tfwd
    """
    from bft.replay.studies.study import Study

    study = Study(Path(given["out"]))
    later = [flag for name, flag in LATER.items() if given[name] not in (None, False)]
    if not states_plan(given):
        plan, keys = study.read_plan()
    elif not later:
        plan = plan_of(given)
        keys = study.write_plan(plan)
    else:
        about = f"{later[0]} is about the sweep in --out"
        raise click.UsageError(f"{about}: leave out the options of replays")
    if given["script"]:
        _write_script(study, plan, given["script"])
        return 0
    if given["best"] is not None:
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
    with study_progress() as onlooker:
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
    from bft.replay.studies.study import best

    metric, varied = given["best"], plan.varied
    frame = study.frame(plan, keys)
    known = {flag: f.name for f in FIELDS.values() for flag in (*f.flags, f.name)}
    known |= {name: name for name in varied}
    by = [of_key(each, known, None) for each in given["by"]]
    table = best(frame, varied, metric, by)
    titles = [FIELDS[name].title if name in FIELDS else str(name) for name in table]
    rows = [[_number(cell) for cell in row] for row in table.itertuples(index=False)]
    show_table(titles, rows)
    top = table.iloc[0]
    spread = "one point"
    if top["points"] > 1:
        spread = f"over {top['points']} points {_number(top['low'])} to {_number(top['high'])}"
    figures = ("points", "mean", "low", "high", "wins")
    values = {str(name): top[str(name)] for name in table if name not in figures}
    mean = _number(top["mean"])
    click.echo(f"Best by {metric}: {label_of(values)}, mean {mean} ({spread}).")
    left = int((frame["status"] != "done").sum())
    if left:
        say_note(f"{left} of {len(frame)} points are not done")


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
