"""Traits and resource classes that one service deletes and makes again, as another one sees them at once."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cloud import uuid_of
from tests.service import request as send
from tests.service import serving

pytestmark = pytest.mark.long

HOST = uuid_of("host")
TRAIT, CLASS = "CUSTOM_FAST", "CUSTOM_GOLD"
CANDIDATES = f"/allocation_candidates?resources={CLASS}:1&required={TRAIT}"

Service = Callable[..., Any]


@pytest.fixture(scope="module")
def ports(database_url: str) -> Iterator[tuple[int, int]]:
    """The ports of two services, each a process of its own, on this worker's database."""
    with serving(database_url=database_url) as one, serving(database_url=database_url) as other:
        yield one, other


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["one changes", "the other changes"])
def services(
    ports: tuple[int, int], clean_database: Callable[[], None], request: pytest.FixtureRequest
) -> tuple[Service, Service]:
    """The service that changes the names and the one that has known them, which have just done so once."""
    changing, knowing = (partial(send, ports[index]) for index in request.param)
    create(changing)
    changing("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    use(knowing)
    assert found(knowing) == [HOST]
    return changing, knowing


def create(service: Service) -> None:
    service("PUT", f"/traits/{TRAIT}")
    service("PUT", f"/resource_classes/{CLASS}")


def delete(service: Service) -> None:
    unuse(service)
    service("DELETE", f"/traits/{TRAIT}")
    service("DELETE", f"/resource_classes/{CLASS}")


def use(service: Service) -> None:
    put(service, "traits", [TRAIT])
    put(service, "inventories", {CLASS: {"total": 1}})


def unuse(service: Service) -> None:
    put(service, "traits", [])
    put(service, "inventories", {})


def put(service: Service, kind: str, members: Collection[str]) -> None:
    generation = service("GET", f"/resource_providers/{HOST}")["generation"]
    body = {"resource_provider_generation": generation, kind: members}
    assert list(service("PUT", f"/resource_providers/{HOST}/{kind}", body)[kind]) == list(members)


def found(service: Service) -> list[str]:
    return list(service("GET", CANDIDATES)["provider_summaries"])


def refusal(service: Service, method: str, path: str, body: object = None) -> int:
    with pytest.raises(HTTPError) as refused:
        service(method, path, body)
    with refused.value:
        return refused.value.code


def test_names_that_are_gone_are_not_listed(services: tuple[Service, Service]) -> None:
    changing, knowing = services
    delete(changing)
    assert TRAIT not in knowing("GET", "/traits")["traits"]
    assert CLASS not in [each["name"] for each in knowing("GET", "/resource_classes")["resource_classes"]]
    assert refusal(knowing, "GET", f"/traits/{TRAIT}") == 404
    assert refusal(knowing, "GET", f"/resource_classes/{CLASS}") == 404


def test_names_that_are_gone_cannot_be_used(services: tuple[Service, Service]) -> None:
    changing, knowing = services
    delete(changing)
    provider = f"/resource_providers/{HOST}"
    generation = knowing("GET", provider)["generation"]
    traits = {"resource_provider_generation": generation, "traits": [TRAIT]}
    assert refusal(knowing, "PUT", f"{provider}/traits", traits) == 400
    inventory = {"resource_provider_generation": generation, "total": 1}
    assert refusal(knowing, "PUT", f"{provider}/inventories/{CLASS}", inventory) == 404
    assert refusal(knowing, "GET", CANDIDATES) == 400
    assert refusal(knowing, "GET", f"/resource_providers?required={TRAIT}") == 400
    assert refusal(knowing, "GET", f"/resource_providers?resources={CLASS}:1") == 400


def test_names_made_again_are_other_names(services: tuple[Service, Service]) -> None:
    changing, knowing = services
    delete(changing)
    create(changing)
    assert found(knowing) == []
    assert knowing("GET", f"/resource_providers?required={TRAIT}")["resource_providers"] == []
    use(changing)
    assert found(knowing) == [HOST]
    assert knowing("GET", f"/resource_providers/{HOST}/traits")["traits"] == [TRAIT]
    assert list(knowing("GET", f"/resource_providers/{HOST}/inventories")["inventories"]) == [CLASS]
    assert [
        each["uuid"]
        for each in knowing("GET", f"/resource_providers?resources={CLASS}:1")["resource_providers"]
    ] == [HOST]


def test_names_made_again_can_be_used(services: tuple[Service, Service]) -> None:
    changing, knowing = services
    delete(changing)
    create(changing)
    use(knowing)
    assert found(knowing) == found(changing) == [HOST]
