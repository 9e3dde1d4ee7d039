"""Columns of Slurm's tables: what each kind holds, and which columns a table without a header may have."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from bft.models import InputError
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.tables import split_fields
from bft.replay.logs.times import MISSING

# What XDMoD's ingestion has sacct print, without a header.
PRESETS = {
    "xdmod": ("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit",
              "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem",
              "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName"),
}  # fmt: skip
# What is exported without a header as well: what it is called in --fields, and its columns.
LAYOUTS = {
    "xdmod": PRESETS["xdmod"],
    **{text: tuple(text.split(",")) for text in ("JobID,NodeList,AllocNodes,Start,End,State",
                                                 "JobID,NodeList,NNodes,Start,End",
                                                 "JobID,NodeList,Start,End,State", "JobID,NodeList,Start,End")},
}  # fmt: skip
# sacct -n -P without --format.
_DEFAULT = (
    "JobID",
    "JobName",
    "Partition",
    "Account",
    "AllocCPUS",
    "State",
    "ExitCode",
)
# Records whose fields are held against the kinds of columns that the user has named.
CHECKED = 100
# Columns in which a user (or admin: reason) may have written anything.
FREE_TEXT = frozenset(
    {"admincomment", "comment", "constraints", "container", "extra", "jobname", "reason", "stderr", "stdin", "stdout",
     "submitline", "systemcomment", "wckey", "workdir"}
)  # fmt: skip
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d{9,11}$")
_LENGTH = re.compile(
    r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?$|Partition_Limit$|UNLIMITED$|INVALID$"
)
_WHOLE = re.compile(r"\d+$")
_STATE = re.compile(r"[A-Z_]+[*~#!%$@^-]?( by \d+)?(\+[A-Z_]+)*[*~#!%$@^-]?$")
KINDS = {
    "jobid": re.compile(r"\d+(_(\d+|\[[^\]]*\]))?(\+\d+)?(\.\S+)?$"),
    "jobidraw": re.compile(r"\d+(\.\S+)?$"),
    "exitcode": re.compile(r"\d+:\d+$"),
    "derivedexitcode": re.compile(r"\d+:\d+$"),
    "state": _STATE,
    "nodelist": re.compile(r"[\w.,:+@\[\]-]+$|None assigned$", re.ASCII),
    "nodename": re.compile(r"[\w.,:+@\[\]-]+$", re.ASCII),
    **dict.fromkeys(("submit", "eligible", "start", "end", "timestart", "timeend"), _STAMP),
    **dict.fromkeys(("elapsed", "timelimit", "cputime", "reserved", "planned", "suspended", "totalcpu"), _LENGTH),
    **dict.fromkeys(
        ("nnodes", "ncpus", "reqcpus", "allocnodes", "alloccpus", "elapsedraw", "cputimeraw", "uid", "gid", "dbindex",
         "associd", "priority", "qosraw", "ntasks", "timelimitraw", "consumedenergyraw", "wckeyid"), _WHOLE
    ),
}  # fmt: skip
_NODES = frozenset({"nodelist", "nodename"})
_HOST = r"(?=[^,])[\w.:+@-]*(\[[\w,-]+\][\w.:+@-]*)*"
_AMOUNT = r"[^,=]+=[^,=]*"
# Columns that hold lists with commas, and what they hold: in a table with commas between its fields, nothing says where
# such a list ends.
LISTS = {
    **dict.fromkeys(("nodelist", "nodename"), re.compile(f"({_HOST}(,{_HOST})*|None assigned)$", re.ASCII)),
    **dict.fromkeys(("alloctres", "reqtres", "tres"), re.compile(f"{_AMOUNT}(,{_AMOUNT})*$")),
}  # fmt: skip
QUOTED = re.compile(r'"[^"]*"(\W)".*"\s*$')


def layout(line: str, delimiter: str = "") -> str:
    """What to say of the first line of a table without a header: the `--fields` that fit it; empty when none do."""
    quoted = QUOTED.match(line)
    mark = delimiter or (
        quoted[1] if quoted else next((mark for mark in "|,;\t" if mark in line), "")
    )
    if not mark:
        return ""
    fields = split_fields(line, mark) if quoted or mark == "," else line.split(mark)
    slurm = fields[:-1] if fields and not fields[-1] else fields  # sacct -p
    for name, columns in LAYOUTS.items():
        if _fits(columns, slurm):
            return f"it has no header; its first line fits slurm --fields {name}{_option(mark, '|')}"
    if _fits(_DEFAULT, slurm):
        return "it has no header and looks like the columns that sacct prints by default, which lack nodes and times"
    if (
        len(fields) in (3, 4)
        and _STAMP.match(fields[1])
        and (_STAMP.match(fields[2]) or fields[2] in MISSING)
    ):
        names = ",".join(("node", "start", "end", "state")[: len(fields)])
        return f"it has no header; its first line fits intervals --fields {names}{_option(mark, ',')}"
    return ""


def _option(mark: str, default: str) -> str:
    return "" if mark == default else f" --delimiter '{mark}'".replace("\t", "\\t")


def _fits(columns: Sequence[str], fields: list[str]) -> bool:
    return len(columns) == len(fields) and all(
        text in MISSING or _is_kind(name.lower(), text)
        for name, text in zip(columns, fields, strict=True)
    )


def _is_kind(column: str, text: str) -> bool:
    """Whether a text is what a column holds: of columns of no known kind, anything."""
    if column in _NODES and any(kind.match(text) for kind in (_STAMP, _LENGTH, _WHOLE)):
        return False
    return column not in KINDS or KINDS[column].match(text) is not None


def delimiter_of(line: str, columns: int) -> str:
    """Between the columns of a line without a header; Slurm's where none makes as many."""
    return next(
        (mark for mark in "|,;\t" if line.count(mark) + 1 in (columns, columns + 1)),
        "|",
    )


class Order:
    """Holds the order of columns that the user has named against what the first records hold.

    Parameters
    ----------
    columns, used
        All of them, and the indices of those that are read.
    file, diagnosis
        As the table has them.
    """

    def __init__(
        self,
        columns: Sequence[str],
        used: Collection[int],
        file: str,
        diagnosis: Diagnosis,
    ) -> None:
        self._columns, self._used, self._file, self._diagnosis = (
            columns,
            used,
            file,
            diagnosis,
        )
        self._right: set[int] = set()
        self._odd: dict[int, str] = {}
        self._ordered: set[bool] = set()
        names = {name: k for k, name in reversed(list(enumerate(columns)))}
        self._ends = [
            names.get("start", names.get("timestart", -1)),
            names.get("end", names.get("timeend", -1)),
        ]

    def see(self, fields: Sequence[str]) -> None:
        """One record."""
        for k, (name, text) in enumerate(zip(self._columns, fields, strict=True)):
            if text in MISSING:
                continue
            if _is_kind(name, text):
                self._right.add(k)
            else:
                self._odd.setdefault(k, text)
        start, end = (fields[index] if index >= 0 else "" for index in self._ends)
        if (
            len(start) == len(end)
            and start != end
            and _STAMP.match(start)
            and _STAMP.match(end)
        ):
            self._ordered.add(start < end)

    def judge(self) -> None:
        """Refuse columns that never hold what they should.

        Raises
        ------
        InputError
            When such a column is one that is read; of others it is noted.
        """
        wrong = {k: text for k, text in self._odd.items() if k not in self._right}
        for k, text in wrong.items():
            why = f"column {k + 1}, by --fields {self._columns[k]}, never holds such in the first rows"
            if k in self._used:
                raise InputError(f"{why}, but {text[:80]!a}", file=self._file,
                                 hint="--fields names the columns in their order in the file")  # fmt: skip
            self._diagnosis.note(
                f"{why}: is the order of --fields right?",
                self._file,
                1,
                ascii(text[:80]),
            )
        if self._ordered == {False}:
            raise InputError("by --fields each of the first rows ends before it starts", file=self._file,
                             hint="--fields names the columns in their order in the file")  # fmt: skip
