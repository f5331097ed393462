"""The files that commands write: complete under their names, or not at all; progress on the terminal."""

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import click
from rich.console import Console
from rich.progress import Progress

from placement_svc import standard_output

STREAM = "-"
"""The path of standard input and output."""


class TransferError(Exception):
    """A file cannot be read or written, or is incomplete; the message names the file and the reason."""


def check_input(path: str) -> None:
    """Raise `TransferError` if a file does not exist or must not be read; it is not opened.

    The path ``-`` is standard input, which the caller may have closed. A command calls this before it creates
    a database for the content of the file.
    """
    try:
        if path == STREAM:
            if sys.stdin is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        elif not os.access(path, os.R_OK):
            os.stat(path)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        name = display_name(path, "standard input")
        raise TransferError(f"{name} cannot be read: {error.strerror or error}") from error


@contextmanager
def open_output(path: str, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a file to write to; it appears under its name if no error occurs.

    The path ``-`` is standard output. An existing file is replaced only with `force`. Raises `TransferError`.
    """
    try:
        if path == STREAM:
            with _standard_output() as stream:
                yield stream
        else:
            with _replacing(Path(path), force) as file:
                yield file
    except BrokenPipeError:
        # The reader of standard output has ended: click exits without a message.
        raise
    except OSError as error:
        raise TransferError(f"{display_name(path)} cannot be written: {error.strerror or error}") from error


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    """Yield standard output, and flush it."""
    standard_output.check_open()
    with click.open_file(STREAM, "wb") as file, standard_output.flushed():
        yield cast(BinaryIO, file)
        file.flush()


@contextmanager
def _replacing(path: Path, force: bool) -> Iterator[BinaryIO]:
    """Yield a temporary file in the folder of `path`; rename it if no error occurs, else delete it.

    Its mode is 0600, because it lists projects and users.
    """
    _check_replaceable(path, force)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        # Another program may have created the file meanwhile.
        _check_replaceable(path, force)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _check_replaceable(path: Path, force: bool) -> None:
    """Raise `TransferError` if a command must not replace what has this path."""
    if path.exists() and not path.is_file():
        raise TransferError(f"{path} is not a regular file: write to - for standard output")
    if path.exists() and not force:
        raise TransferError(f"{path} exists: name another file, or use --force to replace it")


def display_name(path: str, stream: str = "standard output") -> str:
    """Return what a message calls a file."""
    return stream if path == STREAM else path


def progress_bars() -> Progress:
    """Return progress bars on standard error, which appear only on a terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
