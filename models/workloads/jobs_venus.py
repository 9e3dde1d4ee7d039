"""Job tables of the Helios clusters as Lucid's artifact has them: `--jobs-format venus` (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bft.models.cells import MAX_SECONDS, Row, Rows
from bft.models.errors import InputError
from bft.models.job_tables import unknown_columns
from bft.models.jobs import Job, JobTable
from bft.models.sharing.xi_table import Measurement, XiTable
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import jobs_of_rows, rigid_job

REQUIRED: Final = ("job_id", "gpu_num", "submit_time", "duration")
OPTIONAL: Final = ("user", "vc", "model", "batchsize", "amp", "gmem")
# Columns that become fields of Job; all others go to Job.extra.
_FIELDS: Final = frozenset((*REQUIRED, "user", "vc", "model", "batchsize"))
# A submit time that is a number counts seconds from here: Helios traces begin on this day.
ORIGIN: Final = "2020-04-01"
MIB_PER_GIB: Final = 1024
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


def read_venus_jobs(path: str | Path, *, origin: str = ORIGIN) -> JobTable:
    r"""Read a Helios job table (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                        | becomes                                                                    |
    |-------------------------------|----------------------------------------------------------------------------|
    | job_id                        | name                                                                       |
    | gpu_num                       | Jmin = Jmax = Jreq, in units                                               |
    | submit_time                   | Tsub: a date and time (UTC where it names no zone), or seconds from origin |
    | duration                      | Pmax: seconds of work at a rate of 1 on gpu_num units                      |
    | user, vc, batchsize           | user, vc, batch_size                                                       |
    | model, amp                    | model, with `+amp` behind it where amp is 1: it computes otherwise         |
    | gmem                          | memory_gib: memory of a unit, in MiB                                       |

    Further columns (cpu_num, state, dataset, gpu_util, gmem_util and so on), amp and gmem are kept in `Job.extra`. Jobs
    without a GPU or without duration did not run on units: they are left out, and the table's notes count them.

    Parameters
    ----------
    path
        The table.
    origin
        The date from which a submit time counts that is a number.

    Raises
    ------
    InputError
        Naming file, row, column and job; also when no job is left.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "venus.csv")
    ...     _ = file.write_text("job_id,gpu_num,submit_time,duration,user,vc\n1,8,2020-09-01 08:00,600,u1,vc1\n")
    ...     [(job.request, job.pmax, job.vc) for job in read_venus_jobs(file)]
    [(8, 600.0, 'vc1')]
    """
    frame = read_table(path)
    rows = Rows(frame, path, job="job_id").require(REQUIRED, OPTIONAL)
    unknown_columns(
        rows, (*REQUIRED, *OPTIONAL)
    )  # further ones are Job.extra, misspelt ones are refused
    begin_ns = Rows.of([{"origin": origin}])[0].instant("origin", None)
    if begin_ns is None:
        raise InputError(f"expected a date such as {ORIGIN} as origin, not {origin!r}")
    return jobs_of_rows(rows, lambda row: _job(row, begin_ns), {"Jmax": "gpu_num"})


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
            _label(row.name(f"model{side}"), mixed=_is_mixed(row, f"amp{side}"))
            for side in "12"
        )
        xi_a, xi_b = (1 / row.number(f"speed{side}", min=_MIN_SPEED) for side in "12")
        batch_a, batch_b = (row.number(f"batchsize{side}", above=0) for side in "12")
        measured.append(Measurement(a, b, xi_a, xi_b, batch_a, batch_b))
    apart = sorted(
        _label(model, mixed=amp) for model in indifferent for amp in (False, True)
    )
    # No row twice: a pair of indifferent models is the same from either side.
    others = sorted(
        {name for row in measured for name in (row.model_a, row.model_b)} - set(apart)
    )
    pairs = [(a, b) for index, a in enumerate(apart) for b in (*apart[index:], *others)]
    return XiTable([*measured, *(Measurement(a, b, 1.0, 1.0) for a, b in pairs)])


def _job(row: Row, begin_ns: int) -> Job | None:
    """Return the job of a row, None when it needs no units or no time."""
    units, seconds = (
        row.whole("gpu_num", min=0),
        row.number("duration", min=0, below=MAX_SECONDS),
    )
    submit_ns = row.instant("submit_time", origin_ns=begin_ns)
    if not units or not seconds:
        return None
    memory_mib = row.number("gmem", None, min=0)
    return rigid_job(
        row.job,
        submit_ns,
        units,
        seconds,
        model=_label(row.name("model", ""), mixed=_is_mixed(row, "amp")),
        user=row.name("user", ""),
        vc=row.name("vc", ""),
        batch_size=row.number("batchsize", None, min=0),
        memory_gib=None if memory_mib is None else memory_mib / MIB_PER_GIB,
        extra=row.further(_FIELDS),
    )


def _is_mixed(row: Row, column: str) -> bool:
    """Whether a job computes in mixed precision: true for 1 or true, otherwise false."""
    value = row.value(column)
    return (
        value if isinstance(value, bool) else bool(row.whole(column, 0, min=0, max=1))
    )


def _label(model: str, *, mixed: bool) -> str:
    """The model's name in ξ tables: mixed precision makes it another load."""
    return f"{model}+amp" if model and mixed else model
