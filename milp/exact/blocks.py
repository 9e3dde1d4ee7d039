"""Which members of a class are still undecided, and which of them form one block. Imported only when it is used.

Members of a class have the same losses (`core`), so in the canonical optimum earlier members have at least as many
units as later ones: otherwise exchanging the two would cost nothing and leave the later one with fewer.
Let [z, Z] span the smallest to the largest choice without loss. Every choice above Z loses at least a, and every
choice below z at least b. An allocation with a total loss of at most B has at most B // a members above Z, the first
ones of the class, and at most B // b members below z, the last ones. So, for a bound B:

    the first B // a members choose z or more, the last B // b choose Z or less, all others choose from z to Z.

Usually that leaves one choice, and nothing to decide.

Consecutive undecided jobs that choose from the same line of counts with the same losses form a block. Take m such jobs,
each with low ... high units and a loss of l + s per unit above low: any total loses m·l + s·(total - m·low), no matter
how it is split. So the block is one choice from the line m·low ... m·high. The canonical split gives the first jobs
the largest counts, and every count rises with the total. So the canonical order of counts (fewest units for the last
job, then for the one before it, and so on) is also the order of block totals, from the last block to the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.compiled import compiled, inlined
from bft.milp.exact.core import (
    NEVER,
    SHORT,
    improve,
    losses,
    price_of,
    start,
    survivors,
)
from bft.milp.exact.scores import Terms, kept_counts, scores_of, values_of
from bft.milp.problem import FloatArray, IntArray

# The first bound on the total loss, as a part of the loss of the start, and the factor to the next bound: most optima
# lose a hundredth to a tenth of what the start loses, and twice the bound takes some four times as long.
FIRST = 64
WIDEN = 2
# Points of classes, scores there, slopes and offsets, as `scores.scores` returns them.
Scored = tuple[IntArray, IntArray, IntArray, IntArray]
Stretches = tuple[IntArray, IntArray, IntArray, IntArray, IntArray]
# What a member may choose: z to Z, z or more, Z or less, or anything.
BODY, HEAD, TAIL, ANY = 0, 1, 2, 3
KINDS = 4


@compiled
def blocks(
    of: IntArray,
    sizes: IntArray,
    units: IntArray,
    slopes: IntArray,
    loss: IntArray,
    offsets: IntArray,
    max_units: IntArray,
    price: int,
    bound: int,
) -> tuple[IntArray, IntArray, IntArray, Stretches]:
    """Split jobs into jobs that a loss of at most `bound` decides, and blocks of undecided jobs.

    Parameters
    ----------
    of, sizes
        The class of each job, and how many members each class has.
    units, slopes, loss, offsets, max_units, price
        Points of the classes and the losses there, as of `core.survivors`.
    bound
        Largest total loss of all jobs together.

    Returns
    -------
    counts
        Units of the jobs that are decided, 0 for the others.
    jobs, begins
        The undecided ones, ascending: block i is jobs[begins[i]:begins[i+1]].
    stretches
        Choices of the blocks, stored as those of the classes.

    """
    ends, low, high, first_loss, step = survivors(
        units, slopes, loss, offsets, max_units, price, bound
    )
    first, last, limits = _limits(sizes, ends, low, high, first_loss, step, bound)
    kind_ends, kind_low, kind_high, kind_loss, kind_step = _kinds(
        ends, low, high, first_loss, step, limits
    )
    counts = np.zeros(len(of), np.int64)
    jobs, begins = np.empty(len(of), np.int64), np.zeros(len(of) + 1, np.int64)
    kind_of = np.empty(len(of), np.int64)
    rank = np.zeros(len(sizes), np.int64)
    undecided, filled, room, joint = 0, 0, 0, -1
    for j in range(len(of)):
        c = of[j]
        kind = BODY
        if rank[c] < first[c]:
            kind = HEAD
        if rank[c] >= last[c]:
            kind += TAIL
        rank[c] += 1
        kind += KINDS * c
        k = kind_ends[kind]
        lines = kind_ends[kind + 1] - k
        if lines == 1 and kind_low[k] == kind_high[k]:
            counts[j] = kind_low[k]
            continue
        joins = False
        if joint >= 0 and lines == 1:
            members = undecided - begins[filled - 1] + 1
            joins = (
                kind_low[k] == kind_low[joint]
                and kind_high[k] == kind_high[joint]
                and kind_loss[k] == kind_loss[joint]
                and kind_step[k] == kind_step[joint]
                and max(
                    kind_loss[k],
                    kind_loss[k] + kind_step[k] * (kind_high[k] - kind_low[k]),
                )
                <= NEVER // members
            )
        if not joins:
            begins[filled] = undecided
            kind_of[filled] = kind
            filled += 1
            room += lines
            joint = k if lines == 1 else -1
        jobs[undecided] = j
        undecided += 1
    begins[filled] = undecided

    out_ends = np.zeros(filled + 1, np.int64)
    out_low, out_high = np.empty(room, np.int64), np.empty(room, np.int64)
    out_loss, out_step = np.empty(room, np.int64), np.empty(room, np.int64)
    made = 0
    for i in range(filled):
        members = begins[i + 1] - begins[i]
        for k in range(kind_ends[kind_of[i]], kind_ends[kind_of[i] + 1]):
            out_low[made], out_high[made] = (
                members * kind_low[k],
                members * kind_high[k],
            )
            out_loss[made], out_step[made] = members * kind_loss[k], kind_step[k]
            made += 1
        out_ends[i + 1] = made
    return (
        counts,
        jobs[:undecided],
        begins[: filled + 1],
        (out_ends, out_low, out_high, out_loss, out_step),
    )


@compiled
def _limits(
    sizes: IntArray,
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    first_loss: IntArray,
    step: IntArray,
    bound: int,
) -> tuple[IntArray, IntArray, IntArray]:
    """Return for each class how many members may exceed Z, the rank from which they may stay below z, and z and Z."""
    classes = len(sizes)
    above, from_rank = np.empty(classes, np.int64), np.empty(classes, np.int64)
    limits = np.empty((classes, 2), np.int64)
    for c in range(classes):
        min_units, max_units = NEVER, np.int64(-1)
        for k in range(ends[c], ends[c + 1]):
            end = first_loss[k] + step[k] * (high[k] - low[k])
            if first_loss[k] == 0:
                min_units, max_units = min(min_units, low[k]), max(max_units, low[k])
            if end == 0:
                min_units, max_units = min(min_units, high[k]), max(max_units, high[k])
        over, under = NEVER, NEVER
        for k in range(ends[c], ends[c + 1]):
            end = first_loss[k] + step[k] * (high[k] - low[k])
            if high[k] > max_units:
                over = min(
                    over,
                    end,
                    first_loss[k] + step[k] * (max(low[k], max_units + 1) - low[k]),
                )
            if low[k] < min_units:
                under = min(
                    under,
                    first_loss[k],
                    first_loss[k] + step[k] * (min(high[k], min_units - 1) - low[k]),
                )
        limits[c, 0], limits[c, 1] = min_units, max_units
        above[c] = min(sizes[c], bound // over)
        from_rank[c] = max(sizes[c] - bound // under, 0)
    return above, from_rank, limits


@compiled
def _kinds(
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    first_loss: IntArray,
    step: IntArray,
    limits: IntArray,
) -> Stretches:
    """The choices of each class as BODY, HEAD, TAIL and ANY; neighbouring stretches on one line are joined."""
    classes = len(ends) - 1
    kind_ends = np.zeros(KINDS * classes + 1, np.int64)
    room = KINDS * len(low)
    out_low, out_high = np.empty(room, np.int64), np.empty(room, np.int64)
    out_loss, out_step = np.empty(room, np.int64), np.empty(room, np.int64)
    made = 0
    for c in range(classes):
        for kind in range(KINDS):
            min_units = np.int64(0) if kind in (TAIL, ANY) else limits[c, 0]
            max_units = NEVER if kind in (HEAD, ANY) else limits[c, 1]
            start = made
            for k in range(ends[c], ends[c + 1]):
                first, last = max(low[k], min_units), min(high[k], max_units)
                if first > last:
                    continue
                loss, slope = first_loss[k] + step[k] * (first - low[k]), step[k]
                if made > start and out_high[made - 1] + 1 == first:
                    length = out_high[made - 1] - out_low[made - 1]
                    rise = loss - (out_loss[made - 1] + out_step[made - 1] * length)
                    if (length == 0 or rise == out_step[made - 1]) and (
                        first == last or rise == slope
                    ):
                        out_high[made - 1], out_step[made - 1] = last, rise
                        continue
                out_low[made], out_high[made], out_loss[made], out_step[made] = (
                    first,
                    last,
                    loss,
                    slope,
                )
                made += 1
            kind_ends[KINDS * c + kind + 1] = made
    return kind_ends, out_low[:made], out_high[:made], out_loss[:made], out_step[:made]


@compiled
def give_out(
    counts: IntArray,
    jobs: IntArray,
    begins: IntArray,
    stretches: Stretches,
    totals: IntArray,
) -> None:
    """Split the total of each block among its jobs, and write the result to `counts`."""
    ends, low, high = stretches[0], stretches[1], stretches[2]
    for i in range(len(totals)):
        members = begins[i + 1] - begins[i]
        if members == 1:
            counts[jobs[begins[i]]] = totals[i]
            continue
        min_units, max_units = low[ends[i]] // members, high[ends[i]] // members
        left = totals[i] - members * min_units
        for j in jobs[begins[i] : begins[i + 1]]:
            counts[j] = min_units + min(left, max_units - min_units)
            left -= counts[j] - min_units


@inlined
def search(
    of: IntArray,
    sizes: IntArray,
    kept: IntArray,
    scored: Scored,
    capacity: int,
    most_steps: int,
    stop: NDArray[np.uint8],
) -> tuple[bool, IntArray, int]:
    """The canonical allocation: a bound on the loss rises until an allocation lies within it.

    That allocation is the optimum, because every choice within the bound was examined. In the worst case nothing can be
    excluded, and each of the last two rounds costs O(points x capacity) time and O(sqrt(jobs) x capacity) memory.

    Parameters
    ----------
    of, sizes, kept, scored
        The jobs, as `dp.Scores` has them.
    capacity
        Units to distribute.
    most_steps
        A bound whose examination takes more steps than this ends the search.
    stop
        Ends the search when it is set (`core.improve`).

    Returns
    -------
    found, counts, lost
        Whether the counts are those of the canonical allocation. If not, those of `core.start`, and an upper bound of
        what others lose less.

    """
    units, scores, slopes, offsets = scored
    price = price_of(units, scores, offsets, sizes, capacity)
    loss, max_units = losses(units, scores, slopes, offsets, sizes, price, capacity)
    base, total = start(of, units, slopes, loss, offsets, kept, price, capacity)
    bound, excluded = total if total <= capacity * FIRST else total // FIRST, 0
    while True:
        counts, undecided, begins, stretches = blocks(
            of, sizes, units, slopes, loss, offsets, max_units, price, bound
        )
        ends, low, high, first_loss, step = stretches
        left, choices = capacity, 0
        for count in counts:
            left -= count
        for k in range(len(low)):
            choices += min(high[k] - low[k] + 1, SHORT)
        if choices * (left + 1) > most_steps:
            return False, base, total - excluded
        found, totals = improve(
            ends, low, high, first_loss, step, left, price, bound, stop
        )
        if found:
            give_out(counts, undecided, begins, stretches, totals)
            return True, counts, 0
        if stop[0]:
            return False, base, total - excluded
        excluded = bound + 1
        # Where most jobs are undecided, a larger bound takes no longer.
        last = total < 2 * WIDEN * bound or 2 * len(undecided) > len(of)
        bound = total if last else bound * WIDEN


@compiled
def scored_search(
    terms: Terms,
    of: IntArray,
    first: IntArray,
    sizes: IntArray,
    held: IntArray,
    capacity: int,
    tfwd: float,
    stall: bool,
    most_steps: int,
    stop: NDArray[np.uint8],
) -> tuple[bool, IntArray, int, FloatArray, float]:
    """From jobs to the answer of `search` in one call, with the values of its counts and the value of a score of 1.

    `held`: what each member of a class holds; the other jobs as `scores.scores_of` takes them.
    """
    kept, runs = kept_counts(terms, first, held)
    units, scores, slopes, offsets, quantum = scores_of(
        terms, first, held, kept, sizes, capacity, tfwd, stall
    )
    scored = units, scores, slopes, offsets
    found, counts, lost = search(of, sizes, kept, scored, capacity, most_steps, stop)
    values = values_of(terms, first, held, runs, of, counts, tfwd, stall)
    return found, counts, lost, values, quantum
