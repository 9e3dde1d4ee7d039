"""From a log to the director's page: figures of a machine whose truth is known, what is resumed, what is printed."""

import json
import re
import shlex
import shutil
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import bft
from bft.replay.cli.main import run
from bft.replay.report.evaluation import sentences

HOURS = 240
BEGIN = datetime(2024, 3, 4)
# Of each hour of the machine that `known` writes: node-hours of training and starts that wait, by reserve.
TRAINING = {0: 10 / 3, 1: 3.0, 4: 2.0, 16: 0.0}
WAITS = {0: 4, 1: 3, 4: 0, 16: 0}
A_YEAR = 8760 / HOURS
PRICES = ["--price-per-node-hour", "0.5", "--node-watts", "200,700", "--co2-per-kwh", "400",
          "--price-per-kwh", "0.2"]  # fmt: skip


def known(folder: Path) -> list[str]:
    """Write a log whose truth is known, and return the command's arguments.

    Of ten nodes four are always busy, by a job an hour that takes over from the one before; four, from minute 20 of
    each hour on, by a job each; two, of GPUs, never. More trainings of one node than there are nodes wait at once.
    """
    rows = ["JobID|NodeList|AllocNodes|Start|End|State|Submit|Timelimit"]
    for hour in range(HOURS):
        begin = BEGIN + timedelta(hours=hour)
        jobs = [("cn[01-04]", 4, 0), *((f"cn{node:02}", 1, 20) for node in range(5, 9))]
        for number, (nodes, count, minute) in enumerate(jobs):
            start, end = begin + timedelta(minutes=minute), begin + timedelta(hours=1)
            state = "FAILED" if number == 1 else "COMPLETED"
            times = f"{start.isoformat()}|{end.isoformat()}|{state}|{start.isoformat()}"
            rows.append(f"{10 * hour + number}|{nodes}|{count}|{times}|01:00:00")
    Path(folder, "jobs.sacct").write_text("\n".join(rows) + "\n")
    nodes = (
        f"NodeName=cn{node:02} Gres={'gpu:4' if node > 8 else '(null)'} State=IDLE\n"
        for node in range(1, 11)
    )
    Path(folder, "nodes.txt").write_text("".join(nodes))
    trainings = {
        "name": [f"j{k}" for k in range(12)], "Jmin": 1, "Jmax": 1, "Pmax": 1e9, "Tsub": "2024-03-03T23:00:00Z",
        "Tcup": 0.0, "Tcdw": 0.0, "Ns": "[0, 1]", "Ps": "[0, 10]", "Os": "[0, 10]",
    }  # fmt: skip
    pd.DataFrame(trainings).to_csv(folder / "trainings.csv", index=False)
    return ["evaluate", "jobs.sacct", "--nodes", "nodes.txt", "--tz", "Europe/Berlin", "--from", "2024-03-04",
            "--to", "2024-03-14", "--machine", "Blue <b>Whale", "--uncertain", "idle"]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the log, and an evaluation of it with trainings and prices."""
    folder = tmp_path_factory.mktemp("evaluate")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        line = known(folder)
        assert run([*line, "--jobs", "trainings.csv", *PRICES]) == 0
    return folder


def figures(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())
    return content


def truth(reserve: int, seconds: float) -> dict[str, float | None]:
    """What a row of the table has to say of the machine that `known` writes, with `PRICES`."""
    used, waits = TRAINING[reserve] * HOURS, WAITS[reserve] * HOURS
    waiting = waits * seconds / 3600
    kwh, net = 0.5 * used * A_YEAR, (used - waiting) * A_YEAR
    return {
        "starts": 5 * HOURS, "delayed": waits, "delayed_share": waits / (5 * HOURS),
        "mean_delay_s": seconds * waits / (5 * HOURS), "longest_delay_s": seconds if waits else 0.0,
        "waiting_node_h": waiting, "waiting_node_h_a_year": waiting * A_YEAR,
        "waiting_share_of_host": waiting / (HOURS * (4 + 4 * 2 / 3)),
        "break_even_price": 0.8 * used / waiting if waits else None,
        "training_node_h": used, "training_node_h_a_year": used * A_YEAR, "net_node_h_a_year": net,
        "kwh_a_year": kwh, "co2_kg_a_year": 0.4 * kwh, "energy_cost_a_year": 0.2 * kwh,
        "value_a_year": 0.5 * used * A_YEAR, "net_value_a_year": 0.5 * net - 0.2 * kwh,
    }  # fmt: skip


def test_figures_are_those_of_a_machine_whose_truth_is_known(world: Path) -> None:
    found = figures(world / "jobs-evaluation")
    assert found["nodes"] == 10
    assert found["idle_share"] == pytest.approx(1 / 3)
    assert found["eq_nodes"] == pytest.approx(10 / 3)
    assert found["window"]["start"] == "2024-03-04T00:00:00 Europe/Berlin"
    idle = {name: of["idle_mean"] for name, of in found["classes"].items()}
    assert idle == pytest.approx({"cpu": 4 / 3, "gpu": 2.0})
    assert found["used_share"] == pytest.approx(1.0)
    assert found["reserve"] == 0
    assert len(found["table"]) == 12
    for row in found["table"]:
        for name, value in truth(row["reserve"], row["return_time_s"]).items():
            assert row[name] == (None if value is None else pytest.approx(value)), name
    table = pd.read_csv(world / "jobs-evaluation" / "evaluation.csv")
    assert table["waiting_node_h"].tolist() == pytest.approx(
        [row["waiting_node_h"] for row in found["table"]]
    )


SAID = (
    "Blue <b>Whale has 10 nodes, 8 CPU and 2 GPU. From 4 March 2024, 00:00 to 14 March 2024, 00:00 (Europe/Berlin) "
    "they were idle for 33.3% of the time, which is worth 3.33 nodes: 1.33 CPU nodes (16.7%) and 2 GPU nodes (100.0%).",
    "Training would have used 100.0% of that: 800 node-hours in 10 days, 29,200 in a year, worth 14,600 at 0.5 each, "
    "with your 12 trainings.",
    "If a node takes 120 s to come back, 960 of 1,200 starts of your own jobs wait (80%): 96 s on average over all, "
    "120 s at most. Together they wait 32 node-hours, 2% of their own node-hours, 1,168 in a year. With 300 s it would "
    "be 240 s on average and 2,920 node-hours in a year.",
    "28,032 node-hours in a year, where a node-hour that your own jobs wait counts as 1 of training; 11,096 in money, "
    "less the energy. Training pays as long as such a node-hour counts as less than 20, the energy paid.",
    "14.6 MWh in a year more than if these nodes had stayed idle, which cost 2,920; 5.8 t of CO2.",
    "Keep no node free for your own jobs (--preset best --reserve 0): of 0, 1, 4 and 16 that leaves most. With 4 nodes "
    "free 0% of the starts wait instead of 80%, which costs 40.0% of the training.",
)  # fmt: skip


class _Text(HTMLParser):
    """The text of a page where scripts do not run."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        assert tag not in ("b", "link", "iframe")

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.words.append(data)


def test_the_page_says_them_without_scripts(world: Path) -> None:
    folder = world / "jobs-evaluation"
    assert [text for _, text in sentences(figures(folder))] == list(SAID)
    page = _Text()
    page.feed((folder / "evaluation.html").read_text("utf-8"))
    text = "".join(page.words)
    for sentence in SAID:
        assert sentence in text
    assert "Queues are not fed back" in text
    assert "2.7 and 6 times" not in text  # of another machine's queue
    for doubt in ("no --events and no --reservations", "uncertain: 20.0%"):
        assert text.lower().count(doubt) == 1
    text = (folder / "evaluation.html").read_text("utf-8")
    assert "time, Europe/Berlin, UTC+0100" in text
    assert "less those that pay for its energy" in text


# What stands in the columns of the page, by the begin of their titles.
SHOWN = {
    "training": "training_node_h_a_year", "starts": "delayed_share", "mean": "mean_delay_s",
    "longest": "longest_delay_s", "own": "waiting_node_h_a_year", "share": "waiting_share_of_host",
    "break": "break_even_price", "net, node": "net_node_h_a_year", "net, in": "net_value_a_year",
}  # fmt: skip


def test_each_figure_on_the_page_is_within_a_hundredth_of_the_truth(
    world: Path,
) -> None:
    text = (world / "jobs-evaluation" / "evaluation.html").read_text("utf-8")
    replayed = text.partition('id="replayed"')[2].partition("</section>")[0]
    head, *rows = (re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in replayed.split("<tr")[1:])  # fmt: skip
    assert [len(row) for row in rows] == [2 + len(SHOWN)] * 12
    for row in rows:
        expected = truth(int(row[1]), float(row[0]))
        for title, cell in zip(head[2:], row[2:], strict=True):
            (name,) = (name for begin, name in SHOWN.items() if title.startswith(begin))
            value = None if cell == "-" else float(cell.rstrip("%").replace(",", ""))
            known = expected[name]
            if value is not None and cell.endswith("%"):
                value /= 100
            assert value == (None if known is None else pytest.approx(known, rel=0.01)), (title, row)  # fmt: skip


def test_training_that_costs_more_than_it_yields_is_not_advised(world: Path) -> None:
    found = figures(world / "jobs-evaluation")
    for row in found["table"]:
        row |= {"net_value_a_year": -1.0, "break_even_price": -7.09}
    said = dict(sentences(found))
    assert said["Net"].endswith("does not pay its energy, whatever such a node-hour counts.")  # fmt: skip
    assert said["What to set"].startswith("Do not train: where a node takes 120 s")
    assert "with no node kept free" in said["What to set"]


def test_a_return_time_is_priced_as_in_a_replay_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["generate", "log", "slurm", "--nodes", "32", "--days", "2", "-o", "log.txt"]) == 0  # fmt: skip
    assert run(["evaluate", "log.txt", "--tz", "UTC"]) == 0
    trace = ["-ndmap", "log-evaluation/trace.parquet", "--preset", "best", "--no-u"]
    table = bft.evaluate("log.txt", tz="UTC").table.set_index(["reserve", "return_time_s"])  # fmt: skip
    for reserve, seconds in ((0, 30), (1, 300), (4, 300)):
        more = ["--return-time", str(seconds), "--reserve", str(reserve), "--out", f"r{reserve}"]  # fmt: skip
        assert run([*trace, *more]) == 0
        host = bft.Run(f"r{reserve}").metrics["host"]
        row = table.loc[(reserve, float(seconds))]
        assert row["mean_delay_s"] == pytest.approx(host["delay_s"]["mean"])
        for name in (
            "starts", "delayed", "waiting_node_h", "waiting_share_of_host", "break_even_price", "longest_delay_s"
        ):  # fmt: skip
            assert row[name] == pytest.approx(host[name])
        assert 0 < row["delayed"] < row["starts"]


def stages(err: str) -> dict[str, str]:
    """The command line of each stage that was printed, by what was printed before it."""
    return dict(re.findall(r"^(\d/6 .+): bft-replay (.+)$", err, re.MULTILINE))


def test_what_is_done_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [*known(tmp_path), "--jobs", "trainings.csv"]

    def redone(*more: str) -> list[str]:
        capsys.readouterr()
        assert run([*line, *more]) == 0
        return [name for name in stages(capsys.readouterr().err) if "(is there)" not in name]  # fmt: skip

    all_of = ["1/6 logs", "2/6 replay, 0 kept free", "3/6 replay, 1 kept free",
              "4/6 replay, 4 kept free", "5/6 replay, 16 kept free", "6/6 page"]  # fmt: skip
    assert redone() == all_of
    assert redone() == ["6/6 page"]
    assert redone("--price-per-node-hour", "3") == [
        "6/6 page"
    ]  # no replay needs prices
    shutil.rmtree("jobs-evaluation/reserve-4")
    assert redone() == ["4/6 replay, 4 kept free", "6/6 page"]
    Path("jobs-evaluation/trace.jobs.parquet").unlink()
    assert redone()[0] == "1/6 logs"
    trainings = pd.read_csv("trainings.csv")
    trainings.assign(Pmax=2e9).to_csv("trainings.csv", index=False)
    assert redone() == all_of[1:]
    with Path("jobs.sacct").open("a") as log:
        first, last = "2024-03-05T00:00:00", "2024-03-05T01:00:00"
        log.write(f"99999|cn09|1|{first}|{last}|COMPLETED|{first}|01:00:00\n")
    assert redone() == all_of


def test_the_printed_commands_do_the_same(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    folder = world / "jobs-evaluation"
    line = [*known(world), "--jobs", "trainings.csv", *PRICES]
    files = ("trace.parquet", "reserve-1/summary.json", "evaluation.html", "evaluation.json")  # fmt: skip
    before = {name: (folder / name).read_bytes() for name in files}
    assert run(line) == 0
    commands = list(stages(capsys.readouterr().err).values())
    assert len(commands) == 6
    (folder / "trace.parquet").unlink()
    shutil.rmtree(folder / "reserve-1")
    for command in commands[:5]:
        assert run(shlex.split(command)) == 0
    capsys.readouterr()
    assert run(shlex.split(commands[5])) == 0
    assert sum("(is there)" in name for name in stages(capsys.readouterr().err)) == 5
    assert {name: (folder / name).read_bytes() for name in files} == before


def test_python_does_what_the_command_line_does(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    found = bft.evaluate(
        "jobs.sacct", nodes="nodes.txt", tz="Europe/Berlin", begin=BEGIN, end="2024-03-14", machine="Blue <b>Whale",
        uncertain="idle",
        jobs="trainings.csv", price_per_node_hour=0.5, node_watts=(200, 700), co2_per_kwh=400, price_per_kwh=0.2,
        out=tmp_path / "out",
    )  # fmt: skip
    there = world / "jobs-evaluation"
    assert figures(tmp_path / "out") == figures(there)
    assert found.page.read_bytes() == (there / "evaluation.html").read_bytes()
    assert len(found.table) == 12
    with pytest.raises(bft.InputError, match="unknown option 'price'"):
        bft.evaluate("jobs.sacct", price=1)
    with pytest.raises(bft.InputError, match="unit: evaluate is for whole nodes"):
        bft.evaluate("no.sacct", unit="gpu", units_per_node=4)
    with pytest.raises(bft.InputError, match="price_per_kwh has no effect"):
        bft.evaluate("jobs.sacct", price_per_kwh=0.3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["missing.sacct"], "missing.sacct: cannot be read: No such file or directory"),
        (["nodes.txt", "jobs.sacct"], "nodes.txt"),
        (["jobs.sacct", "--price-per-kwh", "0.3"], "--price-per-kwh has no effect without --node-watts"),
        (["jobs.sacct", "--co2-per-kwh", "300"], "--co2-per-kwh has no effect without --node-watts"),
        (["jobs.sacct", "--node-watts", "7"], "--node-watts"),
        (["jobs.sacct", "--jobs", "nothing.csv"], "nothing.csv"),
        (["jobs-evaluation/trace.parquet"], "trace.parquet: is a node trace, which ingest writes, and no log"),
        (["jobs.sacct", "--tz", "Mars/Base"], "Mars/Base"),
        (["jobs.sacct", "--nodes", "cn[01-10]", "--node-class", "gpu"], "states no classes"),
        (["jobs.sacct", "--out", "taken"], "taken/trace.parquet: is there and no evaluation's"),
        ([], "Missing argument"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(
    more: list[str],
    said: str,
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(world)
    Path("taken").mkdir(exist_ok=True)
    Path("taken/trace.parquet").write_text("mine")
    out = [] if "--out" in more else ["--out", "other"]
    assert run(["evaluate", *more, *out]) == 2
    assert said in capsys.readouterr().err
    assert Path("taken/trace.parquet").read_text() == "mine"
    assert not Path("other/evaluation.html").exists()


def test_a_year_is_that_of_the_log_where_trainings_are_done_before_its_end(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve trainings of ten hours end after two to three days, the later the more nodes are kept free."""
    monkeypatch.chdir(world)
    trainings = pd.read_csv("trainings.csv").assign(Pmax=360_000.0)
    trainings.to_csv("short.csv", index=False)
    assert run([*known(world), "--jobs", "short.csv", "--out", "short"]) == 0
    found = figures(world / "short")
    assert found["window"]["days"] == pytest.approx(10)
    assert found["idle_share"] == pytest.approx(1 / 3)
    assert found["used_share"] == pytest.approx(120 / 800)
    for row in found["table"]:
        used = 0.0 if row["reserve"] == 16 else 120.0
        assert row["training_node_h_a_year"] == pytest.approx(used * A_YEAR)
        assert row["starts"] == 5 * HOURS
    training = dict(sentences(found))["Training"]
    assert training.endswith("12 trainings. All were done: more would have used more.")


def test_made_up_trainings_are_called_so(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    assert run([*known(world), "--node-class", "gpu", "--out", "gpu"]) == 0
    out = capsys.readouterr().out
    assert "trainings are made up, not yours" in out
    assert "has 2 nodes" in out
    assert "Energy and CO2: Not known: --node-watts" in out
    assert figures(Path("gpu"))["lower_bound"]
