"""The published data of other systems, which a clone does not have (benchmarks.data)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr
from typing import Final

from bft.models.cells import Rows
from bft.models.sharing.xi_table import Measurement, XiTable
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import is_mixed, label
from bft.replay.cli.main import run

# Names of BFTrainer's job tables: seven networks, as speed-ups, and the search of ShuffleNets.
MIX, SEARCH = "ImageNet-imgps-{}-1001J", "hps-shufflenet-{}-1000J"
SACCT = "logs/slurm/xdmod-phillips.sacct.log.gz"

# Models that the artifact did not measure in pairs, and treats as neutral.
INDIFFERENT: Final = ("NeuMF", "ResNet50", "BERT", "Transformer")
# A job that hardly moves: ξ, its inverse, stays finite.
_MIN_SPEED: Final = 1e-9
_COLOCATION: Final = (
    "model1",
    "batchsize1",
    "amp1",
    "speed1",
    "model2",
    "batchsize2",
    "amp2",
    "speed2",
)


def reference_folder() -> Path:
    """The folder with published and golden data, which a clone does not have."""
    beside = Path(__file__).parents[2] / "shared" / "reference"
    folder = Path(os.environ.get("BFT_REFERENCE", beside))
    if not folder.is_dir():
        raise SystemExit(
            f"no reference data at {folder}: set BFT_REFERENCE to a folder that holds them"
        )
    return folder


def published_jobs(name: str = MIX) -> dict[str, str]:
    """Options that name a job table of BFTrainer."""
    file = str(reference_folder() / "bftrainer" / f"{name}.pkl")
    return {"job_bounds": file.format("Jbnd"), "job_curves": file.format("JNPs")}


def published_log() -> dict[str, str]:
    """Options that name the log of Summit and the 1,001 jobs of BFTrainer."""
    log = reference_folder() / "bftrainer" / "ndstat-10sdn6-evt.tar.gz"
    return {"node_trace": str(log), **published_jobs()}


def sacct_log(folder: Path) -> dict[str, str]:
    """Options that name the node trace of a log of 46 nodes, ingested into a folder, and BFTrainer's jobs."""
    trace = folder / "trace.parquet"
    if not trace.exists():
        log = str(reference_folder() / SACCT)
        words = ["--fields", "xdmod", "--tz", "UTC", "-o", str(trace)]
        with redirect_stdout(stderr):
            code = run(["ingest", "slurm", log, *words])
        assert code == 0
    return {"node_trace": str(trace), **published_jobs()}


def read_colocation(
    path: str | Path, *, indifferent: Iterable[str] = INDIFFERENT
) -> XiTable:
    r"""Read measured pairs of models as Lucid's artifact has them, as a ξ table for the jobs of `read_venus_jobs`.

    Columns model1, batchsize1, amp1, speed1, model2, batchsize2, amp2, speed2: speeds beside each other over speeds
    alone. ξ = 1 / speed; what goes faster together is noise, which the table clips.

    Parameters
    ----------
    path
        The table.
    indifferent
        Models that neither slow down others nor are slowed down, at any batch size.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "pairs.csv")
    ...     _ = file.write_text("model1,batchsize1,amp1,speed1,model2,batchsize2,amp2,speed2\na,32,0,.8,b,64,1,.5\n")
    ...     row = read_colocation(file, indifferent=()).measurements[0]
    >>> row.model_b, row.xi_a, row.xi_b
    ('b+amp', 1.25, 2.0)
    """
    frame = read_table(path)
    measured = []
    for row in Rows(frame, path).require(_COLOCATION):
        a, b = (
            label(row.name(f"model{side}"), mixed=is_mixed(row, f"amp{side}"))
            for side in "12"
        )
        xi_a, xi_b = (1 / row.number(f"speed{side}", min=_MIN_SPEED) for side in "12")
        batch_a, batch_b = (row.number(f"batchsize{side}", above=0) for side in "12")
        measured.append(Measurement(a, b, xi_a, xi_b, batch_a, batch_b))
    apart = sorted(
        label(model, mixed=amp) for model in indifferent for amp in (False, True)
    )
    # No row twice: a pair of indifferent models is the same from either side.
    others = sorted(
        {name for row in measured for name in (row.model_a, row.model_b)} - set(apart)
    )
    pairs = [(a, b) for index, a in enumerate(apart) for b in (*apart[index:], *others)]
    return XiTable([*measured, *(Measurement(a, b, 1.0, 1.0) for a, b in pairs)])
