"""GPU utilisation and memory while a job runs, as the vendor's tools report them."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from bft.models.errors import InputError

MIB: Final = 2**20
# Seconds that a tool may take to answer; drivers that load take some.
ANSWER_S: Final = 30.0
# The query for nvidia-smi, in this order (its manual: --query-gpu, --help-query-gpu).
_NVIDIA_QUERY: Final = "index,utilization.gpu,utilization.memory,memory.used"
# Columns of a state, and the keys of `rocm-smi --json` for each: versions differ, the first one present counts.
_ROCM_KEYS: Final = {
    "gpu_util": ("GPU use (%)",),
    "gmem_util": ("GPU Memory Read/Write Activity (%)", "GPU memory use (%)"),
    "memory_mib": ("VRAM Total Used Memory (B)",),
}
_CARD: Final = re.compile(r"card(\d+)", re.ASCII)

Reader = Callable[[], pd.DataFrame]
"""Reads the state of all devices: a row each, its index as the vendor's tool numbers it.

Columns: gpu_util and gmem_util, percent of the time in which some kernel ran, and in which its memory was read or
written, NaN where the device does not report it; memory_mib, memory in use on the device by any process.
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """A job's use of its devices, by the columns of a profile (docs/models.md).

    Parameters
    ----------
    gpu_util, gmem_util
        Mean percent over devices and samples.
    gmem
        Mean memory a device in MiB, above what was in use before the job.
    memory_gib
        The most memory of a device in GiB, above the same.
    samples
        How often the devices were read.
    """

    gpu_util: float
    gmem_util: float
    gmem: float
    memory_gib: float
    samples: int


def usage_of(before: pd.DataFrame, samples: Sequence[pd.DataFrame]) -> Usage:
    """Sum up samples of devices (see `Reader`); those are left out that were not there before the job.

    Examples
    --------
    >>> columns = ["gpu_util", "gmem_util", "memory_mib"]
    >>> idle = pd.DataFrame([[0.0, 0.0, 500.0]], columns=columns)
    >>> busy = [pd.DataFrame([row], columns=columns) for row in ([80.0, 30.0, 2548.0], [90.0, 40.0, 1524.0])]
    >>> usage_of(idle, busy)
    Usage(gpu_util=85.0, gmem_util=35.0, gmem=1536.0, memory_gib=2.0, samples=2)
    """
    seen = pd.concat([before[:0], *samples])
    seen = seen[seen.index.isin(before.index)]
    if seen.empty:
        raise InputError(
            "no GPU was read while the job ran alone; let it run longer, or sample more often"
        )
    base = before["memory_mib"][seen.index].to_numpy()
    memory = np.maximum(seen["memory_mib"].to_numpy() - base, 0.0)
    return Usage(
        gpu_util=float(seen["gpu_util"].mean(skipna=False)),
        gmem_util=float(seen["gmem_util"].mean(skipna=False)),
        gmem=float(memory.mean()),
        memory_gib=float(memory.max()) / 1024,
        samples=len(samples),
    )


@dataclass(frozen=True, slots=True)
class Gauge:
    """Reads some devices, again and again.

    Parameters
    ----------
    read
        Of which tool.
    devices
        Indices of the devices to read; empty: all.
    every_s
        Seconds between two samples; nvidia-smi itself averages over a sixth of a second to a second.
    """

    read: Reader
    devices: tuple[int, ...] = ()
    every_s: float = 1.0

    def once(self) -> pd.DataFrame:
        """The state of the devices now.

        Raises
        ------
        InputError
            When one of them is not there, or the tool fails.
        """
        states = self.read()
        missing = sorted(set(self.devices) - set(states.index))
        if missing:
            there = ", ".join(map(str, states.index)) or "none"
            raise InputError(f"no GPU {missing[0]}; there are {there}")
        return states.loc[list(self.devices)] if self.devices else states

    @contextmanager
    def watching(self) -> Iterator[list[pd.DataFrame]]:
        """Sample in the background while the block runs; yields the list that grows. A failure is raised at the end."""
        samples: list[pd.DataFrame] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                samples.append(self.once())
                done.wait(self.every_s)

        with ThreadPoolExecutor(1) as background:
            watching = background.submit(watch)
            try:
                yield samples
            finally:
                done.set()
        watching.result()


def nvidia_smi() -> pd.DataFrame:
    """Devices by `nvidia-smi`: one line a device, fields with commas between, `[N/A]` where it does not report one.

    Raises
    ------
    InputError
        When it cannot be run, fails, or gives an unexpected answer.
    """
    text = _answer(
        ["nvidia-smi", f"--query-gpu={_NVIDIA_QUERY}", "--format=csv,noheader,nounits"]
    )
    table = pd.read_csv(io.StringIO(text), names=["index", *_ROCM_KEYS])
    numbers: pd.DataFrame = table.apply(pd.to_numeric, errors="coerce")
    if numbers[["index", "memory_mib"]].isna().any(axis=None):
        raise InputError(
            f"nvidia-smi: expected index, two utilisations and memory in use, not {text.strip()[:80]!r}"
        )
    return numbers.set_index("index")


def rocm_smi() -> pd.DataFrame:
    """Devices by `rocm-smi --json`: an object with one entry for each card.

    Raises
    ------
    InputError
        When it cannot be run, fails, or gives an unexpected answer.
    """
    text = _answer(
        ["rocm-smi", "--showuse", "--showmemuse", "--showmeminfo", "vram", "--json"]
    )
    try:
        # Some versions warn on standard output first.
        cards = json.loads(text[text.index("{") :])
    except ValueError:
        raise InputError(
            f"rocm-smi: expected a JSON object, not {text.strip()[:80]!r}"
        ) from None
    states = {
        int(number[1]): [
            next((card[key] for key in keys if key in card), None)
            for keys in _ROCM_KEYS.values()
        ]
        for name, card in cards.items()
        if (number := _CARD.fullmatch(name))
    }
    cells = pd.DataFrame.from_dict(states, "index", columns=list(_ROCM_KEYS))
    table: pd.DataFrame = cells.apply(pd.to_numeric, errors="coerce")
    if table["memory_mib"].isna().any():
        raise InputError(f"rocm-smi: a card has no {_ROCM_KEYS['memory_mib'][0]!r}")
    table["memory_mib"] /= MIB
    return table


# Readers by name, in the order in which they are tried.
TOOLS: dict[str, Reader] = {
    "nvidia-smi": nvidia_smi,
    "rocm-smi": rocm_smi,
}


def find_tool(name: str = "auto") -> Reader | None:
    """Return the reader of this machine's devices; None for `none`, and for `auto` where no tool works.

    Raises
    ------
    InputError
        When the requested tool cannot be used.
    """
    if name in TOOLS:
        TOOLS[name]()
        return TOOLS[name]
    for tool, read in TOOLS.items():
        if name == "auto" and shutil.which(tool):
            with suppress(InputError):  # another one may do
                if len(read()):
                    return read
    return None


def _answer(command: list[str]) -> str:
    """Standard output of a command that ends well."""
    try:
        done = subprocess.run(  # noqa: S603 - a tool by its name on the PATH
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no answer within {ANSWER_S:g} s"
        raise InputError(f"{command[0]} cannot be used: {reason}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise InputError(
            f"{command[0]} failed with exit code {done.returncode}: {''.join(last)}"
        )
    return done.stdout
