"""Models in files: JSON, which is data and cannot run anything; a model checks itself when it is made of it."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import (
    Any,
    Final,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.errors import InputError
from bft.models.files import read_json
from bft.models.learned.duration import DurationEstimator, Forecaster
from bft.models.learned.packing import PackingAnalyser

Model: TypeAlias = DurationEstimator | Forecaster | PackingAnalyser
M = TypeVar("M", bound=Model)

# The version changes with what a model looks at.
HEAD: Final = {"format": "bft-replay model", "version": 2}
KINDS: Final[dict[str, type[Model]]] = {
    "duration": DurationEstimator,
    "forecast": Forecaster,
    "packing": PackingAnalyser,
}


def write_model(model: Model, path: str | Path) -> None:
    """Write a model; the same model gives the same bytes. OSErrors are the caller's.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from bft.models import PackingAnalyser
    >>> from bft.models.learned.packing import Tree
    >>> split = [np.array(column) for column in ([0, -1, -1], [60.0, 0, 0], [1, 1, 2], [2, 1, 2], [0.0, 0, 2])]
    >>> with TemporaryDirectory() as folder:
    ...     write_model(PackingAnalyser(Tree(*split)), f"{folder}/packing.json")
    ...     read_model(f"{folder}/packing.json", PackingAnalyser).rules().splitlines()[0]
    'gpu_util <= 60'
    """
    kind = next(name for name, each in KINDS.items() if type(model) is each)
    document = {**HEAD, "kind": kind, "model": to_plain(model)}
    Path(path).write_text(json.dumps(document, allow_nan=False) + "\n", "utf-8")


@overload
def read_model(path: str | Path) -> Model: ...
@overload
def read_model(path: str | Path, expected: type[M]) -> M: ...
def read_model(path: str | Path, expected: Any = Model) -> Model:
    """Read a model that `write_model` wrote. Nothing in the file is executed, whatever it is.

    Parameters
    ----------
    path
        The file.
    expected
        The expected type, for example `DurationEstimator`; any when not given.

    Raises
    ------
    InputError
        Naming the file: it is missing, no such model (a pickle, say), of another version, not consistent in itself, or
        another model than expected.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != HEAD["format"]:
        raise InputError("not a model of bft-replay", file=path)
    if document.get("version") != HEAD["version"]:
        raise InputError(
            f"a model of version {document.get('version')!r}, expected {HEAD['version']}",
            file=path,
            hint="train it again",
        )
    wanted = [name for name, each in KINDS.items() if issubclass(each, expected)]
    kind = document.get("kind")
    if kind not in wanted:
        raise InputError(
            f"a model of kind {kind!r}, expected {' or '.join(wanted)}", file=path
        )
    try:
        model: Model = from_plain(KINDS[kind], document.get("model"))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"not a model that can be used: {error}", file=path, hint="train it again"
        ) from error
    return model


def to_plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses and data frames are objects, tuples and arrays lists."""
    if is_dataclass(value):
        return {
            each.name: to_plain(getattr(value, each.name)) for each in fields(value)
        }
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, pd.DataFrame):
        return value.to_dict("list")
    return value.tolist() if isinstance(value, np.ndarray) else value


def from_plain(kind: Any, plain: Any) -> Any:
    """The value of a type that `to_plain` made plain.

    Raises
    ------
    KeyError, TypeError, ValueError
        When the plain data have another form.
    """
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(  # type: ignore[operator]
            **{
                each.name: from_plain(types[each.name], plain[each.name])
                for each in fields(kind)
            }
        )
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple(from_plain(arguments[0], each) for each in plain)
    if origin in (np.ndarray, NDArray):
        # Before NumPy 2.5, NDArray[X] was another name of ndarray[..., dtype[X]].
        wanted = arguments[0] if origin is NDArray else get_args(arguments[1])[0]
        values = np.array(plain).astype(wanted, casting="same_kind")
        if not np.isfinite(values).all():
            raise ValueError("expected finite numbers")
        return values
    if kind is pd.DataFrame:
        return pd.DataFrame(plain)
    if not isinstance(plain, (int, float) if kind is float else kind):
        raise TypeError(f"expected {kind.__name__}, not {plain!r:.80}")
    return plain
