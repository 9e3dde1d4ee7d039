"""`bft-replay xi measure`, `xi show --retest`, and what measuring reads of GPUs.

The machine of a test has no GPU. Stand-ins for `nvidia-smi` and `rocm-smi` answer in the documented formats (manual of
nvidia-smi, `--query-gpu` with `--format=csv,noheader,nounits`; keys of `rocm-smi --json`). What is measured with them
are loops on the processor, which run for real.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from processes import AMPLE_S, SCRIPT

from bft.models import InputError, read_unit_memory, read_xi
from bft.models.measure.gpu_usage import (
    find_tool,
    nvidia_smi,
    rocm_smi,
    usage_of,
)
from bft.replay.cli.main import run

QUICK = [
    "--repeats",
    "2",
    "--steps",
    "5",
    "--warmup",
    "1",
    "--at-least",
    "0",
    "--time-limit",
    "900",
]
LOOP = """
import os, sys, time
if sys.argv[1] == "0":
    sys.exit(3)
for _ in range(int(sys.argv[2]) if sys.argv[2:] else 10**9):
    start = time.perf_counter()
    sum(range(int(sys.argv[1])))
    print(f"step_time={time.perf_counter() - start:.9f} devices {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    time.sleep(0.001)
"""
# GPU 0 has 500 MiB in use, and a MiB more for each number that a loop here sums up.
NVIDIA = """#!{python}
import pathlib, sys
assert sys.argv[1:] == [
    "--query-gpu=index,utilization.gpu,utilization.memory,memory.used", "--format=csv,noheader,nounits"
]
used = 500
for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        words = line.read_text().split(chr(0))
    except OSError:
        continue
    if {loop!r} in words:
        used += int(words[words.index({loop!r}) + 1])
print(f"0, {{80 if used > 500 else 0}}, {{30 if used > 500 else 0}}, {{used}}")
print("1, 0, 0, 3")
"""


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    Path("loop.py").write_text(LOOP)
    Path("bin").mkdir()
    monkeypatch.setenv("PATH", f"{here / 'bin'}:/usr/bin:/bin")
    return here


def stand_in(name: str, script: str) -> None:
    path = Path("bin", name)
    path.write_text(script)
    path.chmod(0o755)


def gpu(folder: Path) -> None:
    """A stand-in for nvidia-smi that sees the loops of this test."""
    stand_in(
        "nvidia-smi", NVIDIA.format(python=sys.executable, loop=str(folder / "loop.py"))
    )


def loop(folder: Path, size: int) -> str:
    return f"{sys.executable} {folder / 'loop.py'} {size}"


# --- what the tools answer --------------------------------------------------------------------------------------------


def test_nvidia_smi_is_read_line_by_line_and_may_lack_utilisations(
    folder: Path,
) -> None:
    stand_in(
        "nvidia-smi",
        "#!/bin/sh\necho '0, 37, 12, 5432'\necho '1, [N/A], [Not Supported], 3'\n",
    )
    assert nvidia_smi().fillna(-1).to_dict("split", index=True)["data"] == [
        [37, 12, 5432],
        [-1, -1, 3],
    ]


def test_rocm_smi_is_read_by_the_keys_of_old_and_new_versions(folder: Path) -> None:
    cards = {
        "card0": {
            "GPU use (%)": "37",
            "GPU Memory Allocated (VRAM%)": "9",
            "GPU Memory Read/Write Activity (%)": "12",
            "VRAM Total Memory (B)": "68702699520",
            "VRAM Total Used Memory (B)": str(5 * 2**20),
        },
        "card1": {
            "GPU use (%)": "0",
            "GPU memory use (%)": "1",
            "VRAM Total Used Memory (B)": "0",
        },
        "system": {"Driver version": "6.2"},
    }
    stand_in(
        "rocm-smi",
        f"#!/bin/sh\necho 'WARNING: AMD GPU in low-power state'\necho '{json.dumps(cards)}'\n",
    )
    assert rocm_smi().T.to_dict("list") == {0: [37, 12, 5], 1: [0, 1, 0]}
    assert find_tool() is rocm_smi


@pytest.mark.parametrize(
    ("tool", "script", "what"),
    [
        (
            "nvidia-smi",
            "echo 'No devices were found'; exit 6",
            "failed with exit code 6: No devices were found",
        ),
        (
            "nvidia-smi",
            "echo '0, 37, 12'",
            "expected index, two utilisations and memory in use, not '0, 37, 12'",
        ),
        ("nvidia-smi", None, "nvidia-smi cannot be used: No such file"),
        ("rocm-smi", "echo 'no card'", "expected a JSON object, not 'no card'"),
        (
            "rocm-smi",
            "echo '{\"card0\": {}}'",
            "a card has no 'VRAM Total Used Memory (B)'",
        ),
    ],
)
def test_a_tool_that_answers_something_else_is_named(
    folder: Path, tool: str, script: str | None, what: str
) -> None:
    if script is not None:
        stand_in(tool, f"#!/bin/sh\n{script}\n")
    with pytest.raises(InputError) as caught:
        find_tool(tool)
    assert what in str(caught.value)


def test_memory_counts_above_what_was_in_use_before() -> None:
    columns = ["gpu_util", "gmem_util", "memory_mib"]
    before = pd.DataFrame([[0, 0, 100], [0, 0, 300]], columns=columns)
    samples = [
        pd.DataFrame([[100, 40, 1124], [50, 0, 200]], columns=columns),
        pd.DataFrame([[100, 40, 612]], columns=columns),
    ]
    used = usage_of(before, samples)
    assert (used.gpu_util, used.gmem_util) == (
        pytest.approx(250 / 3),
        pytest.approx(80 / 3),
    )
    assert (used.gmem, used.memory_gib, used.samples) == (
        pytest.approx((1024 + 0 + 512) / 3),
        1.0,
        2,
    )


# --- measuring --------------------------------------------------------------------------------------------------------


def test_collect_measures_a_table_resumes_and_feeds_the_other_commands(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu(folder)
    Path("trainings.csv").write_text(
        f"model,batch,command\na,1024,{loop(folder, 0)[:-1]}{{batch}}\nb,8,{loop(folder, 512)}\n"
    )
    Path("some.csv").write_text("model_a,batch_a,model_b,batch_b\nb,,b,8\n")
    args = [
        "xi",
        "measure",
        "trainings.csv",
        "-o",
        "out",
        *QUICK,
        "--gpu",
        "nvidia-smi",
        "--devices",
        "0",
    ]
    assert run([*args, "--pairs", "some.csv"]) == 0
    assert "1 of 1 pairs measured" in capsys.readouterr().out
    before = pd.read_csv("out/xi.csv")
    assert run(args) == 0
    told = capsys.readouterr()
    assert "1 of 3 pairs have been measured before" in told.err
    assert "3 of 3 pairs measured" in told.out
    after = pd.read_csv("out/xi.csv")
    pd.testing.assert_frame_equal(after.head(1), before, check_dtype=False)
    assert len(read_xi("out/xi.csv").measurements) == 3
    assert set(after["units"]) == {1}
    assert run(args) == 0  # nothing is left to do
    pd.testing.assert_frame_equal(pd.read_csv("out/xi.csv"), after)
    assert run([*args, "--pairs", "some.csv", "--again"]) == 0
    again = pd.read_csv("out/xi.csv")
    assert list(zip(again["model_a"], again["model_b"], strict=True)) == [
        ("a", "a"), ("a", "b"), ("b", "b"),
    ]  # fmt: skip
    assert again.iloc[2].to_dict() != before.iloc[0].to_dict()
    profiles = pd.read_csv("out/profiles.csv")
    assert list(zip(profiles["model"], profiles["batch"], profiles["gmem"], strict=True)) == [
        ("a", 1024, 1024), ("b", 8, 512),
    ]  # fmt: skip
    assert {"gpu_util", "gmem_util", "gmem", "amp", "label", "step_s"} <= set(
        profiles.columns
    )
    assert set(profiles["label"]) <= {0, 1, 2}
    # The tables are what others take.
    memory = read_unit_memory("out/profiles.csv")
    assert (memory.bound_gib("a", 1024), memory.bound_gib("b", 8)) == (1.0, 0.5)
    assert run(["xi", "show", "out/xi.csv"]) == 0


def test_trainings_that_fail_are_told_with_the_reason_and_tried_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("trainings.csv").write_text(
        f"model,command\ngood,{loop(folder, 100)}\nbad,{loop(folder, 0)}\n"
    )
    args = ["xi", "measure", "trainings.csv", "-o", "out", *QUICK]
    assert run(args) == 3
    told = capsys.readouterr()
    assert "1 of 3 pairs measured" in told.out
    assert "2 pairs failed; the same command tries them again" in told.out
    assert "no GPU can be read here" in told.err
    for pair in ("good beside bad", "bad beside bad"):
        assert f"{pair}: command " in told.err
    assert "failed with exit code 3" in told.err
    Path("trainings.csv").write_text(
        f"model,command\ngood,{loop(folder, 100)}\nbad,{loop(folder, 50)}\n"
    )
    assert run(args) == 0
    assert "3 of 3 pairs measured" in capsys.readouterr().out
    assert "memory_gib" not in pd.read_csv("out/profiles.csv")


@pytest.mark.parametrize(
    ("command", "telling"),
    [
        ("python loop.py 0", ("failed with exit code 3 after ", "printed nothing")),
        ("python loop.py 60 9", ("ended after ", " step times ", "--steps", "| step_time=")),
        ("echo nothing to read", ("0 of 1 step times", "| nothing to read")),
        ("sleep 60", ("time limit", "printed nothing")),
        ("yes no times 7", ("time limit", "| no times 7")),
        ("no-such-program", ("no-such-program) cannot be started: No such file",)),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_measured_is_reported_with_the_end_of_its_output(
    folder: Path, told: Callable[..., str], command: str, telling: tuple[str, ...]
) -> None:
    Path("trainings.csv").write_text(f"model,command\na,{command}\n".replace("python", sys.executable))  # fmt: skip
    limit = ["2" if "time limit" in telling else "900"]
    line = ["xi measure trainings.csv -o out --gpu none", *QUICK[:-1], *limit]
    # A busy machine may see the first of the two alike commands to the end, and the second fail.
    told(" ".join(line), "command ", *telling, code=3)
    assert not Path("out/xi.csv").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_what_was_started_and_its_children(
    folder: Path, number: int
) -> None:
    Path("parent.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        "open('pids.part', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids.part', 'pids')\n"
        "time.sleep(100)\n"
    )
    Path("trainings.csv").write_text(f"model,command\na,{sys.executable} parent.py\n")
    command = [*SCRIPT, "xi", "measure", "trainings.csv", "-o", "out"]
    measuring = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        while not Path("pids").exists():
            assert measuring.poll() is None
            time.sleep(0.05)
        measuring.send_signal(number)
        _, told = measuring.communicate(timeout=AMPLE_S)
    finally:
        measuring.kill()
    assert measuring.returncode == 130
    assert b"Interrupted" in told
    for pid in map(int, Path("pids").read_text().split()):
        status = Path(f"/proc/{pid}/stat")
        assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"  # fmt: skip


@pytest.mark.parametrize(
    ("table", "pairs", "what"),
    [
        ("model,command\na,\n", "", "row 1, column command"),
        ("model,command\na,python {batch}\n", "", "row 1, column batch"),
        ("model,command\na,ls\na,ls -l\n", "", "a appears twice"),
        ("model,command\na,'python\n", "", "not a command"),
        (
            "model,command\na,ls\n",
            "model_a,model_b\na,z\n",
            "no command for z in the table of trainings",
        ),
    ],
)
def test_tables_that_cannot_be_collected_are_refused_before_anything_runs(
    folder: Path, table: str, pairs: str, what: str, refused: Callable[..., str]
) -> None:
    Path("trainings.csv").write_text(table)
    Path("pairs.csv").write_text(pairs)
    more = " --pairs pairs.csv" if pairs else ""
    refused(f"xi measure trainings.csv -o out{more}", what)


# --- repairing --------------------------------------------------------------------------------------------------------

DOUBTFUL = """model_a,batch_a,model_b,batch_b,xi_a,xi_b,note
a,1,b,2,0.93,1.2,noise
a,1,c,3,1.1,1.1,fine
b,2,c,3,7.5,1.3,high
c,3,d,4,1.1,1.2,one
d,4,c,3,1.25,1.4,two
"""


def test_rows_in_doubt_are_named_and_planned_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("xi.csv").write_text(DOUBTFUL)
    assert run(["xi", "show", "xi.csv", "--retest", "again.csv", "--json"]) == 0
    told = capsys.readouterr()
    rows = json.loads(told.out)["retest"]
    assert [row["row"] for row in rows] == [1, 3, 4, 5]
    reasons = [row["reason"] for row in rows]
    assert reasons[0] == "xi of a@1 beside b@2 is 0.93, below 1"
    assert reasons[1] == "xi of b@2 beside c@3 is 7.5, above 5"
    assert reasons[2] == "xi of c beside d was measured from 1.1 to 1.4"
    assert "again.csv: 3 pairs to measure again, of 4 rows" in told.err
    plan = pd.read_csv("again.csv")
    assert list(zip(plan["model_a"], plan["model_b"], plan["row"], strict=True)) == [
        ("a", "b", 1), ("b", "c", 3), ("c", "d", 4),
    ]  # fmt: skip
    assert run(["xi", "show", "xi.csv", "--retest", "again.csv"]) == 2
    Path("good.csv").write_text("model_a,model_b,xi_a,xi_b\na,b,1.2,1.1\n")
    assert run(["xi", "show", "good.csv", "--retest", "none.csv"]) == 0
    assert len(pd.read_csv("none.csv")) == 0


# --- the examples -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_example_trainings_can_be_measured_and_fitted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = Path(__file__).parents[3] / "examples" / "workloads" / "train.py"
    table = pd.read_csv(train.parent / "trainings.csv")
    table["command"] = table["command"].str.replace(
        "python train.py", f"{sys.executable} {train}", regex=False
    )
    table[table["model"] == "embedding"].to_csv("trainings.csv", index=False)
    assert run(["xi", "measure", "trainings.csv", "-o", "out", *QUICK]) == 0
    assert "1 of 1 pairs measured" in capsys.readouterr().out
    logged = [
        sys.executable,
        str(train),
        "convolution",
        "--batch",
        "4",
        "--steps",
        "30",
    ]
    Path("run.log").write_text(
        subprocess.run(logged, capture_output=True, text=True, check=True).stdout
    )
    assert (
        run(
            [
                "jobs",
                "fit",
                "--log",
                "run.log",
                "--units",
                "1",
                "--batch-size",
                "4",
                "--name",
                "net",
            ]
        )
        == 0
    )
    assert "net" in capsys.readouterr().out
