"""What a job of PBS held of its hosts, in units of `ingest --unit`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bft.replay.logs.diagnosis import Unusable
from bft.replay.logs.units import Held, Unit, check, spread

# Sockets or NUMA domains of a host that are nodes of their own: host[0], host[1].
_PART_OF_HOST = re.compile(r"(?<=.)\[\d+\]$")
# Torque: n1-gpu/0+n1-gpu/1.
_GPU = re.compile(r"(.+)-gpu/(\d{1,4})")
_SLOTS = re.compile(r"(.+?)/(\d+)(?:-(\d+))?(?:\*(\d+))?")


def held_by(
    values: Mapping[str, str], hosts: Sequence[str], unit: Unit, sizes: Sequence[int | None]
) -> tuple[tuple[Held, ...] | None, bool]:
    """What a job holds of each of its hosts, and whether only their sum is stated; None: all of them.

    Of exec_gpus (Torque, which states the numbers of GPUs), exec_vnode, Resource_List.ngpus and exec_host, the first
    that states it.

    Raises
    ------
    Unusable
        When that is more than the hosts have.
    """
    if "excl" in values.get("Resource_List.place", ""):
        return None, False
    if not unit.cores and values.get("exec_gpus"):
        named = _named(values["exec_gpus"], hosts)
        check(named, sizes)
        return named, False
    by_host = _by_vnode(values.get("exec_vnode", ""), "ncpus" if unit.cores else "ngpus")
    if by_host is None and not unit.cores:
        total = _whole(values.get("Resource_List.ngpus", "0"), "Resource_List.ngpus")
        return spread(total, [unit.room(size) for size in sizes]), bool(total) and len(hosts) > 1
    if by_host is None:
        by_host = _slots(values.get("exec_host", ""))
    if by_host is None:
        return None, False
    return unit.held([by_host.get(host, 0) for host in hosts], sizes), False


def host_of(vnode: str) -> str:
    """The host of a vnode: a socket or NUMA domain n1[0] is part of n1.

    >>> host_of("n1[0]")
    'n1'
    """
    return _PART_OF_HOST.sub("", vnode)


def _named(text: str, hosts: Sequence[str]) -> tuple[Held, ...]:
    """The numbers of GPUs of each host."""
    numbers: dict[str, set[int]] = {host: set() for host in hosts}
    for part in text.split("+"):
        gpu = _GPU.fullmatch(part)
        if gpu is None or gpu[1] not in numbers:
            raise Unusable("exec_gpus holds no GPU of the job's hosts, such as n1-gpu/0", ascii(part[:40]))
        numbers[gpu[1]].add(int(gpu[2]))
    return tuple(tuple(sorted(numbers[host])) or 0 for host in hosts)


def _by_vnode(text: str, resource: str) -> dict[str, int] | None:
    """How much of a resource exec_vnode states of each host: (n1:ncpus=4:ngpus=1)+(n2:ncpus=4); None: no vnode."""
    counts: dict[str, int] = {}
    for part in text.split("+") if text else ():
        vnode, *resources = part.strip("()").split(":")
        host = host_of(vnode)
        stated = [each.partition("=")[2] for each in resources if each.startswith(f"{resource}=")]
        counts[host] = counts.get(host, 0) + sum(_whole(value, f"{resource} in exec_vnode") for value in stated)
    return counts or None


def _slots(text: str) -> dict[str, int] | None:
    """Slots of exec_host: n1/0*8, n1/7+n1/6, n1/0-3."""
    counts: dict[str, int] = {}
    for part in text.split("+") if text else ():
        slots = _SLOTS.fullmatch(part)
        if slots is None:
            return None
        host, low, high, times = slots.groups()
        counts[host] = counts.get(host, 0) + (int(times) if times else int(high or low) - int(low) + 1)
    return counts or None


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Unusable(f"{what} is no whole number", ascii(text[:40]))
    return int(text)
