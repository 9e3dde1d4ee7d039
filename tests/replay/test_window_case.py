"""The two-job case of docs/model.md: a small window leaves nodes idle, a large one pays for growths in vain."""

import pandas as pd
import pytest

import bft

CURVE = {"Ns": [0, 1, 8], "Ps": [0, 100, 450], "Os": [0, 100, 450]}
JOB = {
    "Jmin": 1,
    "Jmax": 8,
    "Pmax": 1e9,
    "Tsub": "2024-03-04",
    "Tcup": 60,
    "Tcdw": 30,
    **CURVE,
}


def outcome(spell_s: int, tfwd: int) -> tuple[float, float]:
    """Used share and outcome over two hours: four nodes stay idle, four others come and go every `spell_s` seconds."""
    begin = pd.Timestamp("2024-03-04", tz="UTC")
    rows = [(begin, f"n{node}", node < 4) for node in range(8)]
    for turn in range(7200 // spell_s):
        at = begin + pd.Timedelta(seconds=spell_s * turn + spell_s // 2)
        rows += [(at, f"n{node}", turn % 2 == 0) for node in range(4, 8)]
    trace = pd.DataFrame(rows, columns=["time", "node", "idle"])
    jobs = pd.DataFrame([{"name": name, **JOB} for name in "ab"])
    run = bft.replay(trace, jobs, tfwd=tfwd, backend="exact", dedicated=False)
    return run.metrics["used_share"], run.metrics["outcome"]


@pytest.mark.parametrize(
    ("spell_s", "tfwd", "share", "samples"),
    [
        (120, 30, 0.665, 2_142_000),
        (120, 120, 1.0, 2_412_000),
        (40, 30, 0.666, 2_154_000),
        (40, 120, 1.0, 1_528_000),
    ],
)
def test_the_figures_of_the_page(
    spell_s: int, tfwd: int, share: float, samples: float
) -> None:
    assert outcome(spell_s, tfwd) == (
        pytest.approx(share, abs=5e-4),
        pytest.approx(samples),
    )
