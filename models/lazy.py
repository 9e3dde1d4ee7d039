"""The public names of a package, loaded when first used: `--help` need not wait for pandas.

A package lists its names once, as imports that only type checkers run::

    if TYPE_CHECKING:
        from bft.models.curves import Curve as Curve
    else:
        __getattr__, __dir__, __all__ = public_names(__name__)

Type checkers see the imports, and so refuse a name that is not there; at run time the same lines are read as a table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def public_names(
    package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from the imports under its `if TYPE_CHECKING`.

    Parameters
    ----------
    package
        Its import name; it may be in the middle of being imported.

    Raises
    ------
    ImportError
        When the package has no source to read.

    Examples
    --------
    >>> load, _, names = public_names("bft.datasets")
    >>> "load_bundled" in names
    True
    >>> load("load_bundle")
    Traceback (most recent call last):
    AttributeError: module 'bft.datasets' has no attribute 'load_bundle'
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{package} has no source to read its public names from")
    homes = {
        alias.asname or alias.name: (str(line.module), alias.name)
        for block in ast.parse(Path(spec.origin).read_text("utf-8")).body
        if isinstance(block, ast.If)
        and isinstance(block.test, ast.Name)
        and block.test.id == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    names = sorted(homes)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes[name]
        return getattr(import_module(module), attribute)

    return load, lambda: names, names
