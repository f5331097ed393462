"""The log: on standard error, one JSON object a line, or lines for people.

What gunicorn and libraries log goes the same way.
"""

import logging
import sys
from typing import Any

import structlog
from gunicorn.glogging import Logger
from structlog.typing import EventDict, Processor, WrappedLogger

from placement_svc.config import Settings
from placement_svc.http.request_id import RequestIdFilter


def _known(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave out what is not known."""
    return {name: value for name, value in event.items() if value is not None}


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape what could break a line or be an order to a terminal: clients send what they like.

    An exception keeps its lines, but set apart: none of them can pass for a line of the log.
    """
    shown = {name: _escaped(value) if isinstance(value, str) else value for name, value in event.items()}
    if "exception" in event:
        shown["exception"] = "\n".join(f"    {_escaped(line)}" for line in event["exception"].split("\n"))
    return shown


def _escaped(value: str) -> str:
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)


def _in_order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "event")}
    return {**first, **event}


def formatter(log_format: str) -> logging.Formatter:
    """Return what makes a line of a record, ``json`` or ``console``; an exception takes more lines there."""
    common: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _known,
    ]
    last: list[Processor]
    if log_format == "json":
        last = [_in_order, structlog.processors.JSONRenderer()]
    else:
        # The renderer's own way with exceptions shows local variables, and they may hold secrets.
        plain = structlog.dev.plain_traceback
        last = [
            _printable,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), sort_keys=False, exception_formatter=plain
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=common,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *last,
        ],
    )


def format_of(settings: Settings) -> str:
    """Return how `settings` want the log: ``json`` or ``console``."""
    return settings.log_format or ("console" if sys.stderr.isatty() else "json")


def configure(settings: Settings) -> None:
    """Write all that is logged to standard error; of libraries only warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(format_of(settings)))
    handler.addFilter(RequestIdFilter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    logging.getLogger("placement_svc").setLevel(settings.log_level.upper())


class GunicornLogger(Logger):  # type: ignore[misc]
    """Lets gunicorn log as everybody else does, instead of by handlers of its own."""

    def setup(self, cfg: Any) -> None:
        """Set the level, and no more."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True
