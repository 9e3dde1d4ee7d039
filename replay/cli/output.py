"""Files that a command writes: completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bft.models import InputError


def refuse_existing(output: str | Path, *, force: bool) -> None:
    """Raise InputError when a file exists and may not be replaced; called before the work."""
    if not force and Path(output).exists():
        raise InputError("exists; --force replaces it", file=output)


@contextmanager
def drafted(output: str | Path) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside `output`; when the block ends well it becomes `output`.

    Folders that lack are made. When the block raises, the hidden folder goes and `output` is as it was. Only writing
    belongs into the block: its OSErrors are reported as errors of `output`.
    """
    target = Path(output)
    if not target.name or target.is_dir():
        raise InputError("is a directory, expected a file", file=target)
    draft = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The same name: gzip writes it into its header.
        with tempfile.TemporaryDirectory(prefix=".part.", dir=target.parent, ignore_cleanup_errors=True) as folder:
            draft = Path(folder, target.name)
            yield draft
            draft.replace(target)
    except InputError as error:
        if draft is None or error.file != draft:
            raise
        raise InputError(error.what, file=target, hint=error.hint) from error
    except OSError as error:
        # Not strerror: pyarrow puts the hidden file's name there.
        reason = os.strerror(error.errno) if error.errno else str(error)
        if isinstance(error, FileExistsError):  # by mkdir
            reason = "its folder is a file"
        raise InputError(f"cannot be written: {reason}", file=target) from error


@contextmanager
def figure_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill; when the block ends well its files are put into `target`, else nothing is.

    Files of the same names are replaced only with `force`.
    """
    if target.exists() and not target.is_dir():
        raise InputError("is a file, expected a folder", file=target)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part.", dir=target, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
            made = sorted(Path(folder).iterdir())
            for file in made:
                refuse_existing(target / file.name, force=force)
            for file in made:
                file.replace(target / file.name)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"cannot be written: {reason}", file=target) from error
