"""Whether a job should join a running one on its units, or wait until that has finished (IWQoS'24).

Luo et al., "Scheduling Deep Learning Jobs in Multi-Tenant GPU Clusters via Wise Resource Sharing", IWQoS 2024. Two jobs
on the same units, with as many seconds left as they would need alone; one iteration takes xi >= 1 times as long while
they share, as long as alone once the other has finished. What counts is the mean of both completion times, from now.
"""

from __future__ import annotations


def together_s(newcomer_s: float, running_s: float, xi_newcomer: float, xi_running: float) -> float:
    """Mean completion time of two jobs that share from now on, seconds (T_con).

    Who ends first takes xi times as long all the way. With the running job first, the newcomer has by then spent
    xi_running * running_s and done the 1 / xi_newcomer-th part of that; the rest it does alone:

        T_newcomer = newcomer_s + xi_running * running_s * (1 - 1 / xi_newcomer)

    and mirrored when the newcomer ends first.

    Parameters
    ----------
    newcomer_s, running_s
        Seconds that each still needs alone.
    xi_newcomer, xi_running
        How many times longer an iteration of each takes beside the other, >= 1.
    """
    if xi_newcomer * newcomer_s >= xi_running * running_s:
        return newcomer_s / 2 + (1 - 1 / (2 * xi_newcomer)) * xi_running * running_s
    return running_s / 2 + (1 - 1 / (2 * xi_running)) * xi_newcomer * newcomer_s


def pays(newcomer_s: float, running_s: float, xi_newcomer: float, xi_running: float) -> bool:
    """Whether sharing from now on is better than one after the other: T_con < T_seq, free of cancellation.

    One after the other, the mean completion time is T_seq = running_s + newcomer_s / 2.

    Where the running job ends first, lengths cancel out. To start sharing later is never better than the better of the
    two: as a function of the delay the mean is concave. So who does not join now need not be asked again.
    """
    if xi_newcomer * newcomer_s >= xi_running * running_s:
        return xi_running * (1 - 1 / (2 * xi_newcomer)) < 1
    return (1 - 1 / (2 * xi_running)) * xi_newcomer * newcomer_s < (newcomer_s + running_s) / 2


def speed(xi_newcomer: float, xi_running: float) -> float:
    """Work that two jobs do together in a second, in seconds of their work alone: above 1 sharing does more of it."""
    return 1 / xi_newcomer + 1 / xi_running
