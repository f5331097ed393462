"""Standard output that cannot be written, for example because the disk is full."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


class OutputError(click.ClickException):
    """A command has done its work, but cannot report it."""

    exit_code = 3


@contextmanager
def flushed() -> Iterator[None]:
    """Flush standard output at the end of the block; discard what is left of it if that or the block fails.

    Python flushes it once more when it exits, and would report the error again. Raises `OSError`.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())
        raise


@contextmanager
def reported(done: str = "") -> Iterator[None]:
    """Raise `OutputError` if the block cannot write to standard output; `done` says what is complete.

    A reader such as `head` that needs no more is no error, and does not change the exit status.
    """
    try:
        with flushed():
            yield
    except BrokenPipeError:
        pass
    except OSError as error:
        parts = [f"The output cannot be written: {error.strerror}", *filter(None, [done])]
        raise OutputError(". ".join(parts)) from error


def check_open() -> None:
    """Raise `OSError` if the caller has closed standard output."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
