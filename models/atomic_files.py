"""Files that are written completely or not at all."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bft.models.errors import InputError

logger = logging.getLogger(__name__)


def refuse_existing(output: str | Path, *, force: bool) -> None:
    """Raise InputError when a file exists and may not be replaced; called before the work."""
    if not force and Path(output).exists():
        raise InputError("exists; --force replaces it", file=output)


def refuse_inputs(output: str | Path, inputs: Iterable[str]) -> None:
    """Raise InputError when a target is a file that the command reads; called before the work."""
    for name in inputs:
        if (
            Path(name).exists()
            and Path(output).exists()
            and Path(output).samefile(name)
        ):
            raise InputError(
                "is an input of this command; choose another target", file=output
            )


def unwritable(target: Path, error: OSError) -> InputError:
    """Return the error that names a file or folder which could not be written, and the system's reason."""
    # Not strerror: pyarrow puts the name of a hidden file there.
    reason = os.strerror(error.errno) if error.errno else str(error)
    if isinstance(error, FileExistsError):  # by mkdir
        reason = "its folder is a file"
    return InputError(f"cannot be written: {reason}", file=target)


@contextmanager
def drafted(output: str | Path) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside `output`; when the block ends well it becomes `output`.

    Folders that lack are made. When the block raises, the hidden folder goes and `output` is as it was. Only writing
    belongs into the block: its OSErrors are reported as errors of `output`. A device or a pipe gets the content; a file
    must not take its place. Where `output` is a link, the file that it leads to is written, and a warning names it.
    """
    target = Path(output)
    if not target.name or target.is_dir():
        raise InputError("is a directory, expected a file", file=target)
    is_stream = target.exists() and not target.is_file()
    if target.is_symlink() and not is_stream:
        target = Path(os.path.realpath(target))
        logger.warning("%s is a link: %s is written", output, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = None if is_stream else target.parent
        with tempfile.TemporaryDirectory(prefix=".part.", dir=beside) as folder:
            # The same name: gzip writes it into its header.
            draft = Path(folder, target.name)
            try:
                yield draft
            except InputError as error:
                error.file = target if error.file == draft else error.file
                raise
            if is_stream:
                with draft.open("rb") as content, target.open("wb") as stream:
                    shutil.copyfileobj(content, stream)
            else:
                draft.replace(target)
    except OSError as error:
        raise unwritable(target, error) from error


@contextmanager
def figure_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill; when the block ends well its files are put into `target`, else nothing is.

    Files of the same names are replaced only with `force`.
    """
    is_file = target.exists() and not target.is_dir()
    if is_file or target.suffix in (".png", ".svg", ".pdf"):
        raise InputError(
            "is a file, expected a folder for one file a chart", file=target
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part.", dir=target) as folder:
            yield Path(folder)
            made = sorted(Path(folder).iterdir())
            for file in made:
                refuse_existing(target / file.name, force=force)
            for file in made:
                file.replace(target / file.name)
    except OSError as error:
        raise unwritable(target, error) from error
