"""Fixtures: a service in its own process, which clients reach by its URL."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.support.service import serving


@pytest.fixture(scope="module")
def served(database_url: str) -> Iterator[str]:
    """The URL of a service on this worker's database, which is not emptied."""
    with serving(database_url=database_url) as service:
        yield service.url


@pytest.fixture
def service(served: str, clean_database: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a service with an empty database; the OpenStack settings of the user are hidden."""
    for variable in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", os.devnull)
    return served
