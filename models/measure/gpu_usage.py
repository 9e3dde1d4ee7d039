"""GPU utilisation and memory while a job runs, as the vendor's tools report them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bft.models.errors import InputError

MIB: Final = 2**20
# Seconds that a tool may take to answer; drivers that load take some.
ANSWER_S: Final = 30.0
# The query for nvidia-smi, in this order (its manual: --query-gpu, --help-query-gpu).
_NVIDIA_QUERY: Final = "index,utilization.gpu,utilization.memory,memory.used"
# Keys of `rocm-smi --json`; names differ between versions, and the first one present counts.
_ROCM_UTIL: Final = ("GPU use (%)",)
_ROCM_MEMORY_UTIL: Final = ("GPU Memory Read/Write Activity (%)", "GPU memory use (%)")
_ROCM_USED: Final = ("VRAM Total Used Memory (B)",)
_CARD: Final = re.compile(r"card(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """State of one device at one instant.

    Parameters
    ----------
    index
        As the vendor's tool numbers it.
    gpu_util, gmem_util
        Percent of the time in which some kernel ran, and in which its memory was read or written; NaN where the device
        does not report it.
    memory_mib
        Memory in use on the device, by any process.
    """

    index: int
    gpu_util: float
    gmem_util: float
    memory_mib: float


Reader = Callable[[], list[DeviceState]]
"""Reads the state of all devices."""


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


def usage_of(
    before: Sequence[DeviceState], samples: Sequence[Sequence[DeviceState]]
) -> Usage:
    """Sum up samples of devices; those are left out that were not there before the job.

    Examples
    --------
    >>> idle = [DeviceState(0, 0.0, 0.0, 500.0)]
    >>> usage_of(idle, [[DeviceState(0, 80.0, 30.0, 2548.0)], [DeviceState(0, 90.0, 40.0, 1524.0)]])
    Usage(gpu_util=85.0, gmem_util=35.0, gmem=1536.0, memory_gib=2.0, samples=2)
    """
    base = {state.index: state.memory_mib for state in before}
    states = [state for sample in samples for state in sample if state.index in base]
    if not states:
        raise InputError(
            "no GPU was read while the job ran alone; let it run longer, or sample more often"
        )
    memory = np.maximum([state.memory_mib - base[state.index] for state in states], 0.0)
    return Usage(
        gpu_util=float(np.mean([state.gpu_util for state in states])),
        gmem_util=float(np.mean([state.gmem_util for state in states])),
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

    def once(self) -> list[DeviceState]:
        """The state of the devices now.

        Raises
        ------
        InputError
            When one of them is not there, or the tool fails.
        """
        states = self.read()
        missing = sorted(set(self.devices) - {state.index for state in states})
        if missing:
            there = ", ".join(str(state.index) for state in states) or "none"
            raise InputError(f"no GPU {missing[0]}; there are {there}")
        return [
            state for state in states if not self.devices or state.index in self.devices
        ]

    @contextmanager
    def watching(self) -> Iterator[list[list[DeviceState]]]:
        """Sample in the background while the block runs; yields the list that grows. A failure is raised at the end."""
        samples: list[list[DeviceState]] = []
        failed: list[InputError] = []
        done = threading.Event()

        def watch() -> None:
            try:
                while not done.is_set():
                    samples.append(self.once())
                    done.wait(self.every_s)
            except InputError as error:
                failed.append(error)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            done.set()
            thread.join()
        if failed:
            raise failed[0]


def nvidia_smi() -> list[DeviceState]:
    """Devices by `nvidia-smi`: one line a device, fields with commas between, `[N/A]` where it does not report one.

    Raises
    ------
    InputError
        When it cannot be run, fails, or gives an unexpected answer.
    """
    lines = _answer(
        ["nvidia-smi", f"--query-gpu={_NVIDIA_QUERY}", "--format=csv,noheader,nounits"]
    ).splitlines()
    states = []
    for line in filter(str.strip, lines):
        cells = [_percent(cell) for cell in line.split(",")]
        if len(cells) != 4 or not (cells[0].is_integer() and cells[3] == cells[3]):
            raise InputError(
                f"nvidia-smi: expected index, two utilisations and memory in use, not {line!r}"
            )
        states.append(DeviceState(int(cells[0]), *cells[1:]))
    return states


def rocm_smi() -> list[DeviceState]:
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
        cards = json.loads(
            text[text.index("{") :]
        )  # some versions warn on standard output first
    except ValueError:
        raise InputError(
            f"rocm-smi: expected a JSON object, not {text.strip()[:80]!r}"
        ) from None
    states = []
    for name, card in cards.items():
        number = _CARD.fullmatch(name)
        if number is None or not isinstance(card, dict):
            continue
        used = _first(card, _ROCM_USED)
        if used != used:
            raise InputError(f"rocm-smi: {name} has no {_ROCM_USED[0]!r}")
        states.append(
            DeviceState(
                int(number[1]),
                _first(card, _ROCM_UTIL),
                _first(card, _ROCM_MEMORY_UTIL),
                used / MIB,
            )
        )
    return states


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
    if name == "none":
        return None
    if name != "auto":
        TOOLS[name]()
        return TOOLS[name]
    for tool, read in TOOLS.items():
        if shutil.which(tool):
            try:
                if read():
                    return read
            except InputError:
                continue  # another one may do
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


def _percent(cell: str) -> float:
    """The number in a cell; NaN for other texts, such as [N/A] and [Not Supported]."""
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _first(card: dict[str, Any], keys: Sequence[str]) -> float:
    return next((_percent(str(card[key])) for key in keys if key in card), float("nan"))
