"""Workers on other machines: Dask, batch systems through Dask, Parsl. Imported when one is asked for."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bft.models import InputError
from bft.models.extras import extra
from bft.replay.studies.executors import Submit, Workers

# dask-jobqueue's class for each batch system.
QUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster"}
# Resources of a batch job by default: a replay uses one core.
RESOURCES: dict[str, Any] = {"cores": 1, "processes": 1, "memory": "4GB"}


def dask(address: str) -> Workers:
    """The workers of a running Dask cluster, by its scheduler's address.

    Raises
    ------
    InputError
        When Dask is not installed, or no scheduler answers at the address.
    """
    distributed = extra("distributed", "dask")

    @contextmanager
    def start() -> Iterator[Submit]:
        try:
            client = distributed.Client(address)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--dask {address}: no scheduler answers: {error}"
            ) from error
        with client:
            yield client.get_executor(pure=False).submit

    return Workers(start, None, f"the Dask cluster {address}")


def jobqueue(system: str, jobs: int, resources: Mapping[str, str]) -> Workers:
    """Workers in `jobs` jobs of a batch system, which dask-jobqueue submits and ends.

    `resources` are its options: queue, account, walltime, memory and so on.

    Raises
    ------
    InputError
        When dask-jobqueue is not installed, or does not accept an option.
    """
    distributed, queues = extra("distributed", "dask"), extra("dask_jobqueue", "dask")
    asked = {
        **RESOURCES,
        **{
            name: int(text) if text.isdigit() else text
            for name, text in resources.items()
        },
    }

    @contextmanager
    def start() -> Iterator[Submit]:
        try:
            cluster = getattr(queues, QUEUES[system])(**asked)
        except (TypeError, ValueError) as error:
            raise InputError(f"--jobqueue {system}: {error}") from error
        with cluster, distributed.Client(cluster) as client:
            cluster.scale(jobs=jobs)
            yield client.get_executor(pure=False).submit

    return Workers(start, None, f"{jobs} jobs of {system}")


def parsl(path: str) -> Workers:
    """The workers of a Parsl configuration: a Python file that is executed and defines `config`.

    Raises
    ------
    InputError
        When Parsl is not installed, or the file defines no configuration.
    """
    pools, configs = extra("parsl.concurrent", "parsl"), extra("parsl.config", "parsl")
    try:
        config = runpy.run_path(path).get("config")
    except OSError as error:
        raise InputError((error.strerror or str(error)).lower(), file=path) from error
    if not isinstance(config, configs.Config):
        raise InputError(
            "expected `config = parsl.config.Config(...)` in it", file=path
        )

    @contextmanager
    def start() -> Iterator[Submit]:
        with pools.ParslPoolExecutor(config) as pool:
            yield pool.submit

    return Workers(start, None, f"Parsl as {path} says")
