"""The log on standard error: one JSON object per line, or human-readable lines.

The log records of gunicorn and of libraries have the same format.
"""

import logging
import os
import sys
from typing import Any

import structlog
from gunicorn.glogging import Logger
from gunicorn.http.errors import NoMoreData
from structlog.typing import EventDict, Processor, WrappedLogger

from placement_svc.config import Settings
from placement_svc.domain.printable import printable
from placement_svc.http.log_text import for_log
from placement_svc.http.request_id import RequestIdFilter


def _drop_none(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove the fields whose value is None."""
    return {name: value for name, value in event.items() if value is not None}


def _shorten(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Bound each text, and each line of an exception: a client or a library may have written it."""
    for name, value in event.items():
        if name == "exception":
            event[name] = "\n".join(for_log(line) for line in value.split("\n"))
        elif isinstance(value, str):
            event[name] = for_log(value)
    return event


def _escape_control_characters(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape line breaks and terminal control sequences, which clients may send.

    The lines of an exception are indented, so that none of them can be mistaken for a log record.
    """
    escaped = {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}
    if "exception" in event:
        escaped["exception"] = "\n".join(f"    {printable(line)}" for line in event["exception"].split("\n"))
    return escaped


def _order_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put the fields that every record has first."""
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "event")}
    return {**first, **event}


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter for ``json`` or ``console``; the latter writes an exception on several lines."""
    common: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _drop_none,
    ]
    last: list[Processor]
    if log_format == "json":
        last = [_order_fields, structlog.processors.JSONRenderer()]
    else:
        last = [
            _escape_control_characters,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                sort_keys=False,
                # The default formatter shows local variables, which may be secrets.
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=common,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _shorten,
            *last,
        ],
    )


def format_name(settings: Settings) -> str:
    """Return the log format, ``json`` or ``console``: the default depends on standard error."""
    return settings.log_format or ("console" if sys.stderr.isatty() else "json")


def configure(settings: Settings) -> None:
    """Log to standard error; of libraries other than gunicorn, only warnings and errors.

    If the caller has closed standard error, the log is discarded.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(format_name(settings)))
    handler.addFilter(RequestIdFilter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    logging.getLogger("placement_svc").setLevel(settings.log_level.upper())


class GunicornLogger(Logger):  # type: ignore[misc]
    """A gunicorn logger that uses the handlers of the root logger instead of its own."""

    def setup(self, cfg: Any) -> None:
        """Set the levels, and remove gunicorn's own handlers."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True

    def debug(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Log a message, without the bytes of an incomplete request: its head may contain a token."""
        shown = (type(arg).__name__ if isinstance(arg, NoMoreData) else arg for arg in args)
        super().debug(msg, *shown, **kwargs)
