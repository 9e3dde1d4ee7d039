"""A policy in a package of its own: jobs that can do with little get their fill first."""

from dataclasses import dataclass, field

from bft.replay import Decision, State


@dataclass
class SmallestFirst:
    """Serve jobs by Jmin, smallest first, each with as much as it can use up to a cap."""

    most: int = field(
        default=16,
        metadata={"help": "units that no job exceeds, unless its Jmin is more"},
    )
    name: str = field(default="smallest-first", init=False)

    def decide(self, state: State) -> Decision:
        """Give each job its fill, as long as there is something left."""
        counts = [0] * len(state.jobs)
        left = state.idle
        for position in sorted(
            range(len(state.jobs)), key=lambda p: (state.jobs[p].job.jmin, p)
        ):
            job = state.jobs[position].job
            counts[position] = job.at_most(min(max(self.most, job.jmin), left))
            left -= counts[position]
        return Decision(tuple(counts))
