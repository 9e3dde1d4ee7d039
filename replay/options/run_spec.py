"""The resolved run: what the options mean for their policy, looked up once and then passed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bft.models import InputError, Objective
from bft.models.option_fields import Condition, OptionField
from bft.replay.engine.policy_api import Kind, Policy
from bft.replay.engine.sharing_rules import Interference
from bft.replay.options.table import OptionTable
from bft.replay.policies.registry import PolicyType, policy_type

_PUBLISHED = Condition(lambda run, _: False, "with --compat reference")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run, resolved from its options: its policy's type and settings, and what has no effect and why.

    Parameters
    ----------
    options
        The options, with their defaults.
    policy
        The type of the policy that they name.
    settings
        What the run lets its policy know: fields of these names are filled from it.
    """

    options: OptionTable
    policy: PolicyType
    settings: dict[str, Any]

    @classmethod
    def of(cls, options: OptionTable) -> RunSpec:
        """Resolve options.

        Raises
        ------
        InputError
            When their policy cannot be loaded.

        Examples
        --------
        >>> from bft.replay import Options
        >>> run = RunSpec.of(Options(policy="fifo", tfwd_s=30))
        >>> run.policy.kind.rigid, list(run.ineffective())
        (True, ['-Tfwd has no effect with --policy fifo'])
        """
        settings = {
            **options.for_policy(),
            "objective": Objective.of(options.objective),
        }
        return cls(options, policy_type(options.policy), settings)

    @property
    def published(self) -> bool:
        """Whether the run is that of the published replayer, quirk by quirk."""
        return self.options.compat == "reference"

    @property
    def solves(self) -> bool:
        """Whether the policy asks a solver."""
        return "solver" in self.policy.settings

    @property
    def setting_names(self) -> tuple[str, ...]:
        """The names of the policy's fields that the run fills, so that --set cannot."""
        return (*self.settings, "interference")

    def make_policy(self, interference: Interference | None = None) -> Policy:
        """Make the policy, a new one for each replay."""
        settings = {**self.settings, "interference": interference}
        return self.policy.make(settings, self.options.constants)

    def check_constants(self) -> None:
        """Refuse a constant that the policy does not have, or a value that does not fit it."""
        self.policy.parse(self.options.constants, self.setting_names)

    def ineffective(self) -> Iterator[str]:
        """Yield a sentence for each option that is stated and changes nothing, in the order of the options."""
        for each, condition in self._unmet():
            yield self._sentence(each, condition)

    def refused(self) -> Iterator[str]:
        """Yield a sentence for each option without effect that nobody can have meant."""
        for each, condition in self._unmet():
            if condition.refused:
                yield self._sentence(each, condition)

    def _unmet(self) -> Iterator[tuple[OptionField, Condition]]:
        known = self.options.described()
        for name in self.options.changed():
            each = known[name]
            conditions = (
                each.conditions
                if each.published or not self.published
                else (_PUBLISHED,)
            )
            for condition in conditions:
                if not condition.holds(self, each.setting):
                    yield each, condition
                    break

    def _sentence(self, each: OptionField, condition: Condition) -> str:
        return f"{each.flag} has no effect {condition.otherwise.format_map(self.options.flat())}"

    def notes(self) -> list[str]:
        """Check that the policy can be made and its backend used here; return notes on what changes the result.

        Raises
        ------
        InputError
            When the policy does not accept its constants, or the backend cannot be used on this machine.
        """
        kind = Kind.of(self.make_policy())
        self._check_backend()
        self._check_expectations(kind)
        return [
            *self.ineffective(),
            *self._notes_on_answers(),
            *self._notes_on_knowledge(kind),
        ]

    def _notes_on_answers(self) -> Iterator[str]:
        solver = self.options.solver
        if solver.verify and self.policy.name == "milp-sharing":
            yield (
                "--verify checks only decisions in which nobody may share: the exact dynamic programme cannot do others"
            )
        if (
            self.solves
            and solver.keeps_own_answers
            and solver.ties == "canonical"
            and solver.backend != "exact"
        ):
            own = "--gap" if solver.gap > 0 else "--strict-reference"
            yield f"--ties canonical has no effect with {own}: the solver's own answers count, and differ by backend"

    def _notes_on_knowledge(self, kind: Kind) -> Iterator[str]:
        options, policy = self.options, self.policy
        if kind.clairvoyant and not policy.kind.clairvoyant:
            yield f"--objective {options.objective} sees each job's true remaining work, which no scheduler knows"
        if (
            options.walltimes is not None
            and not kind.expects
            and options.rules.return_time_s is None
        ):
            yield f"--walltimes has no effect with --policy {policy.name}, which does not look at them"
        if options.walltimes is None and kind.expects:
            yield (
                f"--policy {policy.name} looks at how long nodes may stay idle: without --walltimes nothing is known"
            )

    def _check_expectations(self, kind: Kind) -> None:
        if (
            kind.expects
            and self.options.walltimes is not None
            and self.options.rules.takes_free_first
        ):
            raise InputError(
                f"--policy {self.policy.name} expects nodes of the log to stay idle, and with --return-time or "
                "--reserve other nodes fill their places",
                hint="--no-free-first lets host jobs take the nodes that the log names",
            )

    def _check_backend(self) -> None:
        # Not checked when options are made: a run may be planned on another machine.
        from bft.milp.backends.registry import backend_names, describe

        name = self.options.solver.backend
        if name == "auto" or not self.solves:
            return
        state = describe(name)
        if not state.available:
            usable = ", ".join(
                other for other in backend_names() if describe(other).available
            )
            message = f"--backend {name} is not available here ({state.licence}); there are {usable}"
            raise InputError(message, hint=state.how_to_get)
