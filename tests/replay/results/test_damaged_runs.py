"""Damaged run directories: commands end with a result or an error that names the file, never with a traceback."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bft.models import InputError, read_table
from bft.replay.cli.main import run

DAMAGED = Path(__file__).parents[2] / "data" / "damaged"
JOB = '1,4,1e5,2021-02-10T00:00:00Z,6,3,"[0,1,4]","[0,10,38]","[0,10,38]"'


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, a and b, of three jobs on four nodes."""
    folder = tmp_path_factory.mktemp("finished")
    header = "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"
    (folder / "jobs.csv").write_text(
        header + "".join(f"j{i},{JOB}\n" for i in range(3))
    )
    rows = [f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(4)]
    rows += ["2021-02-10T00:10:00Z,n0,0\n", "2021-02-10T03:00:00Z,n1,0\n"]
    (folder / "trace.csv").write_text("time,node,idle\n" + "".join(rows))
    given = ["-ndmap", str(folder / "trace.csv"), "--jobs", str(folder / "jobs.csv")]
    for name, window in (("a", "60"), ("b", "600")):
        command = [*given, "-Tfwd", window, "--out", str(folder / name)]
        assert run([*command, "--return-time", "30"]) == 0
    return folder


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """Copies of both runs, to be damaged."""
    return shutil.copytree(finished, tmp_path / "runs")


TABLES: dict[str, Callable[[pd.DataFrame, str], pd.DataFrame]] = {
    "no such column": lambda frame, column: frame.drop(columns=column),
    "no rows": lambda frame, column: frame.iloc[:0],
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", TABLES)
@pytest.mark.parametrize("name", ["steps", "jobs", "allocations"])
@pytest.mark.parametrize("command", [["compare"], ["report", "--force"]])
def test_tables_with_other_columns_are_shown_or_named(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    name: str,
    damage: str,
) -> None:
    path = runs / "b" / f"{name}.parquet"
    whole = pd.read_parquet(path)
    for column in whole.columns:
        TABLES[damage](whole, column).to_parquet(path)
        code = run([*command, str(runs / "b"), str(runs / "a")])
        err = capsys.readouterr().err
        assert code in (0, 2)
        assert not code or str(runs / "b") in err


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("metrics", "window_start", 5),
        ("metrics", "rescale_cost", "much"),
        ("metrics", "jobs", {"a": 1}),
        ("options", "seed", None),
    ],
)
def test_a_comparison_refuses_a_value_of_another_kind(
    runs: Path, told: Callable[..., str], part: str, name: str, value: object
) -> None:
    path = runs / "a" / "summary.json"
    summary = json.loads(path.read_text())
    summary[part][name] = value
    path.write_text(json.dumps(summary))
    damaged = f"{path}: damaged: it holds another kind of value"
    told(f"compare {runs / 'a'} {runs / 'b'}", damaged, code=2)


def test_statistics_that_contradict_one_another_do_not_end_the_process() -> None:
    # Bytes of a steps.parquet of which one was changed: Arrow aborts where its statistics are looked at.
    path = DAMAGED / "contradicting-statistics.parquet"
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_table(path)


def test_the_file_with_contradicting_statistics_ends_a_process_that_looks_at_them() -> (
    None
):
    path = DAMAGED / "contradicting-statistics.parquet"
    script = f"import pyarrow.parquet as pq; m = pq.read_metadata({str(path)!r}); "
    script += "[m.row_group(0).column(k) for k in range(m.num_columns)]"
    looked = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert looked.returncode != 0
