"""What reading says of files that are too large, damaged or odd, and of little memory; targets that are no files."""

import bz2
import gzip
import json
import lzma
import os
import resource
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import SCRIPT, result_of
from refusals import refused

import bft
from bft.models import (
    InputError,
    read_log,
    read_swf_jobs,
    read_table,
)
from bft.models.errors import printable
from bft.models.files import MAX_LINE, drafted, read_json

MIB = 1 << 20
Told = Callable[..., str]
# Runs a command line and reports the peak of its memory; not getrusage: that begins with what the parent had.
WATCHED = """
import sys
from bft.replay.cli import main  # as the command does, so that a limit is prepared for
try:
    main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024, file=sys.stderr)
sys.exit(code)
"""


def watched(*args: str, limit_mib: int | None = None) -> tuple[int, str, int]:
    """Exit code, standard error and peak of memory (MiB) of a command line."""

    def limited() -> None:
        if limit_mib is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit_mib * MIB, limit_mib * MIB))

    done = result_of([sys.executable, "-c", WATCHED, *args], preexec_fn=limited)
    told, _, peak = done.stderr.strip().rpartition("\n")
    return done.returncode, told, int(peak)


def test_what_unpacks_to_more_than_the_limit_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.setattr("bft.models.files.MAX_UNPACKED", 2 * MIB)
    rows = b"a,b\n" + b"1,2\n" * MIB
    (tmp_path / "t.csv").write_bytes(rows)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(rows))
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(tmp_path / "t.csv", "t.csv")
    for path in (tmp_path / "t.csv.gz", tmp_path / "t.tar.gz"):
        said = f"{path}: unpacks to more than"
        told(f"convert {path} -o {tmp_path}/out.parquet", said, code=2)
    assert len(read_table(tmp_path / "t.csv")) == MIB
    packed = tmp_path / "p.json"
    packed.write_bytes(gzip.compress(b" " * 3 * MIB + b"[]"))
    refused("unpacks to more than", read_json, packed)


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for content, told in (
        (b"a," * MAX_LINE, "header line longer than 16 MiB"),
        (b'a,"b\n' + b"1,2\n" * MIB, "not a readable CSV file: field larger"),
    ):
        path.write_bytes(content)
        refused(told, read_table, path)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_lines_are_bounded_however_they_are_packed(tmp_path: Path, ending: str) -> None:
    pack = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".bz2": bz2.compress,
    }[ending]
    path = tmp_path / f"log{ending}"
    path.write_bytes(pack(b"ok\n" + b"x" * (MAX_LINE + 3 * MIB) + b"\n"))
    refused("line longer than 16 MiB", read_log, path)
    path.write_bytes(pack(b";\n" + b"x" * (MAX_LINE + 3 * MIB) + b"\n"))
    refused("line longer than 16 MiB", read_swf_jobs, path)
    refused("line longer than 16 MiB", bft.ingest, path, "swf")


def test_parquet_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    texts = pa.array(["a", None, "é", "a" * 1000])
    table = pa.table(
        {
            "text": texts,
            "large": texts.cast(pa.large_string()),
            "category": texts.dictionary_encode(),
            "binary": texts.cast(pa.binary()),
            "lists": pa.array([[1], [], None, [2, 3]]),
            "names": pa.array([["a"], [], None, ["b", "c"]]),
            "number": pa.array([1, None, 3, 4], pa.int8()),
            "time": pa.array([1, 2, 3, None], pa.timestamp("ns", "UTC")),
        }
    )
    path = tmp_path / "t.parquet"
    for rows in (4, 1):
        pq.write_table(table, path, row_group_size=rows)
        pd.testing.assert_frame_equal(read_table(path), pq.read_table(path).to_pandas())
    frame = pd.DataFrame({"x": ["p", "q"]}, index=pd.Index(["k", "l"], name="name"))
    frame.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path), frame)
    pq.write_table(table.slice(0, 0), path)
    assert len(read_table(path)) == 0


def test_parquet_with_texts_that_are_not_utf8_is_refused(
    tmp_path: Path, told: Told
) -> None:
    path = tmp_path / "jobs.parquet"
    bad = pa.array([b"ok", b"\xff\xfe"], pa.binary())
    for column in (bad.view(pa.string()), bad.view(pa.string()).dictionary_encode()):
        pq.write_table(pa.table({"x": [1, 2], "name": column}), path)
        said = f"{path}: not a readable Parquet file"
        told(f"convert {path} -o {tmp_path}/out.parquet", said, code=2)


@pytest.mark.parametrize("command", ["trace info", "solve"])
def test_out_of_memory_is_a_message_that_names_the_file(
    tmp_path: Path, command: str
) -> None:
    path = tmp_path / ("p.json" if command == "solve" else "trace.parquet")
    if command == "solve":
        path.write_bytes(b"[" + b"[]," * 9_000_000 + b"1]")
    else:
        pq.write_table(pa.table({"x": np.full(30_000_000, 7)}), path)
    code, said, _ = watched(*command.split(), str(path), limit_mib=620)
    assert code == 2
    assert said.startswith(f"Error: {path}: not enough memory")
    assert "ulimit -v" in said


def test_a_thread_that_cannot_start_is_no_damage_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    told = "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"

    def read(_: pq.ParquetFile) -> None:
        raise pa.ArrowException(told)

    monkeypatch.setattr(pq.ParquetFile, "read", read)
    refused(f"not enough memory: {told} .*ulimit", read_table, path)


@pytest.mark.parametrize(
    "limit_mib",
    [600, *(pytest.param(more, marks=pytest.mark.slow) for more in (700, 1000))],
)
def test_a_limited_address_space_is_enough_for_a_replay(
    tmp_path: Path, limit_mib: int
) -> None:
    jobs = tmp_path / "jobs.csv"
    rest = '1,4,1e5,2021-02-10T00:00:00Z,6,3,"[0,1,4]","[0,10,38]","[0,10,38]"'
    jobs.write_text(
        f"name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\na,{rest}\nb,{rest}\n"
    )
    line = f"replay --cluster 2x4 --jobs {jobs} --policy milp --backend exact --out {tmp_path}/out"
    code, told, _ = watched(*line.split(), limit_mib=limit_mib)
    assert code == 0, told
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["metrics"]["jobs_finished"] == 2


def test_messages_are_short_and_do_not_act_on_a_terminal() -> None:
    told = str(
        InputError(
            "expected a number, not " + "9" * 40_000_000 + " at all",
            job="j" * 10**6,
            column="c\x1b[2J",
        )
    )
    assert len(told) < 3000
    assert told.endswith("9 at all")
    assert "[40,000,030 characters]" in told
    assert "[1,000,000 characters]" in told
    assert "c\\u001b[2J" in told
    assert printable("a\u202eb\ud800\U000e0001") == "a\\u202eb\\ud800\\U000e0001"
    assert printable("Straße 北京 ق") == "Straße 北京 ق"


@pytest.mark.parametrize(
    "args", [["solve", "-"], ["ingest", "auto", "-", "-o", "t.parquet"]]
)
def test_a_closed_standard_input_is_reported(tmp_path: Path, args: list[str]) -> None:
    done = result_of([*SCRIPT, *args], cwd=tmp_path, preexec_fn=lambda: os.close(0))
    assert done.returncode == 2
    assert done.stderr == "Error: standard input: is closed\n"


def test_a_replay_runs_with_all_its_streams_closed(tmp_path: Path) -> None:
    def close() -> None:
        for descriptor in range(3):
            os.close(descriptor)

    command = [*SCRIPT, "-Tfwd", "120", "-maxJ", "1", "--no-u", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, check=False, preexec_fn=close)
    assert done.returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]


SACCT = "JobID|NodeList|AllocNodes|Start|End|State\n"


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("n[1-999999999]", "more than 262,144 hosts"),
        ("n" + "[1-9]" * 1_800, "more than 262,144 hosts"),
        ("n[" + ",".join(["1-9999"] * 1_000) + "]", "more than 262,144 hosts"),
    ],
)
def test_a_host_list_of_too_many_nodes_is_refused(
    tmp_path: Path, hosts: str, said: str
) -> None:
    path = tmp_path / "log"
    path.write_text(f"{SACCT}1|{hosts}|1|1704067200|1704070000|COMPLETED\n")
    code, told, peak = watched(
        "ingest", "slurm", str(path), "-o", str(tmp_path / "t.parquet")
    )
    assert code == 2
    assert said in told
    assert peak < 200


def test_full_lists_of_a_large_machine_do_not_fill_the_memory(tmp_path: Path) -> None:
    """A row of 60 bytes states 131,072 nodes: together 13 million, of which a block holds few at a time."""
    path = tmp_path / "log"
    rows = (
        f"{k}|n[000001-131072]|131072|{1_704_067_200 + k}|{1_704_067_201 + k}|{'FAILED' if k % 9 else 'COMPLETED'}\n"
        for k in range(100)
    )
    path.write_text(SACCT + "".join(rows))
    code, told, peak = watched(
        "ingest", "slurm", str(path), "-o", str(tmp_path / "t.parquet")
    )
    assert code == 0, told
    assert peak < 600


@pytest.mark.parametrize("what", ["name", "id"])
def test_long_names_of_a_problem_are_shortened_in_messages(
    here: Path, told: Told, what: str
) -> None:
    long = "x" * 5_000_000
    job = {
        "name": "a" if what == "id" else long,
        "Jmin": 5,
        "Jmax": 4,
        "Ns": [0, 4],
        "Os": [0, 4],
        "Tcup": 1,
        "Tcdw": 1,
    }
    posed = {"units": 4, "Tfwd": 120, "jobs": [job], "id": long}
    Path("p.jsonl").write_text(json.dumps(posed) + "\n")
    answer = json.loads(
        told("solve p.jsonl", "Jmin 5 and Jmax 4", code=2).splitlines()[0]
    )
    assert len(answer["error"]) < 1500


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e400", '{"a": [1, NaN]}']
)
def test_an_id_that_json_lacks_is_refused(here: Path, told: Told, value: str) -> None:
    Path("p.json").write_text(f'{{"units": 4, "Tfwd": 120, "jobs": [], "id": {value}}}')
    told(
        "solve p.json",
        "Error: id: expected a value that JSON has, not",
        code=2,
    )


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with drafted(pipe) as draft:
        draft.write_text("content\n")
    reader.join()
    assert read == [b"content\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("to_a_file", [False, True])
def test_standard_output_as_a_target_gets_the_log(
    tmp_path: Path, to_a_file: bool
) -> None:
    command = [str(Path(sys.executable).with_name("bft-replay"))]
    command += ["generate", "log", "slurm", "--nodes", "4", "--days", "1", "--force"]
    plain = tmp_path / "plain.txt"
    subprocess.run([*command, "-o", str(plain)], check=True, capture_output=True)
    command += ["-o", "/dev/stdout"]
    if to_a_file:
        with (tmp_path / "redirected.txt").open("wb") as stream:
            subprocess.run(command, check=True, stdout=stream, stderr=subprocess.PIPE)
        got = (tmp_path / "redirected.txt").read_bytes()
    else:
        got = subprocess.run(command, check=True, capture_output=True).stdout
    assert got.startswith(plain.read_bytes())
    assert Path("/dev/stdout").is_symlink()


def test_the_file_that_a_link_leads_to_is_written_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real.txt"
    target.write_text("before")
    link = tmp_path / "link.txt"
    link.symlink_to(target)
    with drafted(link) as draft:
        draft.write_text("after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    assert str(target) in caplog.text
