"""Clients that claim and release during faults, and a ledger of what the service has told them."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Engine, text

from placement_svc.db.errors import OUTCOME_UNKNOWN
from tests.support.service import HEADERS, Answer, Client, wait_until
from tests.support.soundness import audit_faults
from tests.support.versions import EXTENDED_HEADER

CLAIM_SHARE = 0.6
"""The share of claims among the requests of a client that holds consumers: the cloud becomes full."""

SEARCH_SHARE = 0.1
"""The share of searches for candidates among all requests."""

SEARCH = "/allocation_candidates?resources=VCPU:1&limit=2"
EXTENDED_HEADERS = HEADERS | EXTENDED_HEADER
STALE_SEARCH = f"{SEARCH}&stale=ok"

READ_INTERVAL = 0.02
"""Seconds between a response to a reader and its next request."""

POST_SHARE = 0.3
"""The share of claims by POST, which a proxy does not repeat if a service has got it."""

RETRY_SECONDS = 0.05


def is_unknown(answer: Answer) -> bool:
    """Return whether a response leaves open if the request was applied."""
    return answer.status == 0 or (answer.status == 503 and OUTCOME_UNKNOWN in answer.problem)


@dataclass
class Ledger:
    """The state of each consumer after the last response: True if it holds its claim, None if unknown."""

    held: dict[str, bool | None] = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    """The responses to the requests for each consumer, for messages."""

    granted: list[float] = field(default_factory=list)
    """When claims were granted, by the monotonic clock."""

    read: list[float] = field(default_factory=list)
    """When reads that may be answered by a standby succeeded."""

    responded: list[float] = field(default_factory=list)
    """When services responded to `/healthz`, for which they need no database."""

    statuses: dict[int, int] = field(default_factory=dict)
    failed: list[Answer] = field(default_factory=list)
    """The responses 503, and the connections that broke."""

    unexpected: list[Answer] = field(default_factory=list)

    def check(self, engine: Engine, capacity: int) -> None:
        """Compare the ledger with the database, and audit the database."""
        with engine.connect() as connection:
            stored = {str(uuid) for uuid in connection.scalars(text("SELECT uuid FROM consumers"))}
            most = connection.scalar(text("SELECT max(used) FROM inventories"))
        assert self.unexpected == []
        wrong = [uuid for uuid, held in self.held.items() if held is not None and held != (uuid in stored)]
        assert wrong == [], [(uuid, self.held[uuid], self.answers[uuid]) for uuid in wrong]
        assert stored <= set(self.held)
        assert most <= capacity
        assert audit_faults(engine) == {}


def add_hosts(client: Client, hosts: Sequence[str], capacity: int) -> None:
    """Create resource providers with an inventory of VCPU."""
    for uuid in hosts:
        client.result("POST", "/resource_providers", {"name": uuid, "uuid": uuid})
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": capacity}}}
        client.result("PUT", f"/resource_providers/{uuid}/inventories", inventories)


class Target(Protocol):
    """A service, or a proxy of services, that clients send requests to."""

    def client(self) -> Client:
        """Return a new client."""


class Load:
    """Clients in threads; each sends its requests to the next service if one has failed."""

    def __init__(
        self, services: Sequence[Target], hosts: Sequence[str], clients: int, readers: int = 0
    ) -> None:
        self.ledger = Ledger()
        self._services, self._hosts = services, hosts
        self._stopped = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._run, args=(number,)) for number in range(clients)),
            *(threading.Thread(target=self._read, args=(number,)) for number in range(readers)),
            *([threading.Thread(target=self._probe)] if readers else []),
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def wait_for_claims(self, count: int) -> None:
        """Wait until so many further claims are granted."""
        number = len(self.ledger.granted) + count
        wait_until(lambda: len(self.ledger.granted) >= number)

    def _run(self, number: int) -> None:
        clients = [service.client() for service in self._services]
        draw = random.Random(number)
        mine: list[str] = []
        while not self._stopped.is_set():
            client = clients[number % len(clients)]
            if draw.random() < SEARCH_SHARE:
                answer = self._search(client)
            elif mine and draw.random() > CLAIM_SHARE:
                answer = self._release(client, mine)
            else:
                answer = self._claim(client, draw, mine)
            self._count(answer)
            if answer.status in (0, 503):
                number += 1
                time.sleep(RETRY_SECONDS)

    def _read(self, number: int) -> None:
        """Search on standbys, each time at the next service."""
        clients = [service.client() for service in self._services]
        for client in clients:
            client.headers = EXTENDED_HEADERS
        while not self._stopped.wait(READ_INTERVAL):
            number += 1
            answer = clients[number % len(clients)]("GET", STALE_SEARCH)
            self._count(answer)
            self._expect(answer, 0, 200, 503)
            if answer.status == 200:
                self.ledger.read.append(time.monotonic())

    def _probe(self) -> None:
        """Request `/healthz`, each time of the next service: a pause is one of the machine."""
        number = 0
        clients = [service.client() for service in self._services]
        while not self._stopped.wait(READ_INTERVAL):
            number += 1
            if clients[number % len(clients)]("GET", "/healthz").status == 200:
                self.ledger.responded.append(time.monotonic())

    def _count(self, answer: Answer) -> None:
        self.ledger.statuses[answer.status] = self.ledger.statuses.get(answer.status, 0) + 1
        if answer.status in (0, 503):
            self.ledger.failed.append(answer)

    def _search(self, client: Client) -> Answer:
        answer = client("GET", SEARCH)
        self._expect(answer, 0, 200, 503)
        return answer

    def _claim(self, client: Client, draw: random.Random, mine: list[str]) -> Answer:
        uuid = str(uuid4())
        claim: dict[str, Any] = {
            "allocations": {draw.choice(self._hosts): {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        # A request whose outcome the client does not learn may have been applied.
        self.ledger.held[uuid] = None
        if draw.random() < POST_SHARE:
            answer = client("POST", "/allocations", {uuid: claim})
        else:
            answer = client("PUT", f"/allocations/{uuid}", claim)
        self.ledger.answers[uuid] = [answer]
        if answer.status == 204:
            self.ledger.held[uuid] = True
            self.ledger.granted.append(time.monotonic())
            mine.append(uuid)
        elif is_unknown(answer):
            mine.append(uuid)
        else:
            self.ledger.held[uuid] = False
            self._expect(answer, 409, 503)
        return answer

    def _release(self, client: Client, mine: list[str]) -> Answer:
        """Release the oldest consumer; keep it if that fails."""
        uuid = mine.pop(0)
        held, self.ledger.held[uuid] = self.ledger.held[uuid], None
        answer = client("DELETE", f"/allocations/{uuid}")
        self.ledger.answers[uuid].append(answer)
        if answer.status == 204 or (answer.status == 404 and held is None):
            self.ledger.held[uuid] = False
        else:
            mine.append(uuid)
            if not is_unknown(answer):
                self.ledger.held[uuid] = held
                self._expect(answer, 503)
        return answer

    def _expect(self, answer: Answer, *statuses: int) -> None:
        if answer.status not in statuses:
            self.ledger.unexpected.append(answer)
