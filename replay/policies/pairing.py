"""Whether a job should join a running one on its units, or wait until that job has finished (IWQoS'24).

Luo et al., "Scheduling Deep Learning Jobs in Multi-Tenant GPU Clusters via Wise Resource Sharing", IWQoS 2024. Two jobs
are on the same units, each with the seconds that it would still need alone. While they share, an iteration takes xi >=
1 times as long; after one has finished, as long as alone. The criterion is the mean of both completion times, from now
on.
"""

from __future__ import annotations


def together_s(
    newcomer_s: float, running_s: float, xi_newcomer: float, xi_running: float
) -> float:
    """Mean completion time of two jobs that share from now on, seconds (T_con).

    The job that ends first is slowed by its xi all the way. If that is the running job, the newcomer has by then spent
    xi_running * running_s and done 1 / xi_newcomer of that; it does the rest alone:

        T_newcomer = newcomer_s + xi_running * running_s * (1 - 1 / xi_newcomer)

    If the newcomer ends first, the roles are exchanged.

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


def pays(
    newcomer_s: float, running_s: float, xi_newcomer: float, xi_running: float
) -> bool:
    """Whether sharing from now on beats one after the other: T_con < T_seq, without cancellation errors.

    One after the other, the mean completion time is T_seq = running_s + newcomer_s / 2.

    If the running job ends first, lengths cancel out. Sharing that starts later is never better than the better of the
    two, because the mean is concave in the delay. So a job that does not join now need not be considered again.
    """
    if xi_newcomer * newcomer_s >= xi_running * running_s:
        return xi_running * (1 - 1 / (2 * xi_newcomer)) < 1
    return (1 - 1 / (2 * xi_running)) * xi_newcomer * newcomer_s < (
        newcomer_s + running_s
    ) / 2


def speed(xi_newcomer: float, xi_running: float) -> float:
    """Work of two jobs together in a second, in seconds of their work alone: above 1 sharing increases throughput."""
    return 1 / xi_newcomer + 1 / xi_running
