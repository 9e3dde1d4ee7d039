"""Tables of each kind of file, and what reading says of files that are too large, damaged or odd."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import resource
import stat
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agreeing import agree
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

    # Of a user who has set nothing: what fits under a limit is prepared by the command.
    usual = {key: text for key, text in os.environ.items() if "_NUM_THREADS" not in key}
    command = [sys.executable, "-c", WATCHED, *args]
    done = result_of(command, preexec_fn=limited, env=usual)
    told, _, peak = done.stderr.strip().rpartition("\n")
    return done.returncode, told, int(peak)


def test_what_unpacks_to_more_than_the_limit_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    monkeypatch.setattr("bft.models.files.MAX_UNPACKED", 2 * MIB)
    rows = b"a,b\n" + b"1,2\n" * MIB
    (tmp_path / "t.csv").write_bytes(rows)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "t.tar.gz").write_bytes(archive({"t.csv": rows}))
    for path in (tmp_path / "t.csv.gz", tmp_path / "t.tar.gz"):
        said = f"{path}: unpacks to more than"
        told(f"convert {path} -o {tmp_path}/out.parquet", said, code=2)
    assert len(read_table(tmp_path / "t.csv")) == MIB
    blanks = gzip.compress(b" " * 3 * MIB + b"[]")
    refused("unpacks to more than", read_json, written(tmp_path / "p.json", blanks))


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for content, told in (
        (b"a," * MAX_LINE, "header line longer than 16 MiB"),
        (b'a,"b\n' + b"1,2\n" * MIB, "not a readable CSV file: field larger"),
    ):
        refused(told, read_table, written(path, content))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_lines_are_bounded_however_they_are_packed(tmp_path: Path, ending: str) -> None:
    pack = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".bz2": bz2.compress,
    }[ending]
    path = tmp_path / f"log{ending}"
    path.write_bytes(pack(b";\n" + b"x" * (MAX_LINE + 3 * MIB) + b"\n"))
    for read, *form in ((read_log,), (read_swf_jobs,), (bft.ingest, "swf")):
        refused("line longer than 16 MiB", read, path, *form)


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


def test_parquet_with_texts_that_are_not_utf8_is_refused(tmp_path: Path, told) -> None:
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
    assert (code, "ulimit -v" in said) == (2, True)
    assert said.startswith(f"Error: {path}: not enough memory")


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
    parts = (
        "[40,000,030 characters]",
        "[1,000,000 characters]",
        "c\\u001b[2J",
        "9 at all",
    )
    assert [part for part in parts if part not in told] == []
    assert printable("a\u202eb\ud800\U000e0001") == "a\\u202eb\\ud800\\U000e0001"
    assert printable("Straße 北京 ق") == "Straße 北京 ق"


@pytest.mark.parametrize(
    "args", [["solve", "-"], ["ingest", "auto", "-", "-o", "t.parquet"]]
)
def test_a_closed_standard_input_is_reported(tmp_path: Path, args: list[str]) -> None:
    done = result_of([*SCRIPT, *args], cwd=tmp_path, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (2, "Error: standard input: is closed\n")


def test_a_replay_runs_with_all_its_streams_closed(tmp_path: Path) -> None:
    def close() -> None:
        for descriptor in range(3):
            os.close(descriptor)

    command = [*SCRIPT, "--policy", "fifo", "-maxJ", "1", "--no-u", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, check=False, preexec_fn=close)
    assert done.returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]


SACCT = "JobID|NodeList|AllocNodes|Start|End|State\n"


def test_a_host_list_of_too_many_nodes_is_refused(tmp_path: Path) -> None:
    """By the command line; other lists: test_logs_core.py."""
    path = tmp_path / "log"
    hosts = "n[" + ",".join(["1-9999"] * 1_000) + "]"
    path.write_text(f"{SACCT}1|{hosts}|1|1704067200|1704070000|COMPLETED\n")
    ingest = ("ingest", "slurm", str(path), "-o", str(tmp_path / "t.parquet"))
    code, told, peak = watched(*ingest)
    assert (code, peak < 200) == (2, True), told
    assert "more than 262,144 hosts" in told


@pytest.mark.slow
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
    here: Path, told, what: str
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
    Path("p.jsonl").write_text(
        json.dumps({"units": 4, "Tfwd": 120, "jobs": [job], "id": long}) + "\n"
    )
    answer = json.loads(
        told("solve p.jsonl", "Jmin 5 and Jmax 4", code=2).splitlines()[0]
    )
    assert len(answer["error"]) < 1500


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e400", '{"a": [1, NaN]}']
)
def test_an_id_that_json_lacks_is_refused(here: Path, told, value: str) -> None:
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
    program = Path(sys.executable).with_name("bft-replay")
    line = f"{program} generate log slurm --nodes 4 --days 1 --force -o"
    into = "> redirected.txt && cat redirected.txt" if to_a_file else "| cat"
    script = f"{line} plain.txt > /dev/null && {line} /dev/stdout {into}"
    done = result_of(["sh", "-c", script], cwd=tmp_path, text=False, check=True)
    assert done.stdout.startswith((tmp_path / "plain.txt").read_bytes())
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


FRAME = pd.DataFrame({"name": ["J0", "J1"], "Jmin": [1, 2], "Pmax": [0.1, 2.5]})
CSV = b"name,Jmin,Pmax\nJ0,1,0.1\nJ1,2,2.5\n"
JSONL = b'{"name": "J0", "Jmin": 1, "Pmax": 0.1}\n\n{"name": "J1", "Jmin": 2, "Pmax": 2.5}\n'


def parquet(frame: pd.DataFrame = FRAME) -> bytes:
    sink = io.BytesIO()
    frame.to_parquet(sink)
    return sink.getvalue()


def archive(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def written(path, data: bytes):
    path.write_bytes(data)
    return path


def complaint(path) -> str:
    caught = refused("", read_table, path, trust_pickle=True)
    assert str(path) in str(caught)
    return str(caught)


KINDS = {
    ".parquet": parquet,
    ".csv": lambda: CSV,
    ".csv.gz": lambda: gzip.compress(CSV),
    ".jsonl": lambda: JSONL,
    ".jsonl.gz": lambda: gzip.compress(JSONL),
    ".pkl": lambda: pickle.dumps(FRAME),
    ".pickle": lambda: pickle.dumps(FRAME, 0),
    ".pkl.gz": lambda: gzip.compress(pickle.dumps(FRAME)),
    ".pickle.gz": lambda: gzip.compress(pickle.dumps(FRAME, 2)),
    ".tar.gz": lambda: archive({"a.pkl": pickle.dumps(FRAME)}),
    ".tgz": lambda: archive(
        {"d/a.parquet": parquet(), "README": b"x", "d/._a.pkl": b"macOS"}
    ),
    ".csv.tar.gz": lambda: archive({"a.csv": CSV}),
}


@pytest.mark.parametrize("suffix", KINDS)
def test_each_kind_is_read_by_its_suffix(suffix: str, tmp_path) -> None:
    for name in (f"jobs{suffix}", f"jobs.v2{suffix.upper()}"):
        path = written(tmp_path / name, KINDS[suffix]())
        for given in (path, str(path)):
            pd.testing.assert_frame_equal(read_table(given, trust_pickle=True), FRAME)


@pytest.mark.parametrize("suffix", KINDS)
def test_an_empty_file_is_refused(suffix: str, tmp_path) -> None:
    assert "is empty" in complaint(written(tmp_path / f"jobs{suffix}", b""))


@pytest.mark.parametrize(
    "suffix", [suffix for suffix in KINDS if suffix not in (".csv", ".jsonl")]
)
def test_a_file_cut_short_is_refused(suffix: str, tmp_path) -> None:
    data = KINDS[suffix]()
    for end in (1, 2, 5, len(data) // 4, len(data) // 2, len(data) - 9, len(data) - 1):
        if 0 < end < len(data):
            assert complaint(written(tmp_path / f"jobs{suffix}", data[:end]))


@pytest.mark.parametrize(
    "suffix", [".parquet", ".csv.gz", ".pkl.gz", ".tar.gz", ".pkl"]
)
def test_a_file_of_noise_is_refused(suffix: str, tmp_path) -> None:
    noise = np.random.default_rng(0).bytes(5000)
    assert complaint(written(tmp_path / f"jobs{suffix}", noise))
    if suffix == ".parquet":
        return  # by default, its pages have no check sum
    good = bytearray(KINDS[suffix]())
    good[len(good) // 3 : len(good) // 3 + 40] = noise[:40]
    assert complaint(written(tmp_path / f"jobs{suffix}", bytes(good)))


def linked(kind: bytes) -> bytes:
    """An archive of a link, or of what is no file at all."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as tar:
        info = tarfile.TarInfo("a.csv")
        info.type, info.linkname = kind, "/etc/hostname"
        tar.addfile(info)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "what", "suffixes"),
    [
        (parquet(), "a Parquet file", ".csv .pkl .jsonl .csv.gz .tar.gz"),
        (pickle.dumps(FRAME), "a pickle", ".csv .parquet .jsonl .pkl.gz .tgz"),
        (pickle.dumps(FRAME, 0), "a pickle", ".csv .parquet"),
        (gzip.compress(CSV, mtime=0), "gzip-compressed", ".csv .parquet .jsonl .pkl"),
        (b"PK\x03\x04" + bytes(99), "a zip archive", ".csv .parquet .tar.gz"),
        (b"SQLite format 3\0", "an SQLite data base", ".csv"),
        (b"<!DOCTYPE html><title>Log in</title>", "a web page", ".csv .parquet .pkl .tar.gz"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", ".csv .parquet .pkl"),
        (gzip.decompress(archive({"a.csv": CSV})), "a tar archive", ".tar.gz .csv"),
        (CSV, "not a Parquet file", ".parquet"),
        (CSV, "not gzip-compressed", ".csv.gz .tar.gz"),
        (CSV, "not a readable pickle", ".pkl"),
        (gzip.compress(parquet(), mtime=0), "a Parquet file", ".csv.gz .pkl.gz"),
        (parquet(), "looks like a Parquet file", ".dat"),
        (parquet(), ".jsonl.gz", ".dat"),
        # Text that is none of its kind, packed or not.
        *((pack(data), what, f"{suffix}{packed}")
          for packed, pack in (("", bytes), (".gz", gzip.compress))
          for data, what, suffix in (
              (b"a,b\n1,\xff\n", "not UTF-8 text", ".csv"),
              (b"\r\x00,b\n1,2\n", "not a readable CSV", ".csv"),
              (b'{"a": 1}\n"\xff"\n', "row 2: not UTF-8", ".jsonl"),
              (b"[" * 100_000, "row 1: not a line of JSON", ".jsonl"),
              (b'{"a": ' + b"9" * 5000 + b"}", "row 1: not a line of JSON", ".jsonl"),
          )),
        # Archives of several tables, of none, of links, and of what is wrong itself.
        (archive({"a.pkl": b"x", "folder/b.csv": CSV}), "holds 2 tables, expected one", ".tar.gz"),
        (archive({"a.pkl": b"x", "folder/b.csv": CSV}), "a.pkl, folder/b.csv", ".tar.gz"),
        (archive({"README": b"x"}), "it holds README", ".tar.gz"),
        (archive({}), "it holds nothing", ".tgz"),
        *((linked(kind), "holds no tables", ".tar.gz")
          for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)),
        (archive({"folder/a.pkl": b"no pickle"}), "t.tar.gz, folder/a.pkl: not a readable pickle", ".tar.gz"),
        (archive({"a.parquet": CSV}), "a.parquet: is not a Parquet file", ".tar.gz"),
    ],
    # Packed bytes have the time in them, and each process of the suite must find the same names.
    ids=lambda given: given if isinstance(given, str) else "data",
)  # fmt: skip
def test_what_is_no_table_is_refused_by_what_it_is(
    data: bytes, what: str, suffixes: str, tmp_path
) -> None:
    for suffix in suffixes.split():
        text = complaint(written(tmp_path / f"t{suffix}", data))
        assert what in text
        assert suffix in text


def test_a_name_without_suffix_means_the_published_file_beside_it(
    tmp_path,
) -> None:
    bare = tmp_path / "hps-JNPs-10J"
    refused("no such file.*hps-JNPs-10J.pkl, hps-JNPs-10J.tar.gz", read_table, bare)
    written(tmp_path / "hps-JNPs-10J.tar.gz", archive({"a.csv": CSV}))
    pd.testing.assert_frame_equal(read_table(bare), FRAME)
    written(tmp_path / "hps-JNPs-10J.pkl", pickle.dumps(FRAME[:1]))
    assert len(read_table(bare, trust_pickle=True)) == 1
    written(tmp_path / "summit.v1.pkl", pickle.dumps(FRAME))
    assert len(read_table(tmp_path / "summit.v1", trust_pickle=True)) == 2


def test_missing_directories_and_unknown_suffixes_are_distinguished(
    tmp_path,
) -> None:
    text = complaint(tmp_path / "jobs.csv")
    assert "no such file" in text
    assert "beside" not in text
    (tmp_path / "folder.csv").mkdir()
    for folder in (tmp_path, tmp_path / "folder.csv"):
        assert "is a directory" in complaint(folder)
    assert "looks like" not in complaint(written(tmp_path / "jobs", CSV))
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    assert "no such file" in complaint(tmp_path / "link.csv")


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="root may read everything"
)
def test_a_file_that_may_not_be_read_is_reported(tmp_path) -> None:
    path = written(tmp_path / "jobs.csv", CSV)
    path.chmod(0)
    assert "cannot be read: Permission denied" in complaint(path)


def test_a_pickle_runs_nothing_without_the_users_word(tmp_path) -> None:
    canary = tmp_path / "ran"
    hostile = b"cos\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR."
    for suffix, data in {
        ".pkl": hostile,
        ".pkl.gz": gzip.compress(hostile, mtime=0),
        ".tar.gz": archive({"a.pkl": hostile}),
    }.items():
        path = written(tmp_path / f"trace{suffix}", data)
        refused(r"any program .*add --trust-pickle", read_table, path)
        assert not canary.exists()
    assert "holds a int, expected a DataFrame" in complaint(tmp_path / "trace.pkl")
    assert canary.exists()


def test_a_published_pickle_is_known_by_its_bytes(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.dumps(FRAME)
    known = frozenset([hashlib.sha256(data).hexdigest()])
    monkeypatch.setattr("bft.models.tables._PUBLISHED", known)
    for name, content in (("t.pkl", data), ("t.tar.gz", archive({"a.pkl": data}))):
        pd.testing.assert_frame_equal(
            read_table(written(tmp_path / name, content)), FRAME
        )
    refused(
        "none of the published", read_table, written(tmp_path / "t.pkl", data + b"\n")
    )


# Archives.


def test_nothing_of_an_archive_is_written_to_disk(tmp_path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    path = written(folder / "t.tar.gz", archive({"../../evil.csv": CSV, "/evil": b"x"}))
    pd.testing.assert_frame_equal(read_table(path), FRAME)
    assert [found.name for found in tmp_path.rglob("*")] == ["here", "t.tar.gz"]


# Parquet.


def test_parquet_restores_the_index_and_keeps_metadata(tmp_path) -> None:
    frame = FRAME.set_index("name")
    table = pa.Table.from_pandas(frame)
    known = {**table.schema.metadata, b"nodes": b"512", "source é": "log"}
    pq.write_table(table.replace_schema_metadata(known), tmp_path / "jobs.parquet")
    read = read_table(tmp_path / "jobs.parquet")
    pd.testing.assert_frame_equal(read, frame)
    assert read.attrs["metadata"] == {"nodes": "512", "source é": "log"}


# CSV.


def test_csv_numbers_are_the_ones_written(tmp_path) -> None:
    values = np.random.default_rng(1).random(2000) * 10.0 ** np.arange(-100, 100, 0.1)
    lines = "x\n" + "\n".join(map(repr, values.tolist()))
    assert (
        read_table(written(tmp_path / "x.csv", lines.encode()))["x"].tolist()
        == values.tolist()
    )


def test_csv_names_are_text_whatever_they_look_like_and_nothing_at_all_is_a_gap(
    tmp_path,
) -> None:
    """Converters did this before: with some versions of pandas NA became a gap, with others nothing became a name."""
    rows = ["node,user,units", "007,1e3,1", "NA,null,NA", ",nan,", "None,,N/A"]
    text = "".join(f"{row}\n" for row in rows)
    frame = read_table(written(tmp_path / "names.csv", text.encode()))
    assert frame.astype(object).where(frame.notna(), None).to_dict(orient="list") == {
        "node": ["007", "NA", None, "None"],
        "user": ["1e3", "null", "nan", None],
        "units": [1.0, None, None, None],
    }
    assert frame["units"].dtype == "float64"


def test_csv_has_no_index_and_mixed_columns_pass(tmp_path) -> None:
    body = ",a\n" + "".join(f"{i},{i}\n" for i in range(70_000)) + "x,y\n"
    frame = read_table(written(tmp_path / "x.csv", body.encode()))
    assert list(frame.columns) == ["Unnamed: 0", "a"]
    assert isinstance(frame.index, pd.RangeIndex)


# JSON lines.


def test_jsonl_keeps_lists_and_nested_objects_and_fills_gaps(tmp_path) -> None:
    lines = [{"Ns": [0, 1, 2], "k": {"a": 1}}, {"Ns": [], "extra": "é"}]
    body = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    frame = read_table(written(tmp_path / "x.jsonl", b"\xef\xbb\xbf" + body.encode()))
    agree(
        frame,
        {"Ns": [[0, 1, 2], []], "extra": [pytest.approx(np.nan, nan_ok=True), "é"]},
    )
    assert frame["k"][0] == {"a": 1}
