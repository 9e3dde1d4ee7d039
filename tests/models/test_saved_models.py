"""Models in files: reading returns the written model, and refuses everything else."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from bft.models.learned.duration import DurationEstimator, Forecaster
from bft.models.learned.packing import PackingAnalyser
from bft.models.learned.saved_models import HEAD, read_model, to_plain, write_model


def jobs(rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "user": rng.choice(["ana", "bo"], rows),
            "jobname": "Übung-7",
            "gpu_num": rng.choice([1, 8], rows),
            "submit_time": np.arange(rows) * 600.0,
            "duration": rng.exponential(1e3, rows),
        }
    )


def slots(rows: int = 200) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "time": np.arange(rows) * 600,
            "jobs": np.random.default_rng(0).poisson(3, rows),
        }
    )


def profiles() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            name: rng.uniform(0, 100, 40)
            for name in ("gpu_util", "gmem_util", "gmem", "amp")
        }
    )
    return frame.assign(label=(frame["gpu_util"] // 34).astype(int))


MODELS: dict[str, Callable[[], Any]] = {
    "duration": partial(DurationEstimator.train, jobs()),
    "forecast": partial(Forecaster.train, slots()),
    "packing": partial(PackingAnalyser.train, profiles()),
}


@cache
def learnt(name: str) -> Any:
    """A model, trained when first used, so that collecting tests is fast."""
    return MODELS[name]()


def answers(model: Any) -> np.ndarray:
    if isinstance(model, DurationEstimator):
        return model.predict(jobs())
    return (
        model.predict(slots())
        if isinstance(model, Forecaster)
        else model.scores(profiles())
    )


@pytest.mark.parametrize("name", MODELS)
def test_what_comes_back_answers_the_same_to_the_last_bit(
    name: str, tmp_path: Path
) -> None:
    model = learnt(name)
    write_model(model, tmp_path / "a.json")
    again = read_model(tmp_path / "a.json", type(model))
    assert type(again) is type(model)
    assert answers(again).tobytes() == answers(model).tobytes()
    write_model(again, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert type(read_model(tmp_path / "a.json")) is type(again)


USE = """
import sys
blocked = ("interpret", "sklearn", "lightgbm", "xgboost", "skops", "matplotlib")
for name in blocked:
    sys.modules[name] = None
import pandas as pd
from bft.models.learned.saved_models import read_model
import json
told = json.loads(sys.stdin.read())
for path, rows in told:
    model = read_model(path)
    answer = model.scores if hasattr(model, "scores") else model.predict
    print([float(value).hex() for value in answer(pd.DataFrame(rows))])
"""


def test_no_library_is_needed_to_predict_and_nothing_depends_on_the_process(
    tmp_path: Path,
) -> None:
    told, expected = [], []
    for name, model in ((name, learnt(name)) for name in MODELS):
        write_model(model, tmp_path / f"{name}.json")
        table = {DurationEstimator: jobs, Forecaster: slots, PackingAnalyser: profiles}[
            type(model)
        ]()
        told.append([str(tmp_path / f"{name}.json"), table.to_dict(orient="list")])
        expected.append(str([float(value).hex() for value in answers(model)]))
    done = subprocess.run(
        [sys.executable, "-c", USE],
        input=json.dumps(told),
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == expected


TRAIN = """
import sys
sys.path[:0] = {folders!r}
from test_saved_models import MODELS, learnt, write_model
from pathlib import Path
for name in MODELS:
    write_model(learnt(name), Path({out!r}, name))
"""


@pytest.mark.slow
def test_learning_again_in_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    script = TRAIN.format(
        folders=[str(Path(__file__).parent), str(Path(__file__).parents[1])],
        out=str(tmp_path),
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    for name in MODELS:
        write_model(learnt(name), tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == (tmp_path / name).read_bytes(), name


def document(name: str) -> dict[str, Any]:
    model = to_plain(learnt(name))
    told = {**HEAD, "kind": name, "model": model}
    return json.loads(json.dumps(told))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("packing", lambda m: m["tree"]["left"].__setitem__(0, 0), "the nodes of the tree do not lead from its root"),
        ("packing", lambda m: m["tree"]["score"].pop(), "could not be broadcast"),
        ("packing", lambda m: m["tree"]["threshold"].__setitem__(0, None), "Cannot cast"),
        ("packing", lambda m: m["tree"]["feature"].__setitem__(0, 0.5), "Cannot cast"),
        ("packing", lambda m: m.pop("tree"), "'tree'"),
        ("forecast", lambda m: m.update(slot_s="600"), "expected float, not '600'"),
        ("forecast", lambda m: m["regressor"].update(intercept=None), "expected float"),
        ("forecast", lambda m: m["regressor"]["terms"][0].update(cuts=[[2.0, 1.0]]), "do not fit together"),
        ("forecast", lambda m: m["regressor"]["terms"][0]["scores"].__setitem__(0, "x"), "Cannot cast"),
        ("duration", lambda m: m["past"].pop("gpus"), "gpus"),
        ("duration", lambda m: m["past"]["user"].pop(), "same length"),
        ("duration", lambda m: m.update(regressor=[]), "indices must be"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_fit_together_is_refused(
    name: str, change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    told = document(name)
    change(told["model"])
    (tmp_path / "m.json").write_text(json.dumps(told))
    caught = refused("", read_model, tmp_path / "m.json")
    what, _, detail = str(caught).partition("not a model that can be used: ")
    assert what == f"{tmp_path / 'm.json'}: "
    assert message in detail
    assert detail.endswith("(train it again)")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.update(version=1),
            "a model of version 1, expected 2 (train it again)",
        ),
        (lambda d: d.update(format="x"), "not a model of bft-replay"),
        (
            lambda d: d.update(kind="curve"),
            "a model of kind 'curve', expected duration or forecast or packing",
        ),
    ],
)
def test_other_documents_are_refused_by_their_kind(
    change: Any, message: str, tmp_path: Path
) -> None:
    told = document("packing")
    change(told)
    file = tmp_path / "m.json"
    file.write_text(json.dumps(told))
    caught = refused("", read_model, file)
    assert str(caught).startswith(f"{file}: {message}")


def test_another_model_than_expected_is_refused(tmp_path: Path) -> None:
    write_model(learnt("packing"), tmp_path / "m.json")
    refused(
        "a model of kind 'packing', expected duration",
        read_model,
        tmp_path / "m.json",
        DurationEstimator,
    )


def test_no_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    refused("nothing: no such file", read_model, tmp_path / "nothing")
    refused("is a directory, expected a file", read_model, tmp_path)
