"""Fixtures of the tests of the search."""

from collections.abc import Callable

import pytest

from placement_svc.db.search.ordered import anchors


@pytest.fixture
def forbid_lookup(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that lets ordered searches fail if they look up all anchors, or call the function named."""

    def unexpected(*_: object, **__: object) -> None:
        raise AssertionError("This lookup is not expected.")

    def forbid(name: str = "find_anchors") -> None:
        monkeypatch.setattr(anchors, name, unexpected)

    return forbid
