"""Combinations of options that nobody can have meant."""

from __future__ import annotations

from collections.abc import Iterator

from bft.milp import ProblemError
from bft.milp.backends.registry import able, listed
from bft.models.checks import cluster_kinds
from bft.replay.options.presets import CONSTANTS, POLLUX_READING
from bft.replay.options.table import OptionTable

# Formulations in which two jobs may share units.
_SHARING = ("items", "flow")


def conflicts(o: OptionTable) -> Iterator[str]:
    """Yield a sentence for each combination of options that nobody can have meant."""
    policy, kind = o.policy, o.policy_type.kind
    if o.jobs is not None and (o.job_bounds is not None or o.job_curves is not None):
        yield "give either --jobs or the pair -bdfn and -scfn"
    if (o.job_bounds is None) != (o.job_curves is None):
        stated, missing = (
            ("-bdfn", "-scfn") if o.job_curves is None else ("-scfn", "-bdfn")
        )
        yield f"{stated} needs {missing} with it: a published job set is a pair of tables"
    if o.arrival is not None and o.scale_arrivals != 1:
        yield "give either --arrival, new instants of submission, or --scale-arrivals, the same further apart"
    if o.cluster is not None and o.node_trace is not None:
        yield "give either -ndmap, a node trace, or --cluster, nodes that are always idle"
    if o.cluster is not None and o.published:
        yield "the published replayer knows no fixed clusters: leave out --cluster or --compat"
    if o.cluster is not None and o.rules.harms:
        yield "--return-time and --reserve are about nodes that host jobs take back; with --cluster there are none"
    if o.cluster is not None and o.jobs is None:
        yield "--cluster needs jobs: --jobs FILE, with --jobs-format where it is not the native one"
    if o.xi is None and kind.shares:
        yield f"--policy {policy} shares units and needs --xi FILE: what sharing costs"
    if o.xi is not None and o.published:
        yield "the published replayer knows no sharing: leave out --xi or --compat"
    if o.xi is not None and "interference" not in o.policy_type.settings:
        yield f"--policy {policy} shares nothing, so it takes no --xi"
    if o.published and (o.rules.max_jobs == 0 or policy not in ("milp", "equal-share")):
        yield "the published replayer knows --policy milp and equal-share, and -maxJ from 1 on"
    if o.preset is not None and (policy != "milp" or o.compat is not None):
        yield f"--preset {o.preset} is for --policy milp, without --xi and --compat"
    if o.workload is not None and o.published:
        yield "the published replayer knows no jobs that depend on others: leave out --workload or --compat"
    if o.kinds is not None or cluster_kinds(o.cluster):
        yield from _with_kinds(o)
    if o.compat == "lucid" and policy not in CONSTANTS["lucid"]:
        yield f"--compat lucid is for --policy {', '.join(CONSTANTS['lucid'])}, not {policy}"
    if o.compat in POLLUX_READING and o.jobs_format != "pollux":
        yield f"--compat {o.compat} is for --jobs-format pollux, not {o.jobs_format}"
    if o.solves:
        yield from _with_the_solver(o)
    yield from o.ineffective(refused=True)


def _with_kinds(o: OptionTable) -> Iterator[str]:
    """Yield what does not go with several kinds of units."""
    kinds = "--kinds" if o.kinds is not None else "a --cluster of kinds"
    if o.kinds is not None and o.cluster is not None:
        yield "--kinds is for a node trace; a cluster names the kinds itself: --cluster 6x4:t4+2x8:a100"
    if not o.policy_type.kind.kinds:
        yield f"--policy {o.policy} knows no kinds of units; with {kinds} choose one that does, such as milp or sia"
    for stated, flag in (
        (o.compat in ("reference", "lucid"), f"--compat {o.compat}"),
        (o.xi is not None, "--xi"),
        (o.workload is not None, "--workload"),
        (o.curves != "known", f"--curves {o.curves}"),
        (o.rules.admission == "deadline", "--admission deadline"),
        (
            o.solver.formulation not in ("auto", "modes"),
            f"--formulation {o.solver.formulation}",
        ),
        (o.oversized == "cap", "--oversized cap"),
        (o.cap_units is not None, "--cap-units"),
        (o.rules.harms, "--return-time and --reserve"),
        (
            o.node_trace is None and o.cluster is None,
            "the bundled trace: -ndmap FILE names another",
        ),
    ):
        if stated:
            yield f"{kinds} does not go with {flag}"


def _with_the_solver(o: OptionTable) -> Iterator[str]:
    """Yield what no solver can do, or not the one that is asked for."""
    shares, solver = o.xi is not None, o.solver
    formulation = solver.formulation
    if shares and formulation not in ("auto", *_SHARING):
        yield f"--formulation {formulation} knows no sharing; with --xi choose {' or '.join(_SHARING)}"
    if formulation == "auto":
        formulation = (
            "node" if solver.strict_reference else "items" if shares else "modes"
        )
    if solver.backend == "auto":
        return
    try:
        formulations = listed(solver.backend).formulations
    except ProblemError as error:  # another package's, which is broken
        yield str(error)
    else:
        if formulation not in formulations:
            others = ", ".join(able(formulation))
            yield f"--backend {solver.backend} cannot solve formulation {formulation}; choose one of {others}"
