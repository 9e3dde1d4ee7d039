"""Kernels that Numba compiles and keeps on disk; imported only when they are used, because Numba loads slowly."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F, *, keep: bool = True) -> F:
    """Compile a function with Numba, once on a machine: the code is kept beside the package, or at home.

    `NUMBA_CACHE_DIR` names another folder. Where none can be written each process compiles anew, and so without `keep`.
    What begins with an underscore is called by compiled code of the same file alone, and is kept with it; compiling it
    apart takes less time than as a part of its callers. Numba looks at the file of the function alone to tell whether
    what it keeps is stale.
    """
    private = function.__name__.startswith("_")
    # Without the GIL, so that the timer of a deadline can run at the same time.
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": private,
    }
    try:
        return cast(F, numba.njit(cache=keep and not private, **options)(function))
    except RuntimeError:  # no folder can be written
        return cast(F, numba.njit(**options)(function))
