"""What a Slurm job held of its nodes, in units of `ingest --unit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bft.replay.logs.reading import Reading
from bft.replay.logs.units import WHOLE, Held, UnitLog, check, indices, of_gres, of_tres, spread

# In OverSubscribe of a job, or `shared` and `exclusive` in JSON: nobody else's jobs run on its nodes.
_ALONE = frozenset({"NO", "EXCLUSIVE", "USER", "MCS", "TOPO", "NONE", "TRUE"})


@dataclass(frozen=True, slots=True)
class Stated:
    """What a record states of a job's units.

    Parameters
    ----------
    allocated
        Trackable resources of all its nodes (AllocTRES).
    together
        Generic resources of all its nodes (JOB_GRES).
    per_node
        Of each of its nodes (TresPerNode).
    cores
        Cores on all its nodes (AllocCPUS), where `allocated` does not state them.
    alone
        Whether its nodes are its alone.
    detail
        Of each node generic resources with the numbers of GPUs; empty: not stated. Where none of them states GPUs they
        count for nothing: a job that has ended has returned its own.
    """

    allocated: str = ""
    together: str = ""
    per_node: str = ""
    cores: int | None = None
    alone: bool = False
    detail: tuple[str, ...] = ()


def is_alone(text: str) -> bool:
    """Whether OverSubscribe, or what JSON has for it, says that a job has its nodes alone."""
    return text.strip().upper() in _ALONE


def held(stated: Stated, nodes: Sequence[int], log: UnitLog, reading: Reading, line: int) -> tuple[Held, ...]:
    """What a job that has run held of each of its nodes.

    Raises
    ------
    Unusable
        When that is more than they have.
    """
    unit, sizes, diagnosis = log.unit, log.sizes(nodes), reading.diagnosis
    if stated.alone:
        return (WHOLE,) * len(nodes)
    if not unit.cores and len(stated.detail) == len(nodes):
        named = tuple(indices(text) or of_gres(text) or 0 for text in stated.detail)
        if any(named):
            check(named, sizes)
            return named
    gpus, cores = of_tres(stated.allocated, "gpu"), of_tres(stated.allocated, "cpu")
    gpus = of_gres(stated.together) if gpus is None else gpus
    total = unit.amount(gpus, stated.cores if cores is None else cores)
    if not unit.cores and total is None and stated.per_node:
        each = of_gres(stated.per_node)
        total = None if each is None else each * len(nodes)
    if total is None and (unit.cores or not (stated.allocated or stated.per_node)):
        why = "a job states no resources: it counts as on all units of its nodes"
        diagnosis.note(why, reading.file, line, loud=True)
        return (WHOLE,) * len(nodes)
    if not total:
        diagnosis.note(f"a job without {unit.plural} leaves those of its nodes idle", reading.file, line)
        return (0,) * len(nodes)
    given = unit.held(spread(total, [unit.room(size) for size in sizes]), sizes)
    if len(nodes) > 1 and not stated.per_node and any(some != size for some, size in zip(given, sizes, strict=True)):
        why = f"the {unit.plural} of a job are known of all its nodes together: they count as spread evenly"
        diagnosis.note(why, reading.file, line)
    return given


def of_entry(entry: Mapping[str, Any]) -> Stated:
    """What a job in JSON states: of sacct `tres.allocated`, else `tres_alloc_str`, `gres_detail` and the like.

    Raises
    ------
    TypeError, AttributeError, KeyError
        When it has another shape.
    """
    tres = entry.get("tres")
    listed = tres.get("allocated") if isinstance(tres, dict) else None
    if listed is None:
        allocated = str(entry.get("tres_alloc_str") or "")
    else:
        allocated = ",".join(
            "/".join(filter(None, (str(each["type"]), str(each.get("name") or "")))) + f"={int(each['count'])}"
            for each in listed
        )
    detail = entry.get("gres_detail")
    return Stated(
        allocated=allocated,
        per_node=str(entry.get("tres_per_node") or ""),
        alone=any(is_alone(word) for name in ("shared", "exclusive") for word in _words(entry.get(name))),
        detail=tuple(str(text) for text in detail) if isinstance(detail, list) else (),
    )


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else [str(value or "")]
