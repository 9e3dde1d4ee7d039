"""Kubernetes: pods and their events, as kubectl prints them with -o json, and the units that pods ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bft.replay.logs.records import (
    SKIPPED,
    Block,
    LeftOut,
    Log,
    Row,
    Unusable,
    each_object,
)
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
        deleted = entry.get("type") == "DELETED" and "object" in entry
        if "object" in entry and "type" in entry:
            entry = entry["object"]
        match entry.get("kind"):
            case "Pod":
                yield _pod(log, entry, deleted=deleted)
            case "Event":
                _event(entry, line, scheduled, killed)
                yield {"kind": "nothing"}
            case "Workload":
                raise LeftOut("a Workload of Kueue, which names no node: its pods do")
            case kind:
                raise LeftOut("an object that is no pod", str(kind)[:40])

    expected = "pod or event: expected kind, metadata, spec and status"
    yield from each_object(
        log, row, keys=("items",), expected=expected, command=COMMAND
    )
    alone = None if log.settings.unit is None else Stated(alone=True)
    for pod, began in scheduled.items():
        end = killed.pop(pod, "")
        yield began | {"end": end if end >= began["start"] else "", "units": alone}
    _note_events(log, len(scheduled), len(killed))


def _note_events(log: Log, pods: int, killed: int) -> None:
    """Tell what events do not say of the pods that they name."""
    if pods and log.settings.unit is not None:
        why = "events do not say what a pod has of its node: it counts as on all units"
        log.note(why, 0, f"{pods} pods", loud=True)
    if pods:
        why = "events do not say when a pod ended by itself: give the pods (kubectl get pods) instead, if you can"
        log.note(why, 0, f"{pods} pods", loud=True)
    if killed:
        why = "a pod was killed, and the event that it was scheduled is not in the file"
        log.note(why, 0, f"{killed} of them")


def _pod(log: Log, entry: dict[str, Any], *, deleted: bool) -> Row:
    """Return the row of one pod."""
    meta, spec, status = entry["metadata"], entry["spec"], entry.get("status") or {}
    if any(
        owner.get("kind") in _OF_NODES for owner in meta.get("ownerReferences") or ()
    ):
        raise LeftOut("a pod that is on every node (DaemonSet, or of the node itself)")
    _refuse_of_cluster(meta)
    row: dict[str, Any] = {
        "id": str(meta.get("uid") or meta["name"]),
        "count": 1,
        "known": str(meta.get("creationTimestamp") or ""),
        "limit": str(spec.get("activeDeadlineSeconds") or ""),
    }
    if not spec.get("nodeName"):
        return row
    ended = status.get("phase") in ("Succeeded", "Failed")
    reason = f"{status.get('reason')}: {status.get('message')}"
    began = status.get("containerStatuses") or (
        status.get("startTime") and not _REJECTED.match(reason)
    )
    if status.get("phase") == "Failed" and not began:
        raise LeftOut(_NEVER_RAN)
    since = {(each.get("type"), each.get("status")): each.get("lastTransitionTime")
             for each in status.get("conditions") or ()}  # fmt: skip
    row["hosts"] = str(spec["nodeName"])
    row["start"] = str(
        since.get(("PodScheduled", "True")) or status.get("startTime") or ""
    )
    if ended or deleted:
        row["end"] = _end(status, since) or str(meta.get("deletionTimestamp") or "")
    if ended and not row["end"]:
        containers = status.get("containerStatuses")
        if containers and all(
            "waiting" in (each.get("state") or {}) for each in containers
        ):
            raise LeftOut(_NEVER_RAN)
        why = SKIPPED + "has ended, but neither a container nor a condition says when"
        row |= {"why": why, "detail": str(meta.get("name"))[:80]}
    if log.settings.unit is not None:
        row["units"] = of_pod(spec)
    return row


def _refuse_of_cluster(meta: Mapping[str, Any]) -> None:
    if meta.get("namespace") in _OF_CLUSTER:
        raise LeftOut("a pod of the cluster itself (namespace kube-system)")


def _end(status: Mapping[str, Any], since: Mapping[tuple[Any, Any], Any]) -> str:
    """Return when the last container of a pod ended.

    Where one does not say, conditions do: when the pod was disrupted, else since when it is not ready. All times are of
    one form, whose order is that of texts.
    """
    containers = status.get("containerStatuses") or ()
    ends = [
        ((each.get("state") or {}).get("terminated") or {}).get("finishedAt")
        for each in containers
    ]
    if not ends or not all(ends):
        ready = since.get(("Ready", "False")) or since.get(("ContainersReady", "False"))
        ends.append(since.get(("DisruptionTarget", "True")) or ready)
    return max((str(end) for end in ends if end), default="")


def _event(
    entry: dict[str, Any],
    line: int,
    scheduled: dict[str, dict[str, Any]],
    killed: dict[str, str],
) -> None:
    """Take an event: a pod was scheduled, or killed."""
    involved = entry.get("involvedObject") or entry.get("regarding") or {}
    if involved.get("kind") != "Pod" or entry.get("reason") not in (
        "Scheduled",
        "Killing",
    ):
        raise LeftOut("an event that says nothing of when a pod takes or leaves a node")
    _refuse_of_cluster(involved)
    time = str(
        entry.get("lastTimestamp")
        or entry.get("eventTime")
        or entry.get("firstTimestamp")
        or ""
    )
    if not time:
        raise Unusable("an event without a time")
    pod = str(involved.get("uid") or involved["name"])
    if entry["reason"] == "Killing":
        killed[pod] = max(time, killed.get(pod, ""))
        return
    assigned = _ASSIGNED.search(str(entry.get("message") or entry.get("note") or ""))
    if assigned is None:
        raise Unusable("an event that does not say to which node a pod was assigned")
    scheduled[pod] = {
        "line": line,
        "again": True,
        "id": pod,
        "hosts": assigned[1],
        "count": 1,
        "start": time,
    }


GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_QUANTITY = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?([mk]?)", re.ASCII)


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
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value))
    if match is None:
        raise Unusable(
            "a quantity of GPUs or cores is no number", ascii(str(value)[:40])
        )
    whole, fraction, suffix = match.groups()
    nano = int(whole) * 10**9 + int((fraction or "").ljust(9, "0"))
    return -(-nano // {"m": 10**9, "": 10**6, "k": 10**3}[suffix])


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
    gpus, cores = (
        -(-max(column) // 1000) for column in zip(together, *asked(before), strict=True)
    )
    return Stated(gpus, cores)
