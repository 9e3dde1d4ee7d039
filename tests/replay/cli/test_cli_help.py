"""The output of `--help`, completions by the Tab key, and the answer to an unknown word."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from processes import AMPLE_S
from rich.console import Console

from bft.replay.cli.main import COMMANDS, cli, run
from bft.replay.cli.watcher import bar
from bft.replay.options.options import FIELDS

BFT = Path(sys.executable).with_name("bft-replay")


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command with its path, groups among them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands(cli))


@pytest.mark.parametrize("path", ["", *ALL])
def test_every_command_shows_two_examples_that_are_command_lines(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path.split(), "--help"]) == 0
    text, _, rest = capsys.readouterr().out.partition("\nExamples:\n")
    examples = rest.partition("\n\n")[0].splitlines()
    assert len(examples) == 2
    for line in examples:
        parse(line.split()[1:])
    assert max(map(len, text.splitlines())) <= 80


def parse(args: list[str]) -> None:
    """Parse a command line as a shell would call it; run nothing."""
    try:
        command, context = cli, cli.make_context("bft-replay", args)
        while isinstance(command, click.Group):
            left = [*context._protected_args, *context.args]
            name, found, left = command.resolve_command(context, left)
            assert found is not None
            command, context = found, found.make_context(name, left, parent=context)
    except click.exceptions.Exit:  # --recipe
        return


def test_help_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    run(["replay", "--help"])
    assert 120 < max(map(len, capsys.readouterr().out.splitlines())) <= 160


def test_a_replay_lists_its_options_by_section(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["replay", "--help"])
    titles = re.findall(r"^(\w[\w ]*):$", capsys.readouterr().out, flags=re.MULTILINE)
    assert titles == [
        "Input",
        "Jobs",
        "Policy",
        "Solver",
        "Sharing",
        "Costs and rules",
        "Output",
        "Other",
        "Examples",
    ]


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = (
        "import sys\nfrom bft.replay.cli.main import run\nrun(['--help'])\n"
        "print([name for name in sys.modules if name.startswith('bft.replay.cli.') and 'replay_options' in name])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
        check=True,
    )
    assert said.stdout.endswith("[]\n")
    for name, about in COMMANDS.items():
        assert f"  {name}" in said.stdout
        assert about.endswith(".")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bft-replay ", set(COMMANDS)),
        ("bft-replay re", {"replay", "report"}),
        ("bft-replay --policy tir", {"tiresias-l", "tiresias-g", "tiresias-pollux"}),
        ("bft-replay replay --backend c", {"cbc"}),
        ("bft-replay replay --jobs-format p", {"pollux", "philly"}),
        ("bft-replay replay --preset ", {"best"}),
        ("bft-replay trace in", {"info"}),
        ("bft-replay ingest slurm-j", {"slurm-json"}),
        ("bft-replay solve x.json --backend ga", set()),
    ],
)
def test_the_tab_key_completes(
    words: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    *args, incomplete = words.split(" ")
    monkeypatch.setenv("COMP_WORDS", words)
    completer = ShellComplete(cli, {}, "bft-replay", "_BFT_REPLAY_COMPLETE")
    assert {
        item.value for item in completer.get_completions(args[1:], incomplete)
    } == expected


def test_the_tab_key_completes_files_where_an_option_takes_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completer = ShellComplete(cli, {}, "bft-replay", "_BFT_REPLAY_COMPLETE")
    for args, kind in (
        (["-ndmap"], "file"),
        (["replay", "--jobs"], "file"),
        (["replay", "--out"], "dir"),
    ):
        monkeypatch.setenv("COMP_WORDS", " ".join(["bft-replay", *args, "x"]))
        assert [item.type for item in completer.get_completions(args, "x")] == [kind]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_only_completions(shell: str) -> None:
    def call(instruction: str, **more: str) -> str:
        environment = {**os.environ, "_BFT_REPLAY_COMPLETE": instruction, **more}
        done = subprocess.run(
            [str(BFT)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=AMPLE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    if shell != "bash":  # which is asked for its version first
        assert "_BFT_REPLAY_COMPLETE" in call(f"{shell}_source")
    assert "generate" in call(
        f"{shell}_complete",
        COMP_WORDS="bft-replay gen",
        COMP_CWORD="gen" if shell == "fish" else "1",
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["replya"], "did you mean 'replay'?"),
        (["trace", "inof", "x"], "did you mean 'info'?"),
        (["replay", "--polcy", "milp"], "--policy"),
        (["--policy", "mlip"], "did you mean 'milp'?"),
        (["ingest", "slrum", "x", "-o", "y.parquet"], "did you mean 'slurm'?"),
        (["--backend", "cbv"], "did you mean 'cbc'?"),
        (["ingest", "--recipe", "slrum"], "did you mean 'slurm'?"),
        (["list", "policies", "mlip"], "did you mean 'milp'?"),
        (["generate", "job"], "did you mean 'jobs'?"),
        (["--preset", "bets"], "did you mean 'best'?"),
        (["list", "backends", "-v", "-q"], "give either --verbose or --quiet"),
        (["--option", "gpa=0.1"], "did you mean 'gap'?"),
        (["--gap", "0.1"], "write --option gap=VALUE"),
        (["--option", "gap"], "expected --option NAME=VALUE"),
        (["--option", "gap=0", "--option=gap=0.1"], "--option gap is given twice"),
        (["--option", "free_moves=maybe"], "expected true or false"),
        (["--option", "max-jobs=3"], "unknown option 'max-jobs'"),
    ],
)
def test_a_wrong_word_is_answered_with_what_was_expected(
    args: list[str], message: str, here: Path, refused: Callable[..., str]
) -> None:
    assert message in re.sub(r"\s+", " ", refused(args))


def test_messages_on_a_terminal_break_between_words(tmp_path: Path) -> None:
    args = [
        "-ndmap",
        str(tmp_path / "no-such-trace.parquet"),
        "--policy",
        "mlip-with-a-name-that-is-rather-long",
    ]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    terminal, theirs = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as shown:
        process = subprocess.Popen(
            [str(BFT), *args], env=environment, stderr=theirs, stdout=subprocess.DEVNULL
        )
        os.close(theirs)
        text = b""
        with contextlib.suppress(
            OSError
        ):  # which a terminal that nobody writes to any more answers
            while part := shown.read(4096):
                text += part
        assert process.wait(AMPLE_S) == 2
    lines = text.decode().replace("\r\n", "\n").rstrip("\n").split("\n")
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80
    piped = subprocess.run(
        [str(BFT), *args], capture_output=True, text=True, timeout=AMPLE_S, check=False
    ).stderr
    assert max(map(len, piped.splitlines())) > 80
    assert piped.split() == text.decode().split()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_bar_keeps_the_time_left(width: int) -> None:
    screen = Console(
        file=io.StringIO(), width=width, force_terminal=True, color_system=None
    )
    progress = bar(screen)
    progress.add_task(
        "replay as published, of a machine with a long name",
        total=480,
        completed=240,
        text="2021-02-10 04:51:56 " * 4,
    )
    screen.print(progress.get_renderable())
    (line,) = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(line) <= width
    assert " -:--:-- " in line
    assert "━" in line


def test_the_help_of_a_replay_is_short_and_names_where_all_other_options_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["replay", "--help"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^  -", shown, flags=re.MULTILINE)) <= 45
    assert "bft-replay list options" in shown.splitlines()[-1]
    assert run(["list", "options"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    rare = {field.key for field in FIELDS.values() if field.rare}
    assert listed == rare
    assert not any(f"--{key} " in shown for key in rare)
