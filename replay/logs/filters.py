"""The filters of logs: each is a field of `Filters`, and works in every format whose records state what it is about.

Options of `ingest`, settings of readers and all checks follow from these fields. Readers hand over what a record states
under the names of the fields (`Reading.keep`), whether or not there is a filter of that name: cluster, partition, user.

A filter by anything else needs more than its field: a flag in `LogFormat` (its name and an s, which `from_files` looks
up), the value in each reader's call of `Reading.keep` or `Reading.other`, and the column of `sacct` in `slurm.read`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from bft.models import InputError


@dataclass(frozen=True, slots=True)
class Filter:
    """How a filter chooses records.

    Parameters
    ----------
    help
        Says in a sentence what it does, for the command line.
    of_jobs
        Whether it is for jobs alone: a job that states nothing is left out, and logs that state nothing are refused.
        Otherwise it is also for nodes and outages, and what states nothing is used, which is noted.
    """

    help: str
    of_jobs: bool

    def keeps(self, wanted: str, stated: str | None) -> bool:
        """Tell whether a record is used that states this; capitals and blanks around names do not matter.

        Parameters
        ----------
        wanted
            Value that the user asks for.
        stated
            Value that the record states, of jobs several with commas between them; empty: none. None: records of this
            kind belong to all values.

        Examples
        --------
        >>> Filter("", of_jobs=True).keeps("gpu", "batch, GPU"), Filter("", of_jobs=False).keeps("gpu", "")
        (True, True)
        """
        if stated is None:
            return True
        name = _plain(wanted)
        if self.of_jobs:
            return name in map(_plain, stated.split(","))
        return _plain(stated) in ("", name)


def _plain(name: str) -> str:
    return name.strip().casefold()


def _filter(help: str, *, of_jobs: bool) -> Any:  # noqa: A002 - as click calls it
    return field(default=None, metadata={"filter": Filter(help, of_jobs)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The values that records of a log have to state to be used; None: any.

    `LogFormat` says of each format whether its records state them: `clusters`, `partitions` and so on.

    Raises
    ------
    InputError
        When a value is empty, or names several partitions.
    """

    cluster: str | None = _filter("Use only rows of this cluster. [all]", of_jobs=False)
    partition: str | None = _filter(
        "Use only jobs of this partition or queue. [all]", of_jobs=True
    )

    def __post_init__(self) -> None:
        for name, wanted in self.asked().items():
            if not isinstance(wanted, str) or not wanted.strip():
                raise InputError(
                    f"--{name}: expected the name of a {name}, not {wanted!r}",
                    hint=f"without --{name}, rows of all {name}s are used",
                )
            if FILTERS[name].of_jobs and "," in wanted:
                raise InputError(
                    f"--{name}: expected the name of one {name}, not {ascii(wanted)[:80]}"
                )

    def asked(self) -> dict[str, Any]:
        """Return what the user asks for, by the names of the filters."""
        each = {name: getattr(self, name) for name in FILTERS}
        return {name: wanted for name, wanted in each.items() if wanted is not None}

    def beside_jobs(self) -> dict[str, Any]:
        """Return what the user asks for of nodes and outages as well."""
        asked = self.asked().items()
        return {name: wanted for name, wanted in asked if not FILTERS[name].of_jobs}


FILTERS: dict[str, Filter] = {
    each.name: each.metadata["filter"] for each in fields(Filters)
}
