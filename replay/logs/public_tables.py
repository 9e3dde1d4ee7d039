"""Job tables that others have published: what their columns are called, for `ingest --map NAME`.

Only columns whose meaning a description or a program of others confirms are named here: docs/data.md has the sources.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

from bft.models import InputError
from bft.models.cells import read_number
from bft.models.checks import did_you_mean

_NAME = re.compile(r"[\w.:+@-]+", re.ASCII)
# Relative times are below: a hundred years.
_MOST_RELATIVE_S = 3.2e9
# What is added to them, as no log has times of 1970: whole weeks, so that days of the week stay.
_ADDED_S = 104 * 7 * 86_400
Convert = Callable[[str], str]


def list_of_names(text: str) -> str:
    """A list as Python prints it, as a host list.

    >>> list_of_names("['r1-n2', 'r3-n4']")
    'r1-n2,r3-n4'
    """
    return ",".join(_NAME.findall(text))


def time_or_none(text: str) -> str:
    """An empty cell where 0 stands for a time that has not come, as in Slurm's data base; anything else stays."""
    return "" if text.strip() in ("0", "0.0") else text


def stamp_of_seconds(text: str) -> str:
    """Seconds since an instant that is not stated, as a stamp from 1971-12-30 on; anything else stays.

    >>> stamp_of_seconds("2081336.0")
    '1972-01-23T02:08:56.000000Z'
    """
    seconds = read_number(text)
    if math.isnan(seconds) or not 0 <= seconds < _MOST_RELATIVE_S:
        return text
    return f"{datetime.fromtimestamp(_ADDED_S + seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A table that others have published.

    Parameters
    ----------
    form
        The format that it is read as.
    columns
        Names of columns in the words of the format, and theirs, as `--map` has them.
    header
        All of its columns, for files without a header line.
    convert
        What makes cells of some of their columns readable.
    """

    form: str
    columns: str
    header: tuple[str, ...] = ()
    convert: Mapping[str, Convert] = field(default_factory=lambda: MappingProxyType({}))


_SLURM = "JobID=job_id,NodeList=nodes,AllocNodes=num_nodes_alloc,Start=start_time,End=end_time,State=job_state"
PUBLIC_TABLES: dict[str, PublicTable] = {
    "pm100": PublicTable("slurm", _SLURM),
    "adastra": PublicTable("slurm", _SLURM),
    "fugaku": PublicTable("slurm", "JobID=jid,AllocNodes=nnumr,Start=sdt,End=edt"),
    "mit-supercloud": PublicTable(
        "slurm",
        "JobID=id_job,NodeList=nodelist,Start=time_start,End=time_end",
        convert=MappingProxyType(
            {"nodelist": list_of_names, "time_start": time_or_none, "time_end": time_or_none}
        ),
    ),
    "alibaba-2020": PublicTable(
        "intervals",
        "node=machine,start=start_time,end=end_time",
        header=("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time",
                "machine"),
        convert=MappingProxyType({"start_time": stamp_of_seconds, "end_time": stamp_of_seconds}),
    ),
}  # fmt: skip


def public_table(name: str, form: str) -> PublicTable:
    """The table of a name; `form` is the format that the user asks for, or auto.

    Raises
    ------
    InputError
        When there is none, or it is read as another format.
    """
    table = PUBLIC_TABLES.get(name.lower())
    if table is None:
        meant = did_you_mean(name, PUBLIC_TABLES)
        there = ", ".join(PUBLIC_TABLES)
        raise InputError(f"--map: expected OURS=THEIRS,... or one of {there}, not {name!r}{meant}")
    if form not in ("auto", table.form):
        raise InputError(f"--map {name} is read as {table.form}, not as {form}")
    return table
