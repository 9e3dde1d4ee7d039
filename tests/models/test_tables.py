"""Reading tables: each kind of file, and the messages for invalid files."""

import gzip
import hashlib
import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused

from bft.models.tables import read_table

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


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def complaint(path: Path) -> str:
    caught = refused("", read_table, path, trust_pickle=True)
    assert str(path) in str(caught)
    return str(caught)


KINDS: dict[str, Callable[[], bytes]] = {
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
def test_each_kind_is_read_by_its_suffix(suffix: str, tmp_path: Path) -> None:
    for name in (f"jobs{suffix}", f"jobs.v2{suffix.upper()}"):
        path = written(tmp_path / name, KINDS[suffix]())
        for given in (path, str(path)):
            frame = read_table(given, trust_pickle=True)
            pd.testing.assert_frame_equal(frame, FRAME)


@pytest.mark.parametrize("suffix", KINDS)
def test_an_empty_file_is_refused(suffix: str, tmp_path: Path) -> None:
    assert "is empty" in complaint(written(tmp_path / f"jobs{suffix}", b""))


@pytest.mark.parametrize(
    "suffix", [suffix for suffix in KINDS if suffix not in (".csv", ".jsonl")]
)
def test_a_file_cut_short_is_refused(suffix: str, tmp_path: Path) -> None:
    data = KINDS[suffix]()
    for end in (1, 2, 5, len(data) // 4, len(data) // 2, len(data) - 9, len(data) - 1):
        if 0 < end < len(data):
            assert complaint(written(tmp_path / f"jobs{suffix}", data[:end]))


@pytest.mark.parametrize(
    "suffix", [".parquet", ".csv.gz", ".pkl.gz", ".tar.gz", ".pkl"]
)
def test_a_file_of_noise_is_refused(suffix: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(5000)
    assert complaint(written(tmp_path / f"jobs{suffix}", noise))
    if suffix == ".parquet":
        return  # by default, its pages have no check sum
    good = bytearray(KINDS[suffix]())
    good[len(good) // 3 : len(good) // 3 + 40] = noise[:40]
    assert complaint(written(tmp_path / f"jobs{suffix}", bytes(good)))


@pytest.mark.parametrize(
    ("data", "what", "suffixes"),
    [
        (parquet(), "a Parquet file", [".csv", ".pkl", ".jsonl", ".csv.gz", ".tar.gz"]),
        (
            pickle.dumps(FRAME),
            "a pickle",
            [".csv", ".parquet", ".jsonl", ".pkl.gz", ".tgz"],
        ),
        (pickle.dumps(FRAME, 0), "a pickle", [".csv", ".parquet"]),
        (
            gzip.compress(CSV, mtime=0),
            "gzip-compressed",
            [".csv", ".parquet", ".jsonl", ".pkl"],
        ),
        (b"PK\x03\x04" + bytes(99), "a zip archive", [".csv", ".parquet", ".tar.gz"]),
        (b"SQLite format 3\0", "an SQLite data base", [".csv"]),
        (
            b"<!DOCTYPE html><title>Log in</title>",
            "a web page",
            [".csv", ".parquet", ".pkl", ".tar.gz"],
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "a Git LFS pointer",
            [".csv", ".parquet", ".pkl"],
        ),
        (
            gzip.decompress(archive({"a.csv": CSV})),
            "a tar archive",
            [".tar.gz", ".csv"],
        ),
        (CSV, "not a Parquet file", [".parquet"]),
        (CSV, "not gzip-compressed", [".csv.gz", ".tar.gz"]),
        (CSV, "not a readable pickle", [".pkl"]),
        (gzip.compress(parquet(), mtime=0), "a Parquet file", [".csv.gz", ".pkl.gz"]),
    ],
)
def test_the_real_kind_of_a_misnamed_file_is_reported(
    data: bytes, what: str, suffixes: list[str], tmp_path: Path
) -> None:
    for suffix in suffixes:
        text = complaint(written(tmp_path / f"jobs{suffix}", data))
        assert what in text
        assert suffix in text


def test_a_name_without_suffix_means_the_published_file_beside_it(
    tmp_path: Path,
) -> None:
    bare = tmp_path / "hps-JNPs-10J"
    text = complaint(bare)
    assert "no such file" in text
    assert "hps-JNPs-10J.pkl, hps-JNPs-10J.tar.gz" in text
    written(tmp_path / "hps-JNPs-10J.tar.gz", archive({"a.csv": CSV}))
    pd.testing.assert_frame_equal(read_table(bare), FRAME)
    written(tmp_path / "hps-JNPs-10J.pkl", pickle.dumps(FRAME[:1]))
    assert len(read_table(bare, trust_pickle=True)) == 1
    written(tmp_path / "summit.v1.pkl", pickle.dumps(FRAME))
    assert len(read_table(tmp_path / "summit.v1", trust_pickle=True)) == 2


def test_missing_directories_and_unknown_suffixes_are_distinguished(
    tmp_path: Path,
) -> None:
    text = complaint(tmp_path / "jobs.csv")
    assert "no such file" in text
    assert "beside" not in text
    assert "is a directory" in complaint(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    assert "is a directory" in complaint(tmp_path / "folder.csv")
    text = complaint(written(tmp_path / "jobs.dat", parquet()))
    assert ".jsonl.gz" in text
    assert "looks like a Parquet file" in text
    assert "looks like" not in complaint(written(tmp_path / "jobs", CSV))
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    assert "no such file" in complaint(tmp_path / "link.csv")


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="root may read everything"
)
def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.csv", CSV)
    path.chmod(0)
    assert "cannot be read: Permission denied" in complaint(path)


def test_a_pickle_runs_nothing_without_the_users_word(tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    hostile = b"cos\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR."
    kinds = {
        ".pkl": hostile,
        ".pkl.gz": gzip.compress(hostile, mtime=0),
        ".tar.gz": archive({"a.pkl": hostile}),
    }
    for suffix, data in kinds.items():
        path = written(tmp_path / f"trace{suffix}", data)
        refused(r"any program .*add --trust-pickle", read_table, path)
        assert not canary.exists()
    assert "holds a int, expected a DataFrame" in complaint(tmp_path / "trace.pkl")
    assert canary.exists()


def test_a_published_pickle_is_known_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_an_archive_of_several_tables_is_refused_naming_them(tmp_path: Path) -> None:
    text = complaint(
        written(tmp_path / "t.tar.gz", archive({"a.pkl": b"x", "folder/b.csv": CSV}))
    )
    assert "holds 2 tables, expected one" in text
    assert "a.pkl, folder/b.csv" in text


def test_an_archive_without_a_table_is_refused_with_a_list_of_its_files(
    tmp_path: Path,
) -> None:
    assert "it holds README" in complaint(
        written(tmp_path / "t.tar.gz", archive({"README": b"x"}))
    )
    assert "it holds nothing" in complaint(written(tmp_path / "t.tgz", archive({})))


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    secret = written(tmp_path / "secret.csv", CSV)
    for kind in (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.DIRTYPE,
    ):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w:gz") as tar:
            info = tarfile.TarInfo("a.csv")
            info.type, info.linkname = kind, str(secret)
            tar.addfile(info)
        assert "holds no tables" in complaint(
            written(tmp_path / "t.tar.gz", sink.getvalue())
        )


def test_nothing_of_an_archive_is_written_to_disk(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    path = written(folder / "t.tar.gz", archive({"../../evil.csv": CSV, "/evil": b"x"}))
    pd.testing.assert_frame_equal(read_table(path), FRAME)
    assert [found.name for found in tmp_path.rglob("*")] == ["here", "t.tar.gz"]


def test_an_error_inside_of_an_archive_names_the_member(tmp_path: Path) -> None:
    text = complaint(
        written(tmp_path / "t.tar.gz", archive({"folder/a.pkl": b"no pickle"}))
    )
    assert "t.tar.gz, folder/a.pkl: not a readable pickle" in text
    text = complaint(written(tmp_path / "t.tar.gz", archive({"a.parquet": CSV})))
    assert "a.parquet: is not a Parquet file" in text


# Parquet.


def test_parquet_restores_the_index_and_keeps_metadata(tmp_path: Path) -> None:
    frame = FRAME.set_index("name")
    table = pa.Table.from_pandas(frame)
    table = table.replace_schema_metadata(
        {**table.schema.metadata, b"nodes": b"512", "source é": "log"}
    )
    pq.write_table(table, tmp_path / "jobs.parquet")
    read = read_table(tmp_path / "jobs.parquet")
    pd.testing.assert_frame_equal(read, frame)
    assert read.attrs["metadata"] == {"nodes": "512", "source é": "log"}


# CSV.


def test_csv_numbers_are_the_ones_written(tmp_path: Path) -> None:
    values = np.random.default_rng(1).random(2000) * 10.0 ** np.arange(-100, 100, 0.1)
    lines = "x\n" + "\n".join(map(repr, values.tolist()))
    assert (
        read_table(written(tmp_path / "x.csv", lines.encode()))["x"].tolist()
        == values.tolist()
    )


def test_csv_names_are_text_whatever_they_look_like_and_nothing_at_all_is_a_gap(
    tmp_path: Path,
) -> None:
    """Converters did this before: with some versions of pandas NA became a gap, with others nothing became a name."""
    rows = ["node,user,units", "007,1e3,1", "NA,null,NA", ",nan,", "None,,N/A"]
    frame = read_table(
        written(tmp_path / "names.csv", "".join(f"{row}\n" for row in rows).encode())
    )
    assert frame["node"].isna().tolist() == [False, False, True, False]
    assert frame["node"].dropna().tolist() == ["007", "NA", "None"]
    assert frame["user"].dropna().tolist() == ["1e3", "null", "nan"]
    assert frame["units"].isna().tolist() == [False, True, True, True]
    assert frame["units"].dtype == "float64"


def test_csv_has_no_index_and_mixed_columns_pass(tmp_path: Path) -> None:
    body = ",a\n" + "".join(f"{i},{i}\n" for i in range(70_000)) + "x,y\n"
    frame = read_table(written(tmp_path / "x.csv", body.encode()))
    assert list(frame.columns) == ["Unnamed: 0", "a"]
    assert isinstance(frame.index, pd.RangeIndex)


# JSON lines.


def test_jsonl_keeps_lists_and_nested_objects_and_fills_gaps(tmp_path: Path) -> None:
    lines = [{"Ns": [0, 1, 2], "k": {"a": 1}}, {"Ns": [], "extra": "é"}]
    body = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    frame = read_table(written(tmp_path / "x.jsonl", b"\xef\xbb\xbf" + body.encode()))
    assert frame["Ns"].tolist() == [[0, 1, 2], []]
    assert frame["k"][0] == {"a": 1}
    assert frame["extra"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("x.csv", b"a,b\n1,\xff\n", "not UTF-8 text"),
        ("x.csv", b"\r\x00,b\n1,2\n", "not a readable CSV"),
        ("x.jsonl", b'{"a": 1}\n"\xff"\n', "row 2: not UTF-8"),
        ("x.jsonl", b"[" * 100_000, "row 1: not a line of JSON"),
        ("x.jsonl", b'{"a": ' + b"9" * 5000 + b"}", "row 1: not a line of JSON"),
    ],
)
def test_bytes_that_are_no_text_of_the_kind_are_refused(
    name: str, data: bytes, what: str, tmp_path: Path
) -> None:
    assert what in complaint(written(tmp_path / name, data))
    assert what in complaint(written(tmp_path / f"{name}.gz", gzip.compress(data)))
