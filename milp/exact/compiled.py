"""Compiled kernels, cached on disk where possible; imported only when they are used, because Numba loads slowly."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.serialize import dumps, loads

F = TypeVar("F", bound=Callable[..., object])
logger = logging.getLogger(__name__)


def compiled(function: F) -> F:
    """Compile a function with Numba. A defect of its cache on disk costs a compilation and a warning.

    The call of the function succeeds all the same.
    """
    return _kernel(function, inline="never")


def inlined(function: F) -> F:
    """Compile a function into each kernel that calls it; calls from Python are as of `compiled`.

    Numba optimises what a kernel calls anew with the kernel, so that each level of calls takes time to compile.
    """
    return _kernel(function, inline="always")


def _kernel(function: F, *, inline: str) -> F:
    # Without the GIL, so that the timer of a deadline can run at the same time.
    # What begins with an underscore is called by compiled code alone, and needs no way in from Python.
    private = function.__name__.startswith("_")
    options: Any = {
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": private,
        "inline": inline,
    }
    kernel: Any = numba.njit(nogil=True, **options)(function)
    try:
        kernel._cache = _Cache(function)  # as enable_caching() does with Numba's own
    except RuntimeError:  # Numba's own message names no folder either
        _say(
            "in no folder",
            "neither beside the package nor at home can be written, so each run compiles anew",
        )
    return cast(F, kernel)


class _Sealed(CompileResultCacheImpl):
    """Kernels on disk with a checksum: one flipped bit in machine code could change the answers of the exact DP."""

    def reduce(self, data: Any) -> tuple[bytes, bytes]:
        content: bytes = dumps(super().reduce(data))
        return hashlib.sha256(content).digest(), content

    def rebuild(self, target_context: Any, reduced_data: tuple[bytes, bytes]) -> Any:
        digest, content = reduced_data
        if hashlib.sha256(content).digest() != digest:
            raise ValueError("the checksum is not that of the content")
        return super().rebuild(target_context, loads(content))

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"{super().get_filename_base(fullname, abiflags)}-sealed"


class _Cache(FunctionCache):
    """Numba's cache on disk, changed so that a damaged file never ends the call of a kernel."""

    _impl_class = _Sealed

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel from disk, None when it must be compiled."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # unpickling a damaged file may raise anything
            _say(self.cache_path, f"damaged files ({_reason(error)}), compiled anew")
        try:
            self.flush()  # otherwise each run would read the damaged file again
        except OSError as error:
            logger.debug(
                "the damaged index stays: %s", error
            )  # the attempt to save will report it
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _say(
                self.cache_path,
                f"cannot be written ({_reason(error)}), so each run compiles anew",
            )


_said: set[str] = set()


def _say(folder: str, what: str) -> None:
    """Warn once per folder: the same cause affects every kernel."""
    if folder not in _said:
        _said.add(folder)
        logger.warning(
            "cache of compiled kernels, %s: %s (NUMBA_CACHE_DIR names another folder)",
            folder,
            what,
        )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
