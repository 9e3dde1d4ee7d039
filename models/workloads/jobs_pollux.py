"""Workloads of Pollux' artifact: `--jobs-format pollux` (docs/formats.md).

Columns are name, time (s), application, num_replicas (Jreq) and batch_size. The rate follows from the placement, the
batch size (kept unless the policy lets jobs tune it) and the gradient's noise, as a folder (`--option applications`)
has them measured for each application (`models/speed/applications.py`). A table `applications.csv` there may state by
`application`:

- `slowdown`: a factor on measured step times.
- `restart_s`: seconds without progress after each start, restart and move, instead of the options'; `policy_restart_s`:
  what `sia` takes these for.
- `max_local_bsz`: most samples of a replica in one pass; `max_local_bsz@KIND` on units of a kind. On a kind without
  measurements of its own an application goes as measured without kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from bft.models.cells import MAX_SECONDS, SECOND_NS, Row, Rows
from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.jobs import Job, JobTable
from bft.models.speed.applications import (
    Application,
    measured_kinds,
    read_application,
)
from bft.models.speed.dynamics import ApplicationProfile
from bft.models.tables import read_table

REQUIRED: Final = ("name", "time", "application", "num_replicas", "batch_size")
# No larger number of replicas was measured.
MOST_REPLICAS: Final = 64
# What the artifact knows of its applications beside the measurements: yolov3's memory takes 8 samples a replica, and
# ncf is not distributed, nor its batch size changed.
ATOMIC_MAX: Final[Mapping[str, int]] = MappingProxyType({"yolov3": 8})
SINGLE: Final = frozenset({"ncf"})
# The table of what is known of applications beside the measurements, in their folder.
SETTINGS: Final = "applications.csv"
# Its columns of limits on units of a kind.
MOST_ON: Final = "max_local_bsz@"
# A slip of the pen must not stop a replay for good.
MAX_SLOWDOWN: Final = 1e3
MAX_RESTART_S: Final = 1e6


@dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """Statement on an application beside its measurements; see `Job`, `ApplicationProfile`, `read_application`."""

    slowdown: float = 1.0
    restart_s: float | None = None
    policy_restart_s: float | None = None
    max_local_bsz: int | None = None
    max_local_bsz_on: Mapping[str, int] = field(default_factory=dict)

    def atomic_max(self, name: str, kind: str = "") -> int | None:
        """Most samples of a replica of the application in one pass on a kind of units; None: as measured."""
        usual = self.max_local_bsz or ATOMIC_MAX.get(name)
        return self.max_local_bsz_on.get(kind) if kind else usual


def read_pollux_jobs(
    path: str | Path,
    applications: str | Path | None = None,
    *,
    units_per_node: int | Mapping[str, int] = 4,
    whole_seconds: bool = False,
    published_fit: bool = False,
) -> JobTable:
    """Read a workload (CSV, Parquet or JSON lines), one job a row, and the measured applications that it names.

    | column                  | becomes                                                                          |
    |-------------------------|----------------------------------------------------------------------------------|
    | name                    | name                                                                             |
    | time                    | Tsub, seconds                                                                    |
    | application             | model; its folder says how fast the job goes (`ApplicationProfile`)              |
    | num_replicas            | Jreq: what the user asks for; Jmin is 1, Jmax as far as batch and data reach     |
    | batch_size              | batch_size, kept unless the policy lets jobs tune it                             |

    A table `applications.csv` beside the folders may state, by application: `slowdown`, how many times longer its steps
    take than they were measured; `restart_s`, seconds without progress after each start; `policy_restart_s`, what
    policies take these for; and `max_local_bsz`, most samples of a replica in one pass (`max_local_bsz@KIND`: on units
    of a kind that has measurements of its own).

    Pmax is the whole training in samples at the initial batch size, rates are in these. The scalability curve, for
    policies that look at nothing else, is that of the user's batch size with the training's mean efficiency; it stays
    flat where replicas would get too few samples.

    Parameters
    ----------
    path
        The workload.
    applications
        The folder that holds a folder for each application; None: `traces` beside the workload, or beside its folder.
    units_per_node
        Where curves change from one node to several; by kind of units where there are several.
    whole_seconds
        Let epochs end at whole seconds, as the artifact's simulator does.
    published_fit
        Let agents fit the throughput model as the published programs do.

    Raises
    ------
    InputError
        Naming file, row, column and job.
    """
    path = Path(path)
    rows = Rows(read_table(path), path, job="name").require(REQUIRED)
    folder = _applications(path) if applications is None else Path(applications)
    settings = read_settings(folder)
    sizes = (
        units_per_node if isinstance(units_per_node, Mapping) else {"": units_per_node}
    )
    known: dict[str, dict[str, Application]] = {}
    curves: dict[tuple[str, int], dict[str, Curve]] = {}
    jobs = []
    for row in rows:
        model = row.name("application")
        batch, requested = (
            row.whole(column, min=1) for column in ("batch_size", "num_replicas")
        )
        stated = settings.get(model, ApplicationSettings())
        if model not in known:
            known[model] = _measured(row, folder, stated)
        application = known[model][""]
        limits = application.limits
        if not limits.initial <= batch <= limits.most:
            raise row.error(
                "batch_size",
                f"expected {limits.initial} to {limits.most}, as measured, not {batch}",
            )
        most = min(MOST_REPLICAS, limits.most // limits.atomic_min)
        jmax = 1 if model in SINGLE else most
        if not 1 <= requested <= jmax:
            raise row.error(
                "num_replicas", f"expected 1 to {jmax} for {model}, not {requested}"
            )
        profile = ApplicationProfile(
            application,
            batch,
            tunable=model not in SINGLE,
            whole_seconds=whole_seconds,
            slowdown=stated.slowdown,
            published_fit=published_fit,
            by_kind={kind: one for kind, one in known[model].items() if kind},
        )
        if (model, batch) not in curves:
            curves[model, batch] = _curves(profile, jmax, sizes)
        curve = curves[model, batch][""]
        jobs.append(
            Job(
                name=row.name("name"),
                tsub_ns=round(row.number("time", min=0, below=MAX_SECONDS) * SECOND_NS),
                jmin=1,
                jmax=jmax,
                pmax=profile.total_samples,
                tcup_s=0.0,
                tcdw_s=0.0,
                scalability=curve,
                objective=curve,
                jreq=requested,
                model=model,
                batch_size=float(batch),
                restart_s=stated.restart_s,
                policy_restart_s=stated.policy_restart_s,
                profile=profile,
                by_kind={
                    kind: (on, on) for kind, on in curves[model, batch].items() if kind
                },
            )
        )
    return JobTable(tuple(jobs), str(path), _notes(settings, known))


def _measured(
    row: Row, folder: Path, stated: ApplicationSettings
) -> dict[str, Application]:
    """Read the measurements of a row's application by kind of units, those of no kind first."""
    model = row.name("application")
    if Path(model).name != model or not (folder / model).is_dir():
        raise row.error("application", f"no folder {model} in {folder}")
    return {
        kind: read_application(
            folder / model, atomic_max=stated.atomic_max(model, kind), kind=kind
        )
        for kind in ("", *measured_kinds(folder / model))
    }


def read_settings(folder: str | Path) -> dict[str, ApplicationSettings]:
    """Read what `applications.csv` states of each application; empty where a folder has no such table.

    Columns are `application` and any of `slowdown`, `restart_s`, `policy_restart_s`, `max_local_bsz` and
    `max_local_bsz@KIND`; an empty cell states nothing.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    path = Path(folder) / SETTINGS
    if not path.is_file():
        return {}
    rows = Rows(read_table(path), path).require(("application",))
    by_kind = [name for name in rows.columns if name.startswith(MOST_ON)]
    settings: dict[str, ApplicationSettings] = {}
    for row in rows:
        name = row.name("application")
        if name in settings:
            raise row.error("application", f"the application {name!r} appears twice")
        settings[name] = ApplicationSettings(
            row.number("slowdown", 1.0, above=0, max=MAX_SLOWDOWN),
            row.number("restart_s", None, min=0, max=MAX_RESTART_S),
            row.number("policy_restart_s", None, min=0, max=MAX_RESTART_S),
            row.whole("max_local_bsz", None, min=1),
            {
                column.removeprefix(MOST_ON): most
                for column in by_kind
                if (most := row.whole(column, None, min=1)) is not None
            },
        )
    return settings


def _notes(
    settings: Mapping[str, ApplicationSettings],
    known: Mapping[str, Mapping[str, Application]],
) -> tuple[str, ...]:
    """Say that a table of applications counts, and for which of the workload's something is not stated."""
    notes = []
    if settings:
        missing = [name for name in known if name not in settings]
        left_out = f"; it has no row for {', '.join(missing)}" if missing else ""
        notes.append(
            f"{SETTINGS} states slowdowns and restart seconds by application{left_out}"
        )
    for kind in dict.fromkeys(kind for on in known.values() for kind in on):
        without = ", ".join(name for name, on in known.items() if kind not in on)
        if without:
            notes.append(
                f"{without} was not measured on kind {kind}: there it goes as measured without a kind"
            )
    return tuple(notes)


def _applications(path: Path) -> Path:
    """The folder of measurements as the artifact lays it out."""
    beside = [path.resolve().parent / "traces", path.resolve().parent.parent / "traces"]
    nearest = next((folder for folder in beside if folder.is_dir()), None)
    if nearest is None:
        raise InputError(
            "no folder `traces` with the measured applications beside it or its folder",
            file=path,
            hint="name it",
        )
    return nearest


def _curves(
    profile: ApplicationProfile, most: int, units_per_node: Mapping[str, int]
) -> dict[str, Curve]:
    """Rates on 0, 1, ..., `most` units by kind: such that a training takes as long as it does at this batch size."""
    useful = profile.total_samples / profile.application.samples(profile.batch)
    first = next(iter(units_per_node.values()))
    curves = {}
    for kind in dict.fromkeys(("", *units_per_node, *profile.by_kind)):
        per = units_per_node.get(kind, first)
        rates = profile.on(kind).curve(profile.batch, most, per).table(most) * useful
        curves[kind] = Curve(np.arange(most + 1.0), rates)
    return curves
