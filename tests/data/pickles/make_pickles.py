"""Write the fixture pickles of this folder with the pandas that runs this script.

For each version, in a throw-away environment:

    python -m venv /tmp/old && /tmp/old/bin/pip install pandas==1.5.3 "numpy<2"
    /tmp/old/bin/python tests/data/pickles/make_pickles.py

Made with pandas 1.5.3 and 2.0.3 on NumPy 1.26.4, 2.2.3 and 2.3.3 on NumPy 2.1.3 with pyarrow,
3.0.0 with and ("noarrow") without pyarrow.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd


def matrix() -> pd.DataFrame:
    """Make a small node trace: rows are moments, columns nodes, 1 is idle."""
    moments = pd.DatetimeIndex(
        ["2021-02-10 00:08:52", "2021-02-10 00:48:48", "2021-02-10 02:00:00"]
    )
    values = (np.arange(15).reshape(3, 5) % 2).astype(np.int8)
    return pd.DataFrame(values, index=moments, columns=[f"n{i:02d}" for i in range(5)])


def jobs() -> pd.DataFrame:
    """Make a job table with a column of every kind that such tables have."""
    frame = pd.DataFrame(
        {
            "Ns": pd.Series([[0, 1, 2, 4], [0, 1]], dtype=object),
            "Os": pd.Series([(0.0, 1.0), np.array([0.0, 0.5])], dtype=object),
            "mixed": pd.Series([np.int64(7), None], dtype=object),
            "when": pd.Series([pd.Timestamp("2021-02-10"), pd.NaT], dtype=object),
            "Jmin": [1.0, np.nan],
            "Pmax": np.array([2**40, -1]),
            "few": np.array([1, 255], dtype=np.uint8),
            "half": np.array([1.5, -2.0], dtype=np.float32),
            "Tsub": pd.to_datetime(["2021-02-10 20:21:15", None]),
            "deadline": pd.DatetimeIndex(
                [
                    pd.Timestamp("2021-02-10 20:21:15.5", tz="UTC"),
                    pd.Timestamp("2021-02-11", tz="UTC"),
                ]
            ),
            "held": [True, False],
            "user": ["ann", "bob é"],
            "note": pd.array(["x", None], dtype="string"),
            "class": pd.Categorical(["b", "a"], categories=["a", "b"], ordered=True),
            "gpus": pd.array([4, None], dtype="Int64"),
        }
    )
    frame.index = ["J0", "J1"]
    frame.index.name = "job"
    frame.attrs["made by"] = ["a script", 1]
    return frame


def main() -> None:
    """Write the files next to this script."""
    try:
        import pyarrow  # noqa: F401

        arrow = ""
    except ImportError:
        arrow = "" if pd.__version__[0] < "3" else "-noarrow"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for frame, name, protocol in (
        (jobs(), "jobs", 2),
        (jobs(), "jobs", 5),
        (matrix(), "matrix", 4),
    ):
        path = folder / f"{name}-pandas{pd.__version__}{arrow}-protocol{protocol}.pkl"
        path.write_bytes(pickle.dumps(frame, protocol))


if __name__ == "__main__":
    main()
