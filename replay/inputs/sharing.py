"""Which jobs of a run may share units, and at what cost."""

from __future__ import annotations

import math

from bft.models import JobTable, read_unit_memory, read_xi
from bft.replay.engine.rules import Interference
from bft.replay.inputs.files import Files, InMemory
from bft.replay.inputs.notes import Watcher
from bft.replay.options.options import Options


def sharing(
    options: Options,
    jobs: JobTable,
    notes: Watcher,
    in_memory: InMemory,
    files: Files,
) -> Interference | None:
    """Return who slows whom down on shared units; None: nobody shares."""
    if options.xi is None:
        return None
    table = in_memory["xi"] if "xi" in in_memory else files.once(read_xi, options.xi)
    if table.clipped:
        notes.note(f"{table.clipped} xi below 1 are measurement noise and count as 1")
    if table.estimated:
        counts = ", ".join(f"{count} {flag}" for flag, count in table.estimated.items())
        notes.note(
            f"{sum(table.estimated.values())} rows of the xi table are estimates, not measurements: {counts}"
        )
    memory = options.memory_table
    interference = Interference(
        table,
        options.xi_max or math.inf,
        options.unit_memory_gib,
        frozenset(frozenset(pair) for pair in options.forbid),
        None if memory is None else files.once(read_unit_memory, memory),
        options.sub_batch,
    )
    if interference.by_units:
        sizes = {row.units for row in table.measurements if row.units is not None}
        notes.note(
            f"a job's xi is that of as many units as it has ({', '.join(f'{n:g}' for n in sorted(sizes))} in the xi "
            "table); on others that of rows without units counts, or the largest of its pair"
        )
    by_model = {(job.model, job.batch_size, job.memory_gib): job for job in jobs}
    kinds = list(by_model.values())
    if not any(interference.ever(a, b) for a in kinds for b in kinds):
        models = ", ".join(sorted({job.model or "(none)" for job in jobs}))
        notes.note(
            f"no two jobs may share: the xi table, memory or --option forbid leave no pair of the models {models}"
        )
    return interference
