"""Files that are written completely or not at all."""

from __future__ import annotations

import logging
import os
import platform
import re
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


def _hidden_folder(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a hidden folder for drafts in `parent`, and remove those that killed processes have left there.

    Its name states host and process, so that only drafts of processes of this host that are gone are removed.
    """
    host = re.sub(r"\W", "", platform.node())
    ours = re.compile(rf"\.part\.{host}\.(\d+)\.\w+")
    for folder in parent.glob(".part.*"):
        match = ours.fullmatch(folder.name)
        if match and not _alive(int(match[1])):
            shutil.rmtree(folder, ignore_errors=True)
    prefix = f".part.{host}.{os.getpid()}."
    return tempfile.TemporaryDirectory(
        prefix=prefix, dir=parent, ignore_cleanup_errors=True
    )


def _alive(process: int) -> bool:
    """Whether a process of this host is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@contextmanager
def drafted(output: str | Path) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside `output`; when the block ends well it becomes `output`.

    Folders that lack are made, and what killed commands left is removed. When the block raises, the hidden folder goes
    and `output` is as it was. Only writing belongs into the block: its OSErrors are reported as errors of `output`.
    A device or a pipe gets the content; a file must not take its place. Where `output` is a link, the file that it
    leads to is written, and a warning names that file.
    """
    target = Path(output)
    if not target.name or target.is_dir():
        raise InputError("is a directory, expected a file", file=target)
    if target.exists() and not target.is_file():
        with _poured(target) as poured:
            yield poured
        return
    if target.is_symlink():
        target = Path(os.path.realpath(target))
        logger.warning("%s is a link: %s is written", output, target)
    draft: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The same name: gzip writes it into its header.
        with _hidden_folder(target.parent) as folder:
            draft = Path(folder, target.name)
            yield draft
            draft.replace(target)
    except InputError as error:
        if draft is None or error.file != draft:
            raise
        raise InputError(error.what, file=target, hint=error.hint) from error
    except OSError as error:
        raise unwritable(target, error) from error


@contextmanager
def _poured(target: Path) -> Iterator[Path]:
    """Yield the path of a draft; when the block ends well its content is written to a device or a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, target.name)
        try:
            yield draft
            with draft.open("rb") as content, target.open("wb") as stream:
                shutil.copyfileobj(content, stream)
        except OSError as error:
            raise unwritable(target, error) from error


@contextmanager
def figure_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill; when the block ends well its files are put into `target`, else nothing is.

    Files of the same names are replaced only with `force`.
    """
    if target.exists() and not target.is_dir():
        raise InputError("is a file, expected a folder", file=target)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with _hidden_folder(target) as folder:
            yield Path(folder)
            made = sorted(Path(folder).iterdir())
            for file in made:
                refuse_existing(target / file.name, force=force)
            for file in made:
                file.replace(target / file.name)
    except OSError as error:
        raise unwritable(target, error) from error
