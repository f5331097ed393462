"""The files that the settings name: who may send which requests, and what the metrics watch."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from placement_svc.config import Settings
from placement_svc.domain.errors import SetupError
from placement_svc.http import watched_aggregates, watched_requests
from placement_svc.http.auth import AuthStrategy
from placement_svc.http.keystone import keystone_strategy
from placement_svc.http.noauth import NOAUTH
from placement_svc.http.policy import Policy
from placement_svc.http.tokens import token_strategy
from placement_svc.http.watched_file import WatchedFile

log = logging.getLogger(__name__)

T = TypeVar("T")


class ConfigurationFiles:
    """The valid content that each file had last. The constructor raises `SetupError` if one cannot be used.

    A service reads the files before it starts its workers, which inherit the content. So a worker that
    replaces another one starts although a file has become invalid in the meantime.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.strategy = _strategy(settings)
        self.policy = Policy(settings.policy_profile, settings.policy_file)
        read_requests = partial(watched_requests.read, max_groups=settings.max_groups)
        self.watched_requests = _watch(settings.watched_requests, read_requests)
        """A function that returns the watched requests by name; None without the setting."""
        self.watched_aggregates = _watch(settings.watched_aggregates, watched_aggregates.read)
        """A function that returns the uuids of the watched aggregates by name; None without the setting."""

    def refresh(self) -> None:
        """Reload the files that have changed, except for that of Keystone."""
        self.strategy.refresh()
        self.policy.refresh()
        for value in (self.watched_requests, self.watched_aggregates):
            if value is not None:
                value()

    def reload(self) -> None:
        """Reload the files that have changed, and that of Keystone; log an error if it cannot be used."""
        self.refresh()
        if self._settings.auth == "keystone":
            try:
                self.strategy = _strategy(self._settings)
            except SetupError as error:
                log.error("%s; the previous settings stay in effect", error)


def _strategy(settings: Settings) -> AuthStrategy:
    if settings.auth == "keystone":
        return keystone_strategy(settings.keystone_file)
    if settings.auth == "token":
        assert settings.token_file is not None
        return token_strategy(settings.token_file)
    return NOAUTH


def _watch(path: Path | None, read: Callable[[Path], T]) -> Callable[[], T] | None:
    """Return a function that returns the present content of a file, None without a file."""
    return None if path is None else WatchedFile(path, read).value
