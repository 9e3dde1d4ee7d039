"""Kubernetes: pods and their events, as kubectl prints them with -o json, and the units that pods ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bft.replay.logs.reading import (
    JobRan,
    LeftOut,
    Reading,
    Record,
    RowUsed,
    Unusable,
    each_object,
    host_names,
    in_order,
)
from bft.replay.logs.units import WHOLE, Held

COMMAND = "kubectl get pods -A -o json"
# Owners of pods that run on every node, and namespaces of what the cluster runs for itself.
_OF_NODES = frozenset({"DaemonSet", "Node"})
_OF_CLUSTER = frozenset({"kube-system", "kube-public", "kube-node-lease"})
_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)")


def read(reading: Reading) -> Iterator[Record]:
    """Read lists of pods or events, and what `kubectl get pods -w --output-watch-events` prints; see `LogFormat`.

    A node is busy while a pod of a user is on it: from when the pod was scheduled (else from status.startTime) until
    its last container ended. The same pod may come any number of times. Pods of a DaemonSet, of the node itself and of
    kube-system are left out, as they are on every node. Events report when and where a pod was scheduled, and its end
    only if it was killed.
    """
    log = _Log(reading)
    expected = "pod or event: expected kind, metadata, spec and status"
    yield from each_object(
        reading, log.record, keys=("items",), expected=expected, command=COMMAND
    )
    yield from log.close()


class _Log:
    """The log of pods and events in one file."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        # Of pods by events: node, start, line; and when they were killed.
        self.scheduled: dict[str, tuple[tuple[str, ...], int, int]] = {}
        self.killed: dict[str, int] = {}

    def record(self, entry: dict[str, Any], _: str, line: int) -> Iterator[Record]:
        """Use a pod, an event, or what a watch says of one."""
        deleted = entry.get("type") == "DELETED" and "object" in entry
        if "object" in entry and "type" in entry:
            entry = entry["object"]
        match entry.get("kind"):
            case "Pod":
                yield self.pod(entry, line, deleted=deleted)
            case "Event":
                self.event(entry, line)
                yield RowUsed(line)
            case "Workload":
                raise LeftOut("a Workload of Kueue, which names no node: its pods do")
            case kind:
                raise LeftOut(f"no pod, but {str(kind)[:40]!a}")

    def pod(self, entry: dict[str, Any], line: int, *, deleted: bool) -> JobRan:
        """Return the run of one pod."""
        meta, status = entry["metadata"], entry.get("status") or {}
        if any(
            owner.get("kind") in _OF_NODES
            for owner in meta.get("ownerReferences") or ()
        ):
            raise LeftOut(
                "a pod that is on every node (DaemonSet, or of the node itself)"
            )
        if meta.get("namespace") in _OF_CLUSTER:
            raise LeftOut("a pod of the cluster itself (namespace kube-system)")
        if not entry["spec"].get("nodeName"):
            raise LeftOut("a pod without a node: it was never scheduled")
        nodes = host_names((str(entry["spec"]["nodeName"]),), "nodeName")
        scheduled = (
            condition.get("lastTransitionTime")
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled"
            and condition.get("status") == "True"
        )
        start_ns = self.time(
            next(scheduled, None) or status.get("startTime"), "the start", line
        )
        if start_ns is None:
            raise LeftOut("a pod that never started")
        end_ns = self.end(status, line)
        ended = status.get("phase") in ("Succeeded", "Failed")
        if end_ns is None and (ended or deleted):
            end_ns = self.time(meta.get("deletionTimestamp"), "deletionTimestamp", line)
        if end_ns is None and ended:
            raise Unusable(
                "has ended, but no container says when", str(meta.get("name"))[:80]
            )
        in_order(start_ns, end_ns)
        key = ("pod", str(meta.get("uid") or meta["name"]))
        node = self.reading.nodes(nodes)
        held = self.held(entry["spec"], node[0], line)
        return JobRan(line, key, node, start_ns, end_ns, held)

    def held(
        self, spec: dict[str, Any], node: int, line: int
    ) -> tuple[Held, ...] | None:
        """Units of its node that a pod is given; None: nodes turn idle as a whole."""
        log = self.reading.units
        if log is None:
            return None
        amount = log.unit.amount(*of_pod(spec))
        if not amount:
            self.reading.note_no_units(line, log)
        return log.unit.held([amount or 0], [log.size(node)])

    def end(self, status: dict[str, Any], line: int) -> int | None:
        """When the last container of a pod that has ended did."""
        if status.get("phase") not in ("Succeeded", "Failed"):
            return None
        ends = [
            self.time(
                (container.get("state") or {}).get("terminated", {}).get("finishedAt"),
                "finishedAt",
                line,
            )
            for container in status.get("containerStatuses") or ()
        ]
        return max((end for end in ends if end is not None), default=None)

    def event(self, entry: dict[str, Any], line: int) -> None:
        """An event: a pod was scheduled, or killed."""
        involved = entry.get("involvedObject") or entry.get("regarding") or {}
        if involved.get("kind") != "Pod" or entry.get("reason") not in (
            "Scheduled",
            "Killing",
        ):
            raise LeftOut(
                "an event that says nothing of when a pod takes or leaves a node"
            )
        if involved.get("namespace") in _OF_CLUSTER:
            raise LeftOut("a pod of the cluster itself (namespace kube-system)")
        stamp = (
            entry.get("lastTimestamp")
            or entry.get("eventTime")
            or entry.get("firstTimestamp")
        )
        time_ns = self.time(stamp, "the time of an event", line)
        if time_ns is None:
            raise Unusable("an event without a time")
        pod = str(involved.get("uid") or involved["name"])
        if entry["reason"] == "Killing":
            self.killed[pod] = max(time_ns, self.killed.get(pod, 0))
            return
        assigned = _ASSIGNED.search(
            str(entry.get("message") or entry.get("note") or "")
        )
        if assigned is None:
            raise Unusable(
                "an event that does not say to which node a pod was assigned"
            )
        self.scheduled[pod] = host_names((assigned[1],), "message"), time_ns, line

    def time(self, text: object, what: str, line: int) -> int | None:
        """Return a time in UTC nanoseconds; None where there is none."""
        if not text:
            return None
        time_ns = self.reading.clock.parse(str(text), self.reading.file, line)
        if time_ns is None:
            raise Unusable(f"{what} is no time", ascii(str(text)[:80]))
        return time_ns

    def close(self) -> Iterator[Record]:
        """Yield the runs that events state."""
        reading = self.reading
        for pod, (nodes, start_ns, line) in self.scheduled.items():
            end_ns = self.killed.pop(pod, None)
            if end_ns is not None and end_ns < start_ns:
                end_ns = None
            held = None if reading.units is None else (WHOLE,)
            node = reading.nodes(nodes)
            yield JobRan(
                line, ("pod", pod), node, start_ns, end_ns, held, same_row=True
            )
        if self.scheduled and reading.units is not None:
            why = "events do not say what a pod has of its node: it counts as on all units"
            reading.note(why, 0, f"{len(self.scheduled)} pods", loud=True)
        if self.scheduled:
            why = "events do not say when a pod ended by itself: give the pods (kubectl get pods) instead, if you can"
            reading.note(why, 0, f"{len(self.scheduled)} pods", loud=True)
        if self.killed:
            why = "a pod was killed, and the event that it was scheduled is not in the file"
            reading.note(why, 0, f"{len(self.killed)} of them")


GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_QUANTITY = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?([mk]?)", re.ASCII)


def thousandths(value: object) -> int:
    """Thousandths of a quantity of GPUs or cores, rounded up.

    Raises
    ------
    Unusable
        When it is none.

    Examples
    --------
    >>> thousandths("2"), thousandths("1500m"), thousandths("0.5"), thousandths(4)
    (2000, 1500, 500, 4000)
    """
    match = (
        _QUANTITY.fullmatch(str(value))
        if isinstance(value, str | int) and not isinstance(value, bool)
        else None
    )
    if match is None:
        raise Unusable(
            "a quantity of GPUs or cores is no number", ascii(str(value)[:40])
        )
    whole, fraction, suffix = match.groups()
    nano = int(whole) * 10**9 + int((fraction or "").ljust(9, "0"))
    return -(-nano // {"m": 10**9, "": 10**6, "k": 10**3}[suffix])


def amounts(resources: Mapping[str, Any]) -> tuple[int, int]:
    """Thousandths of GPUs and of cores in requests, limits, allocatable or the like.

    >>> amounts({"cpu": "500m", "nvidia.com/gpu": "2", "memory": "1Gi"})
    (2000, 500)
    """
    return sum(
        thousandths(resources[key]) for key in GPUS if key in resources
    ), thousandths(resources.get("cpu", 0))


def of_pod(spec: Mapping[str, Any]) -> tuple[int, int]:
    """GPUs and cores of a pod, rounded up: those of its containers together, or of one that runs before them.

    >>> of_pod({"containers": [{"resources": {"requests": {"cpu": "1500m"}, "limits": {"nvidia.com/gpu": 1}}}] * 2})
    (2, 3)
    """

    def asked(containers: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
        stated = (each.get("resources") or {} for each in containers)
        return [
            amounts({**(of.get("limits") or {}), **(of.get("requests") or {})})
            for of in stated
        ]

    # One that runs before the others and restarts always goes on beside them.
    first = spec.get("initContainers") or []
    beside = [each for each in first if each.get("restartPolicy") == "Always"]
    before = [each for each in first if each.get("restartPolicy") != "Always"]
    together = [
        sum(column)
        for column in zip((0, 0), *asked([*spec["containers"], *beside]), strict=True)
    ]
    most = [max(column) for column in zip(together, *asked(before), strict=True)]
    return -(-most[0] // 1000), -(-most[1] // 1000)
