import pytest

from placement_svc.db.connections import time_limit
from placement_svc.observability import shared_results


@pytest.fixture
def long_metrics_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request for the metrics wait for results that take long."""
    monkeypatch.setattr(shared_results, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(time_limit, "RESPONSE_SECONDS", 60.0)


@pytest.fixture
def always_old(monkeypatch: pytest.MonkeyPatch, long_metrics_timeout: None) -> None:
    """Let each request for the metrics compute the results."""
    monkeypatch.setattr(shared_results, "MAX_AGE_SECONDS", 0.0)
