"""A service as a process, for clients that know nothing of it but its URL."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.support.service import serving


@pytest.fixture(scope="module")
def served(database_url: str) -> Iterator[str]:
    """The URL of a service on this worker's database, whatever is in it."""
    with serving(database_url=database_url) as service:
        yield service.url


@pytest.fixture
def service(served: str, clean_database: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a service with nothing in it; what the user's environment tells of clouds is not seen."""
    for variable in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", os.devnull)
    return served
