"""`bft-replay watch` as a process: what it tells, what it leaves, how it ends, and what it refuses."""

import json
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any

import numpy as np
import pandas as pd
import pytest
from processes import AMPLE_S, SCRIPT, result_of, signalled
from stated import once

from bft.datasets import generate_dnn_jobs

NODES = [f"n{number}" for number in range(6)]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Many jobs of about a second each, submitted since yesterday."""
    first = pd.Timestamp.now("UTC") - pd.Timedelta("24h")
    frame = generate_dnn_jobs(
        jobs=1000, first_submit=first.isoformat(), interval_s=1, pmax=3e3
    )
    frame.to_parquet(tmp_path / "jobs.parquet")
    return tmp_path / "jobs.parquet"


def arguments(jobs: Path, *more: str) -> list[str]:
    out = jobs.parent / "shadow"
    usual = (
        "--jobs",
        str(jobs),
        "--policy",
        "equal-share",
        "--out",
        str(out),
        "--no-u",
        "--json",
    )
    return once([*SCRIPT, "watch", *usual, *more])


def report(jobs: Path, states: dict[str, str]) -> str:
    """A command that prints these states, from a file that tests may replace."""
    file = jobs.with_name("states")
    draft = jobs.with_name("states-new")
    draft.write_text("".join(f"{node}|{state}\n" for node, state in states.items()))
    draft.rename(file)
    return f"cat {file}"


@contextmanager
def watching(
    command: Sequence[str], limited: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The command as a process whose files are limited to so many bytes."""
    size = limited or resource.RLIM_INFINITY
    with subprocess.Popen(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def feed(process: subprocess.Popen[str], text: str) -> None:
    """Write to its standard input."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def all_idle() -> str:
    """Lines that say that all nodes are idle now."""
    return "".join(f"{time.time()},{node},1\n" for node in NODES)


def refuses(command: list[str], message: str, **given: Any) -> None:
    """Run a command that is refused with this message."""
    done = result_of(command, **given)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def lines_until(process: subprocess.Popen[str], idle: int) -> list[dict[str, Any]]:
    """What is told until so many nodes are idle."""
    assert process.stdout is not None
    told: list[dict[str, Any]] = []
    for line in process.stdout:
        told.append(json.loads(line))
        if told[-1].get("idle") == idle:
            return told
    raise AssertionError(f"{idle} nodes were never idle: {told[-3:]}")


def shadow_of(jobs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (jobs.parent / "shadow" / "shadow.json").read_text()
    )
    return found["shadow"]


def holders(run_directory: Path) -> pd.DataFrame:
    rows = pd.read_parquet(run_directory / "allocations.parquet")
    return rows.assign(
        start=rows["start"].astype("int64"), end=rows["end"].astype("int64")
    )


def contradicted(
    told: Sequence[dict[str, Any]], run_directory: Path, nodes: Sequence[str]
) -> list[Any]:
    """Lines that tell other holders than the run of the whole record has at their instants."""
    rows = holders(run_directory)
    end = rows["end"].max()
    wrong = []
    for line in told:
        if "time_ns" in line and line["time_ns"] < end:
            now = rows[
                (rows["start"] <= line["time_ns"]) & (rows["end"] > line["time_ns"])
            ]
            held: dict[str, list[str]] = {}
            for row in now.itertuples():
                held.setdefault(row.job, []).extend(
                    nodes[row.first_unit : row.last_unit + 1]
                )
            if {job: sorted(some) for job, some in held.items()} != {
                job: sorted(some) for job, some in line["hold"].items()
            }:
                wrong.append((line, held))
    return wrong


def test_a_command_is_watched_and_the_run_of_its_record_is_equal(jobs: Path) -> None:
    command = report(jobs, dict.fromkeys(NODES, "idle") | {"n0": "allocated"})
    done = result_of(
        arguments(jobs, "--command", command, "--every", "0.3", "--for", "1s")
    )
    assert done.returncode == 0, done.stderr
    header, *told, end = map(json.loads, done.stdout.splitlines())
    assert (header["format"], header["format_version"]) == ("bft-replay shadow", 1)
    assert (header["touches"], header["nodes"], header["clairvoyant"]) == (
        "nothing",
        NODES,
        False,
    )
    assert header["options"]["oversized"] == "wait"
    keys = {"time_ns", "idle", "hold", "decided", "ended", "lag_s"}
    assert all(line.keys() == keys for line in told)
    assert max(line["idle"] for line in told) == 5
    assert end["shadow"] == shadow_of(jobs)
    assert end["shadow"].keys() == {
        "equal", "until", "late", "missed", "unknown", "max_lag_s",
    }  # fmt: skip
    assert (end["shadow"]["equal"], end["shadow"]["until"]) == (True, None)
    assert not contradicted(told, Path(end["run"]), NODES)
    refuses(arguments(jobs, "--command", command), "come to its end")


def test_without_json_the_first_line_says_that_nothing_is_touched(jobs: Path) -> None:
    command = report(jobs, dict.fromkeys(NODES, "idle"))
    told = arguments(jobs, "--command", command, "--for", "1s")
    told.remove("--json")
    told[told.index("--out") + 1] = "shadow"  # as without it
    done = result_of(told, cwd=jobs.parent)
    assert done.returncode == 0, done.stderr
    assert "nothing on this machine is touched" in done.stdout.splitlines()[0]
    assert "jobs finished" in done.stdout
    assert shadow_of(jobs)["equal"]


def test_looks_that_know_no_node_are_missed_and_then_all_nodes_are_taken(
    jobs: Path,
) -> None:
    command = report(jobs, dict.fromkeys(NODES, "idle"))
    with watching(arguments(jobs, "--command", command, "--every", "0.4")) as process:
        lines_until(process, 6)
        report(jobs, dict.fromkeys(NODES, "unk*"))  # as while slurmctld starts
        lines_until(process, 0)
        assert process.stderr is not None
        while "no node is known to be idle or busy" not in process.stderr.readline():
            assert process.poll() is None
        report(jobs, dict.fromkeys(NODES, "idle"))
        lines_until(process, 6)
        process.terminate()
        _, errors = process.communicate(timeout=AMPLE_S)
    assert process.returncode == 0, errors
    assert shadow_of(jobs)["equal"]
    assert shadow_of(jobs)["missed"] >= 1


def test_a_node_settles_and_what_an_actuator_holds_counts_as_idle(jobs: Path) -> None:
    states = dict.fromkeys(NODES, "allocated") | {"n4": "idle"}
    listed = jobs.with_name("listed")
    listed.write_text(
        "n[0-1]|pilot|batch|one\nn1|someone|batch|two\nn2|pilot|batch|three\n"
    )
    more = ("--every", "1", "--own", "pilot", "--holders", f"cat {listed}")
    command = report(jobs, states)
    with watching(
        arguments(jobs, "--command", command, *more, "--settle", "0.5")
    ) as process:
        header, *told = lines_until(process, 3)  # n0, n2 and n4: on n1 is another job
        process.terminate()
        _, errors = process.communicate(timeout=AMPLE_S)
    assert process.returncode == 0, errors
    first = next(line for line in told if line["idle"])
    assert first["time_ns"] >= header["start"] + 500_000_000
    assert shadow_of(jobs)["equal"]


def test_lines_on_standard_input_are_watched_until_ctrl_c(jobs: Path) -> None:
    with watching(arguments(jobs)) as process:
        feed(process, "time,node,idle\n" + all_idle())
        lines_until(process, 6)
        feed(process, f"nonsense\n{time.time()},n3,0\n{time.time()},elsewhere,1\n")
        lines_until(process, 5)
        process.send_signal(signal.SIGINT)
        process.stdout.close()  # type: ignore[union-attr] # which does not end it
        assert process.wait(AMPLE_S) == 0
        assert process.stderr is not None
        assert (
            "nodes that the first look did not name are left out: 1 (first: elsewhere)"
            in process.stderr.read()
        )
    found = shadow_of(jobs)
    assert (found["equal"], found["missed"], found["unknown"]) == (True, 1, 1)


def fed(process: subprocess.Popen[str], rng: np.random.Generator, times: int) -> None:
    """Change states of nodes so many times."""
    for _ in range(times):
        late = float(rng.choice([0.0, 0.3]))
        changes = [(node, rng.integers(2)) for node in NODES if rng.random() < 0.5]
        text = "".join(
            f"{time.time() - late:.9f},{node},{idle}\n" for node, idle in changes
        )
        feed(process, text)
        time.sleep(0.05)


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_a_watch_that_is_killed_anywhere_contradicts_nothing_it_told(
    jobs: Path, kills: int
) -> None:
    rng = np.random.default_rng(kills)
    told: list[dict[str, Any]] = []
    for left in reversed(range(kills + 1)):
        with watching(arguments(jobs)) as process:
            feed(process, all_idle())
            before = lines_until(process, 6)
            fed(process, rng, int(rng.integers(10)))
            if left:
                process.kill()
            rest, errors = process.communicate(timeout=AMPLE_S)
        whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        told += before + [json.loads(line) for line in whole]
    assert process.returncode == 0, errors
    assert shadow_of(jobs)["equal"]
    assert len(told) > kills
    assert not contradicted(told, jobs.parent / "shadow" / "run", NODES)


def test_a_full_disk_stops_it_before_it_decides_and_it_goes_on_from_there(
    jobs: Path,
) -> None:
    told: list[dict[str, Any]] = []
    with suppress(BrokenPipeError), watching(arguments(jobs), limited=2048) as process:
        assert process.stdout is not None

        def read(stdout: IO[str] = process.stdout) -> None:
            told.extend(map(json.loads, stdout))

        reader = Thread(target=read)
        reader.start()
        with suppress(BrokenPipeError):
            for number in range(10_000):
                lines = (f"{time.time()},{node},{number % 2}\n" for node in NODES)
                feed(process, "".join(lines))
                time.sleep(0.05)
        assert process.wait(AMPLE_S) == 2
        reader.join()
        assert process.stderr is not None
        why = process.stderr.read()
        assert "record.jsonl: cannot be written: File too large" in why
    # The last line is torn, unless the disk was full at its end.
    text = (jobs.parent / "shadow" / "record.jsonl").read_text()
    whole = text[: text.rfind("\n")].splitlines()[1:]
    assert told[-1]["time_ns"] <= max(json.loads(line)[0] for line in whole)
    with watching(arguments(jobs)) as process:
        feed(process, all_idle())
        rest, errors = process.communicate(timeout=AMPLE_S)
    assert process.returncode == 0, errors
    assert shadow_of(jobs)["equal"]
    told += map(json.loads, rest.splitlines())
    assert not contradicted(told, jobs.parent / "shadow" / "run", NODES)


# What was decided live differs from this row on, and an answer came at a time limit from that row on.
_OTHERWISE = """
import pandas as pd
import bft.replay.shadow as watching

written = watching.write_outcome

def otherwise(folder, outcome):
    written(folder, outcome)
    steps = pd.read_parquet(folder / "steps.parquet")
    steps.loc[{limited}:, "status"] = "feasible"
    steps.loc[{differs}:, "jobs"] += 1
    steps.to_parquet(folder / "steps.parquet")

watching.write_outcome = otherwise
"""


@pytest.mark.parametrize(
    ("limited", "differs", "equal", "code"),
    [(3, 3, True, 0), (3, 2, False, 3), (10**6, 2, False, 3)],
)
def test_after_an_answer_at_a_time_limit_equality_is_not_claimed(
    jobs: Path, limited: int, differs: int, equal: bool, code: int
) -> None:
    more = _OTHERWISE.format(limited=limited, differs=differs)
    command = report(jobs, dict.fromkeys(NODES, "idle"))
    given = arguments(jobs, "--command", command, "--for", "2s")[len(SCRIPT) :]
    done = result_of([*signalled([], more=more), *given])
    assert done.returncode == code, done.stderr
    found, steps = shadow_of(jobs), jobs.parent / "shadow" / "run" / "steps.parquet"
    at = None if limited > 3 else str(pd.read_parquet(steps)["time"].iloc[3])
    assert (found["equal"], found["until"]) == (equal, at)
    assert (at is None) != ("came at a time limit: from there on" in done.stderr)
    assert equal != ("Different: the replay of the record" in done.stderr)


def test_a_record_of_other_options_or_inputs_is_refused(jobs: Path) -> None:
    command = report(jobs, dict.fromkeys(NODES, "idle"))
    with watching(arguments(jobs, "--command", command)) as process:
        lines_until(process, 6)
        refuses(arguments(jobs, "--command", command), "another replay is writing here")
    other = arguments(jobs, "--command", command, "--max-jobs", "5")
    refuses(other, "other options or inputs")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--cluster", "2x2"), "--cluster is a machine that is always idle"),
        (
            ("--option", "compat=reference"),
            "compat=reference replays a file as published",
        ),
        (
            ("--policy", "schedule"),
            "--policy schedule carries out decisions that were made before",
        ),
        (("--option", "oversized=skip"), "and jobs wait"),
        (("--policy", "milp", "--set", "window=expected"), "needs a log of host jobs"),
        (("--own", "pilot"), "--holders COMMAND"),
        (("--for", "3x"), "--for"),
    ],
)
def test_what_looks_into_the_future_is_refused(
    jobs: Path, more: tuple[str, ...], message: str, refused: Callable[..., str]
) -> None:
    refused(arguments(jobs, "--command", "true", *more)[len(SCRIPT) :], message)
    assert not (jobs.parent / "shadow").exists()


def test_no_jobs_no_nodes_and_jobs_larger_than_the_machine_are_refused(
    jobs: Path, refused: Callable[..., str]
) -> None:
    refused("watch --command true", "needs the jobs")
    nobody = "the first look, which names all nodes: no node"
    refuses(arguments(jobs), nobody, stdin=subprocess.DEVNULL)
    pd.read_parquet(jobs).assign(Jmin=7).to_parquet(jobs)
    command = arguments(jobs, "--command", report(jobs, dict.fromkeys(NODES, "idle")))
    refuses(command, "needs more units than the machine has")
    jobs.unlink()
    refuses(arguments(jobs, "--command", "false", "--every", "0.1"), str(jobs))
