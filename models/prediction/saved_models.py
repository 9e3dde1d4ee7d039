"""Models in files: JSON, which is data and cannot run anything, checked whole before it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, overload

from bft.models.errors import InputError
from bft.models.limited_reading import Budget, bounded, parse_json, reading, weigh_json
from bft.models.prediction._documents import part
from bft.models.prediction.duration import DurationEstimator
from bft.models.prediction.forecast import Forecaster
from bft.models.prediction.packing import PackingAnalyser

Model: TypeAlias = DurationEstimator | Forecaster | PackingAnalyser
M = TypeVar("M", bound=Model)

FORMAT: Final = "bft-replay model"
VERSION: Final = 1
_TYPES: Final[dict[str, type[Model]]] = {
    kind.document_kind: kind
    for kind in (DurationEstimator, Forecaster, PackingAnalyser)
}


def write_model(model: Model, path: str | Path) -> None:
    """Write a model; the same model gives the same bytes. OSErrors are the caller's.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from bft.models import PackingAnalyser
    >>> from bft.models.prediction.trees import Trees
    >>> split = [np.array(column) for column in ([0, -1, -1], [60.0, 0, 0], [1, 1, 2], [2, 1, 2], [0.0, 0, 2], [0])]
    >>> with TemporaryDirectory() as folder:
    ...     write_model(PackingAnalyser(Trees(*split)), f"{folder}/packing.json")
    ...     read_model(f"{folder}/packing.json", PackingAnalyser).rules().splitlines()[0]
    'gpu_util <= 60'
    """
    document = model.to_document()
    head = {
        "format": FORMAT,
        "version": VERSION,
        "kind": model.document_kind,
        "sha256": _digest(document),
    }
    Path(path).write_text(
        json.dumps({**head, "model": document}, allow_nan=False) + "\n",
        encoding="utf-8",
    )


@overload
def read_model(path: str | Path) -> Model: ...
@overload
def read_model(path: str | Path, expected: type[M]) -> M: ...
def read_model(path: str | Path, expected: type[Any] | None = None) -> Model:
    """Read a model that `write_model` wrote. Nothing in the file is executed, whatever it is.

    Parameters
    ----------
    path
        The file.
    expected
        The expected type, for example `DurationEstimator`.

    Raises
    ------
    InputError
        Naming the file: it is missing, no such model (a pickle, say), of another version, damaged, not finite, not
        consistent in itself, or another model than expected.
    """
    file = Path(path)
    document = _parsed(file)
    try:
        if document.get("format") != FORMAT:
            raise InputError("not a model of bft-replay")
        if document.get("version") != VERSION:
            raise InputError(
                f"a model of version {document.get('version')!r}, expected {VERSION}",
                hint="train it again",
            )
        kind, model = part(document, "kind", str), part(document, "model", dict)
        if kind not in _TYPES:
            raise InputError(
                f"a model of kind {kind!r}, expected one of {', '.join(_TYPES)}"
            )
        if expected is not None and _TYPES[kind] is not expected:
            raise InputError(
                f"a model of kind {kind}, expected {expected.document_kind}"
            )
        if part(document, "sha256", str) != _digest(model):
            raise InputError(
                "damaged: its content does not match its sha256", hint="copy it again"
            )
        return _TYPES[kind].from_document(model)
    except InputError as error:
        raise InputError(error.what, file=file, hint=error.hint) from error
    except RecursionError as error:
        raise InputError(
            "not a model of bft-replay: nested without end", file=file
        ) from error


def _parsed(file: Path) -> dict[str, Any]:
    with reading(file), file.open("rb") as stored:
        content = bounded(
            stored.read, Budget(str(file), file.stat().st_size), weigh_json
        ).read()
    # Pickles of protocol 2 and newer; a zip archive is what skops, joblib and PyTorch write.
    if content[:1] == b"\x80" or content[:4] == b"PK\x03\x04":
        raise InputError(
            "refused: a pickle or an archive, which may run code when it is opened; expected JSON",
            file=file,
        )
    try:
        document = parse_json(content.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not a model of bft-replay: not JSON: {error}", file=file
        ) from error
    if not isinstance(document, dict):
        raise InputError("not a model of bft-replay: expected a JSON object", file=file)
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _digest(document: dict[str, Any]) -> str:
    """SHA-256 of a document, however its file is laid out."""
    return hashlib.sha256(
        json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
