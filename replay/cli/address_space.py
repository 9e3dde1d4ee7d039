"""Running under a limit on the address space (ulimit -v, batch systems): libraries reserve far more than they use.

Measured on two cores, in MiB of address space for a replay with the exact DP: 1,950 as the libraries are,
930 with Arrow's pool on the system's allocator (its own reserves 1 GiB), 850 with one thread for BLAS (each reserves
its buffers; SciPy's waits for ever when it cannot), 590 with one arena for the C library's allocator. None of this
changes a result.
"""

from __future__ import annotations

import ctypes
import os
import resource

_SETTINGS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ARROW_IO_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",  # for solver processes; for this one it is too late
}
_M_ARENA_MAX = -8


def prepare() -> None:
    """If there is a limit, make libraries reserve little; call before NumPy and Arrow are imported. Set values stay."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)
