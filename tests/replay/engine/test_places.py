"""Free units: those idle longest first, and consolidated placement against enumeration."""

from __future__ import annotations

from itertools import combinations

import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st

from bft.replay.engine.units import FreeList, Holdings


@st.composite
def machines(draw: st.DrawFn) -> tuple[int, list[int]]:
    per = draw(st.integers(1, 4))
    nodes = draw(st.integers(1, 4))
    return per, draw(
        st.lists(st.sampled_from(range(per * nodes)), unique=True, max_size=per * nodes)
    )


def nodes_of(units: tuple[int, ...], per: int) -> set[int]:
    return {unit // per for unit in units}


@given(machines(), st.integers(1, 9))
def test_consolidated_units_lie_on_the_fewest_nodes_there_can_be(
    machine: tuple[int, list[int]], units: int
) -> None:
    per, free = machine
    places = FreeList(free, per)
    taken = places.take(units)
    whole = sum(
        len([u for u in free if u // per == node]) == per
        for node in {u // per for u in free}
    )
    if taken is None:
        assert len(places) == len(free)
        needed, rest = divmod(units, per)
        spare = [
            len([u for u in free if u // per == node])
            for node in {u // per for u in free}
        ]
        # So many whole nodes are not free, or beside them no node has room for the rest.
        assert (
            whole < needed
            or sum(room >= rest for room in spare) < needed + (rest > 0)
            or units > len(free)
        )
        return
    assert len(taken) == len(set(taken)) == units
    assert set(taken) <= set(free)
    assert len(nodes_of(taken, per)) == -(-units // per)
    assert len(places) == len(free) - units


@given(machines(), st.integers(1, 9))
def test_scattered_units_need_as_few_nodes_as_any_choice(
    machine: tuple[int, list[int]], units: int
) -> None:
    per, free = machine
    taken = FreeList(free, per).take(units, spread=True)
    if units > len(free):
        assert taken is None
        return
    assert taken is not None
    assert len(set(taken)) == units
    fewest = min(len(nodes_of(choice, per)) for choice in combinations(free, units))
    assert len(nodes_of(taken, per)) == fewest


@given(machines(), st.lists(st.integers(1, 4), max_size=4))
def test_what_is_given_back_can_be_taken_again(
    machine: tuple[int, list[int]], sizes: list[int]
) -> None:
    per, free = machine
    places = FreeList(free, per)
    taken = [
        got for size in sizes if (got := places.take(size, spread=True)) is not None
    ]
    for got in taken:
        places.give_back(got)
    assert len(places) == len(free)
    assert sum(places.by_node().values()) == len(free)
    everything = places.take(len(free), spread=True) if free else ()
    assert everything is not None
    assert sorted(everything) == sorted(free)


@pytest.mark.parametrize("per", [1, 4])
def test_holdings_give_only_free_units(per: int) -> None:
    holdings = Holdings(8, per)
    holdings.join(range(8), 0)
    taken = holdings.take(6)
    holdings.grant(0, taken)
    assert len(set(taken)) == 6
    assert len(holdings.placement()) == holdings.free == 2
    with pytest.raises(IndexError):
        holdings.take(3)


@pytest.mark.parametrize("rejoin", [False, True], ids=["for good", "and come back"])
@examples(300)
@given(data=st.data())
def test_units_that_are_nodes_are_taken_oldest_first(
    data: st.DataObject, *, rejoin: bool
) -> None:
    """Add, discard and take units, and compare with a dictionary from a unit to the event since which it is idle."""

    def choose(below: int) -> int:
        return data.draw(st.integers(0, below - 1))

    units = data.draw(st.integers(1, 5))
    real, naive, discarded = FreeList(), dict[int, int](), set[int]()

    def take() -> None:
        oldest = min(naive, key=lambda unit: (naive[unit], unit))
        del naive[oldest]
        assert real.take(1) == (oldest,)

    for event in range(data.draw(st.integers(1, 25))):
        outside = {*range(units)} - naive.keys() - (set() if rejoin else discarded)
        action = choose(4)
        if action <= 1 and outside:
            unit = sorted(outside)[choose(len(outside))]
            # Released units are older than the event at which they are released, and several join at one.
            naive[unit] = choose(event + 1) if action else event // 3
            real.add(unit, naive[unit])
        elif action == 2:
            unit = choose(units)
            real.discard(unit, naive.pop(unit, 0))  # also where it is not free
            discarded.add(unit)
        elif naive:
            take()
        else:
            assert real.take(1) is None
        assert len(real) == len(naive)
        assert sorted(real.free_nodes()) == sorted(naive)
    while naive:
        take()
    assert not len(real)
