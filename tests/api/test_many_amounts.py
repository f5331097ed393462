"""Requests for candidates, and claims, with many amounts run one at a time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from placement_svc.api import allocation_candidates
from placement_svc.api.allocation_candidates import MANY_AMOUNTS
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.http.environ import SLOT
from tests.conftest import LoadCloud, NewApp
from tests.support.claims_oracle import consumer
from tests.support.cloud import read
from tests.support.service import wait_until
from tests.support.slots import RecordedSlot
from tests.support.versions import EXTENDED_HEADER

CLAIMS = "/claims"
PATHS = (
    "/allocation_candidates",
    "/allocation_candidates/explanation",
    "/allocation_candidates/capacity",
    CLAIMS,
)

Ask = Callable[..., TestResponse]


@pytest.fixture
def large_requests(monkeypatch: pytest.MonkeyPatch) -> FairSemaphore:
    """The semaphore of requests with many amounts, for which one may wait."""
    semaphore = FairSemaphore(1, max_waiting=1)
    monkeypatch.setattr(allocation_candidates, "_large_requests", semaphore)
    return semaphore


@pytest.fixture
def ask(new_app: NewApp, load_cloud: LoadCloud) -> Ask:
    """A function that sends a request for so many amounts, one in each group."""
    load_cloud(read("h{VCPU1000}"))
    app = new_app()

    def ask(path: str, amounts: int, slot: RecordedSlot | None = None) -> TestResponse:
        groups = [f"resources_{number}=VCPU:1" for number in range(amounts)]
        headers = {
            "X-Auth-Token": "admin",
            **EXTENDED_HEADER,
        }
        request = f"group_policy=none&{'&'.join(groups)}"
        client, environ = app.test_client(), {SLOT: slot or RecordedSlot([])}
        if path == CLAIMS:
            body = {"request": request, "consumers": [consumer(str(uuid4()))]}
            return client.post(path, json=body, headers=headers, environ_overrides=environ)
        return client.get(f"{path}?{request}", headers=headers, environ_overrides=environ)

    return ask


@pytest.mark.parametrize("path", PATHS)
def test_request_with_many_amounts_is_long_from_the_beginning(ask: Ask, path: str) -> None:
    fewer: list[str] = []
    assert ask(path, 16, RecordedSlot(fewer)).status_code == 200
    assert "become long" not in fewer
    many: list[str] = []
    assert ask(path, 17, RecordedSlot(many)).status_code == 200
    assert many[:2] == ["leave", "become long"]


@pytest.mark.parametrize("path", PATHS)
def test_requests_with_many_amounts_run_one_at_a_time(
    ask: Ask, path: str, large_requests: FairSemaphore
) -> None:
    """Others go on meanwhile."""
    assert large_requests.acquire(0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, path, MANY_AMOUNTS)
        wait_until(lambda: large_requests._waiting)
        assert ask(path, MANY_AMOUNTS - 1).status_code == 200
        refused = ask(path, MANY_AMOUNTS)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "ask for fewer amounts" in refused.text
        large_requests.release()
        assert waiting.result().status_code == 200
    assert large_requests.acquire(0)
