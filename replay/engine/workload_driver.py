"""The driver of a workload that submits and cancels jobs on the way: events and orders (docs/semantics.md)."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Literal

from bft.models import Event, InputError, Job, JobTable, Orders, Workload
from bft.models.tolerances import FINISHED
from bft.replay.engine.running import Running
from bft.replay.engine.snapshot import restore_snapshot, restored, snapshot


class WorkloadError(InputError):
    """A workload ordered what cannot be done, or failed."""


class WorkloadDriver:
    """The link to a workload: it tells the workload what happens to its jobs, and checks the orders.

    Parameters
    ----------
    workload
        The workload that is told of events.
    jobs
        Those that are there from the start.
    """

    def __init__(self, workload: Workload, jobs: JobTable) -> None:
        self.workload = workload
        self.cancelled: list[int] = []
        self._jobs = {job.name: job for job in jobs}
        self._positions = {job.name: position for position, job in enumerate(jobs)}
        self._initial = len(jobs)  # jobs that are there from the start
        self._happened: list[
            tuple[Literal["start", "rung", "finish"], Running, float, int]
        ] = []

    def rungs(self, job: Job) -> list[float]:
        """Samples at which the workload wants to hear of a job."""
        answer: Any = self._call("rungs", job)
        its_rungs = f"its rungs of job {job.name!r}"
        try:
            rungs = [float(rung) for rung in answer]
        except (TypeError, ValueError):
            raise self._refusal(
                f"{its_rungs} must be numbers, not {answer!r:.100}"
            ) from None
        steps = pairwise([0.0, *rungs, job.pmax])
        if not all(low < high for low, high in steps):
            raise self._refusal(
                f"{its_rungs} must ascend between 0 and {job.pmax:g} samples, not {rungs!r:.100}"
            )
        return rungs

    def started(self, running: Running) -> None:
        """A job has got units for the first time."""
        self._happened.append(("start", running, running.progress, 0))

    def finished(self, running: Running) -> None:
        """A job has done all its work."""
        self._happened.append(("finish", running, running.job.pmax, 0))

    def progressed(self, running: Running) -> None:
        """A settled job may have reached rungs; at an instant, one that lacks 10⁻¹² of a rung has reached it."""
        while running.rungs and running.progress >= running.rungs[0] * (1 - FINISHED):
            running.passed += 1
            self._happened.append(
                ("rung", running, running.rungs.pop(0), running.passed)
            )

    def deliver(self, now: int, earliest: int) -> list[tuple[Running, float, Orders]]:
        """Tell the workload each event, and return the job of each, its progress and the orders.

        `earliest`: from which instant on (UTC ns) jobs may be submitted; those that should have come before come then.
        """
        happened, self._happened = self._happened, []
        answers = []
        for what, running, progress, rung in happened:
            if (
                running.index in self.cancelled
            ):  # by what it ordered at this very instant
                continue
            event = Event(
                what, running.job, now, progress, rung, MappingProxyType(self._jobs)
            )
            orders = self._ordered(event, earliest)
            answers.append((running, progress, orders))
        return answers

    def _ordered(self, event: Event, earliest: int) -> Orders:
        """Return the workload's orders at an event; jobs that it submits come at `earliest` or later."""
        orders: object = self._call("on", event)
        if not isinstance(orders, Orders):
            raise self._refusal(f"it answered {orders!r:.100}; expected Orders")
        submit = []
        for job in orders.submit:
            submit_ns = max(job.tsub_ns, earliest)
            submit.append(job.submitted_again(submit_ns))
        for job in submit:
            self._join(job)
        for name in orders.cancel:
            if name not in self._positions:
                raise self._refusal(f"it cancelled {name!r}, which is no job")
            self.cancelled.append(self._positions[name])
        return replace(orders, submit=submit)

    def _join(self, job: Job) -> None:
        if job.name in self._positions:
            raise self._refusal(f"it submitted a second job {job.name!r}")
        if job.profile is not None:
            raise self._refusal(
                f"it submitted job {job.name!r} with a profile; only curves can be kept"
            )
        self._positions[job.name] = len(self._positions)
        self._jobs[job.name] = job

    def _call(self, method: str, about: object) -> object:
        try:
            return getattr(self.workload, method)(about)
        except Exception as error:
            text = " ".join(str(error).split())
            raise self._refusal(
                f"{method}() raised {type(error).__name__}: {text}"
            ) from error

    def _refusal(self, reason: str) -> WorkloadError:
        return WorkloadError(f"workload {self.workload.name!r} was stopped: {reason}")

    def state(self) -> dict[str, Any]:
        """Return the workload's own state, the jobs to be cancelled, and those that it has submitted."""
        try:
            memory = snapshot(self.workload, inner=True)
        except TypeError as error:
            raise self._refusal(f"what it remembers cannot be kept: {error}") from error
        later = islice(self._jobs.values(), self._initial, None)
        submitted = [snapshot(job) for job in later]
        return {"memory": memory, "cancelled": self.cancelled, "jobs": submitted}

    def restore(self, state: Mapping[str, Any]) -> list[Job]:
        """Restore `state`, and return the jobs that had been submitted."""
        restore_snapshot(self.workload, state["memory"], inner=True)
        self.cancelled[:] = state["cancelled"]
        jobs: list[Job] = restored(list[Job], state["jobs"])
        for job in jobs:
            self._join(job)
        return jobs
