"""Kubernetes: pods and their events, as kubectl prints them with -o json, and the units that pods ask for.

A pod has its node from the condition PodScheduled to the end of its last container, else until it was disrupted. Pods
of a DaemonSet, of the node itself and of kube-system are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from bft.replay.logs.formats.entries import stated
from bft.replay.logs.records import (
    LOUD,
    SKIPPED,
    Block,
    LeftOut,
    Log,
    Row,
    Unusable,
    each_object,
)
from bft.replay.logs.times import Whole
from bft.replay.logs.units import Stated

COMMAND = "kubectl get pods -A -o json"
# Owners of pods that run on every node, and namespaces of what the cluster runs for itself.
_OF_NODES = frozenset({"DaemonSet", "Node"})
_OF_CLUSTER = frozenset({"kube-system", "kube-public", "kube-node-lease"})
_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)")
_NEVER_RAN = "a pod that never ran: its node rejected or evicted it before"
# Reasons and messages of the kubelet for pods that it does not begin.
_REJECTED = re.compile(
    r"(OutOf\w+|NodeAffinity|NodeName|NodePorts|NodeShutdown|MatchNodeSelector|HostPort|UnexpectedAdmissionError"
    r"|TaintToleration|TopologyAffinityError|PodOS\w+|SysctlForbidden|AppArmor|InvalidNodeInfo)\b"
    r"|.*: Pod was rejected|Evicted: (Pod )?The node had condition"
)


def read(log: Log) -> Iterator[Block | Row]:
    """Read lists of pods or events, and what `kubectl get pods -w --output-watch-events` prints.

    A node is busy while a pod of a user is on it: from when the pod was scheduled (else from status.startTime) until
    its last container ended. The same pod may come any number of times. Pods of a DaemonSet, of the node itself and of
    kube-system are left out, as they are on every node. Events report when and where a pod was scheduled, and its end
    only if it was killed.
    """
    log.words = {
        "start": "the start of a pod",
        "end": "the end of a pod",
        "known": "creationTimestamp",
    }
    # Of pods by events: the row that says that they were scheduled; and when they were killed.
    scheduled: dict[str, dict[str, Any]] = {}
    killed: dict[str, str] = {}

    def row(entry: dict[str, Any], _: str, line: int) -> Iterator[Row]:
        deleted = entry.get("type") == "DELETED"
        if "object" in entry and "type" in entry:
            entry = entry["object"]
        of = ("involvedObject.namespace", "regarding.namespace", "metadata.namespace")
        if stated(entry, *of) in _OF_CLUSTER:
            raise LeftOut("a pod of the cluster itself (namespace kube-system)")
        match entry.get("kind"):
            case "Pod":
                yield _pod(log, entry, deleted=deleted)
            case "Event":
                pod, time, node = _event(entry)
                if node:
                    scheduled[pod] = {
                        "line": line,
                        "again": True,
                        "id": pod,
                        "hosts": node,
                        "start": time,
                    }
                else:
                    killed[pod] = max(time, killed.get(pod, ""))
                yield {"kind": "nothing"}
            case kind:
                raise LeftOut("an object that is no pod", str(kind)[:40])

    expected = "pod or event: expected kind, metadata, spec and status"
    yield from each_object(
        log, row, keys=("items",), expected=expected, command=COMMAND
    )
    notes = [
        "events do not say when a pod ended by itself: give the pods (kubectl get pods) instead, if you can"
    ]
    if log.settings.unit is not None:
        notes.append(
            "events do not say what a pod has of its node: it counts as on all units"
        )
    for pod, began in scheduled.items():
        end = killed.pop(pod, "")
        told = [(LOUD + note, "") for note in notes]
        yield began | {"end": end if end >= began["start"] else "", "notes": told}
    if killed:
        why = "a pod was killed, and the event that it was scheduled is not in the file"
        log.note(why, 0, f"{len(killed)} of them")


def _pod(log: Log, entry: dict[str, Any], *, deleted: bool) -> Row:
    """Return the row of one pod."""
    meta, spec, status = entry["metadata"], entry["spec"], entry.get("status") or {}
    if not _OF_NODES.isdisjoint(
        owner["kind"] for owner in meta.get("ownerReferences") or ()
    ):
        raise LeftOut("a pod that is on every node (DaemonSet, or of the node itself)")
    row: dict[str, Any] = {
        "id": stated(meta, "uid") or meta["name"],
        "count": 1,
        "known": stated(meta, "creationTimestamp"),
        "limit": stated(spec, "activeDeadlineSeconds"),
    }
    if not spec.get("nodeName"):
        return row
    started, phase = stated(status, "startTime"), status.get("phase")
    containers = [
        each.get("state") or {} for each in status.get("containerStatuses") or ()
    ]
    reason = f"{status.get('reason')}: {status.get('message')}"
    if (
        phase == "Failed"
        and not containers
        and (not started or _REJECTED.match(reason))
    ):
        raise LeftOut(_NEVER_RAN)
    since = {
        f"{each.get('type')} {each.get('status')}": each.get("lastTransitionTime")
        for each in status.get("conditions") or ()
    }
    row |= {
        "hosts": spec["nodeName"],
        "start": stated(since, "PodScheduled True") or started,
    }
    ended = phase in ("Succeeded", "Failed")
    if ended or deleted:
        ends = [stated(each, "terminated.finishedAt") for each in containers]
        if not all(ends) or not ends:
            # When the pod was disrupted, else since when it is not ready.
            ends.append(
                stated(
                    since,
                    "DisruptionTarget True",
                    "Ready False",
                    "ContainersReady False",
                )
            )
        # All times are of one form, whose order is that of texts.
        row["end"] = max(ends) or stated(meta, "deletionTimestamp")
        if ended and not row["end"]:
            if containers and all("waiting" in each for each in containers):
                raise LeftOut(_NEVER_RAN)
            why = (
                SKIPPED + "has ended, but neither a container nor a condition says when"
            )
            row |= {"why": why, "detail": stated(meta, "name")[:80]}
    if log.settings.unit is not None:
        row["units"] = of_pod(spec)
    return row


def _event(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return which pod was scheduled or killed, when, and on which node (empty: it was killed)."""
    involved = entry.get("involvedObject") or entry.get("regarding") or {}
    reason = entry.get("reason")
    time = stated(entry, "lastTimestamp", "eventTime", "firstTimestamp")
    if involved.get("kind") != "Pod" or reason not in ("Scheduled", "Killing"):
        raise LeftOut("an event that says nothing of when a pod takes or leaves a node")
    assigned = _ASSIGNED.search(stated(entry, "message", "note"))
    if not time or (reason == "Scheduled" and not assigned):
        raise Unusable(
            "an event without a time, or that does not say to which node a pod was assigned"
        )
    return (
        stated(involved, "uid", "name"),
        time,
        assigned[1] if assigned and reason == "Scheduled" else "",
    )


GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_QUANTITY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([mk]?)", re.ASCII)
_THOUSANDTHS = {"m": 1, "": 1000, "k": 1_000_000}


def thousandths(value: object) -> int:
    """Return thousandths of a quantity of GPUs or cores, rounded up.

    Raises
    ------
    Unusable
        When it is none.

    Examples
    --------
    >>> thousandths("2"), thousandths("1500m"), thousandths("0.5"), thousandths(4)
    (2000, 1500, 500, 4000)
    """
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise Unusable(
            "a quantity of GPUs or cores is no number", ascii(str(value)[:40])
        )
    return ceil(round(float(match[1]) * _THOUSANDTHS[match[2]], 6))


def amounts(resources: Mapping[str, Any]) -> tuple[int, int]:
    """Return thousandths of GPUs and of cores in requests, limits, allocatable or the like.

    >>> amounts({"cpu": "500m", "nvidia.com/gpu": "2", "memory": "1Gi"})
    (2000, 500)
    """
    gpus = sum(thousandths(resources[key]) for key in GPUS if key in resources)
    return gpus, thousandths(resources.get("cpu", 0))


def of_pod(spec: Mapping[str, Any]) -> Stated:
    """Return GPUs and cores of a pod, rounded up: those of its containers together, or of one that runs before them.

    >>> of_pod({"containers": [{"resources": {"requests": {"cpu": "1500m"}, "limits": {"nvidia.com/gpu": 1}}}] * 2})
    Stated(gpus=2, cores=3, shares=None, each=False, alone=False, named=())
    """

    def asked(containers: Sequence[Mapping[str, Any]]) -> Whole:
        each = [container.get("resources") or {} for container in containers]
        wanted = [
            {**(of.get("limits") or {}), **(of.get("requests") or {})} for of in each
        ]
        return np.array([(0, 0), *map(amounts, wanted)])

    # One that runs before the others and restarts always goes on beside them.
    first = spec.get("initContainers") or []
    beside = [each for each in first if each.get("restartPolicy") == "Always"]
    before = [each for each in first if each not in beside]
    together = asked([*spec["containers"], *beside]).sum(axis=0)
    gpus, cores = -(-np.maximum(together, asked(before).max(axis=0)) // 1000)
    return Stated(int(gpus), int(cores))
