"""Traits and resource classes that one service deletes and makes again, as another one sees them at once."""

from collections.abc import Callable, Collection, Iterator

import pytest

from tests.support.cloud import uuid_of
from tests.support.service import Client, Service, serving

pytestmark = pytest.mark.long

HOST = uuid_of("host")
TRAIT, CLASS = "CUSTOM_FAST", "CUSTOM_GOLD"
CANDIDATES = f"/allocation_candidates?resources={CLASS}:1&required={TRAIT}"


@pytest.fixture(scope="module")
def services(database_url: str) -> Iterator[tuple[Service, Service]]:
    """Two services, each a process of its own, on this worker's database."""
    with serving(database_url=database_url) as one, serving(database_url=database_url) as other:
        yield one, other


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["one changes", "the other changes"])
def clients(
    services: tuple[Service, Service], clean_database: Callable[[], None], request: pytest.FixtureRequest
) -> tuple[Client, Client]:
    """Clients of the service that changes the names, and of the one that has known them: each did so once."""
    changing, knowing = (services[index].client() for index in request.param)
    create(changing)
    changing.result("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    use(knowing)
    assert found(knowing) == [HOST]
    return changing, knowing


def create(client: Client) -> None:
    client.result("PUT", f"/traits/{TRAIT}")
    client.result("PUT", f"/resource_classes/{CLASS}")


def delete(client: Client) -> None:
    unuse(client)
    client.result("DELETE", f"/traits/{TRAIT}")
    client.result("DELETE", f"/resource_classes/{CLASS}")


def use(client: Client) -> None:
    put(client, "traits", [TRAIT])
    put(client, "inventories", {CLASS: {"total": 1}})


def unuse(client: Client) -> None:
    put(client, "traits", [])
    put(client, "inventories", {})


def put(client: Client, kind: str, members: Collection[str]) -> None:
    generation = client.result("GET", f"/resource_providers/{HOST}")["generation"]
    body = {"resource_provider_generation": generation, kind: members}
    assert list(client.result("PUT", f"/resource_providers/{HOST}/{kind}", body)[kind]) == list(members)


def found(client: Client) -> list[str]:
    return list(client.result("GET", CANDIDATES)["provider_summaries"])


def test_names_that_are_gone_are_not_listed(clients: tuple[Client, Client]) -> None:
    changing, knowing = clients
    delete(changing)
    assert TRAIT not in knowing.result("GET", "/traits")["traits"]
    assert CLASS not in [
        each["name"] for each in knowing.result("GET", "/resource_classes")["resource_classes"]
    ]
    assert knowing("GET", f"/traits/{TRAIT}").status == 404
    assert knowing("GET", f"/resource_classes/{CLASS}").status == 404


def test_names_that_are_gone_cannot_be_used(clients: tuple[Client, Client]) -> None:
    changing, knowing = clients
    delete(changing)
    provider = f"/resource_providers/{HOST}"
    generation = knowing.result("GET", provider)["generation"]
    traits = {"resource_provider_generation": generation, "traits": [TRAIT]}
    assert knowing("PUT", f"{provider}/traits", traits).status == 400
    inventory = {"resource_provider_generation": generation, "total": 1}
    assert knowing("PUT", f"{provider}/inventories/{CLASS}", inventory).status == 404
    assert knowing("GET", CANDIDATES).status == 400
    assert knowing("GET", f"/resource_providers?required={TRAIT}").status == 400
    assert knowing("GET", f"/resource_providers?resources={CLASS}:1").status == 400


def test_names_made_again_are_other_names(clients: tuple[Client, Client]) -> None:
    changing, knowing = clients
    delete(changing)
    create(changing)
    assert found(knowing) == []
    assert knowing.result("GET", f"/resource_providers?required={TRAIT}")["resource_providers"] == []
    use(changing)
    assert found(knowing) == [HOST]
    assert knowing.result("GET", f"/resource_providers/{HOST}/traits")["traits"] == [TRAIT]
    assert list(knowing.result("GET", f"/resource_providers/{HOST}/inventories")["inventories"]) == [CLASS]
    assert [
        each["uuid"]
        for each in knowing.result("GET", f"/resource_providers?resources={CLASS}:1")["resource_providers"]
    ] == [HOST]


def test_names_made_again_can_be_used(clients: tuple[Client, Client]) -> None:
    changing, knowing = clients
    delete(changing)
    create(changing)
    use(knowing)
    assert found(knowing) == found(changing) == [HOST]
