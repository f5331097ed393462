"""A service sees at once the traits and resource classes that another service deletes and creates again."""

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
    """Start two services, each in its own process, on the database of this test worker."""
    with serving(database_url=database_url) as one, serving(database_url=database_url) as other:
        yield one, other


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["first changes", "second changes"])
def clients(
    services: tuple[Service, Service], clean_database: Callable[[], None], request: pytest.FixtureRequest
) -> tuple[Client, Client]:
    """Return clients of the service that changes the names, and of one that has used them already."""
    modifying, observing = (services[index].client() for index in request.param)
    create(modifying)
    modifying.result("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    use(observing)
    assert candidate_providers(observing) == [HOST]
    return modifying, observing


def create(client: Client) -> None:
    client.result("PUT", f"/traits/{TRAIT}")
    client.result("PUT", f"/resource_classes/{CLASS}")


def delete(client: Client) -> None:
    stop_using(client)
    client.result("DELETE", f"/traits/{TRAIT}")
    client.result("DELETE", f"/resource_classes/{CLASS}")


def use(client: Client) -> None:
    put(client, "traits", [TRAIT])
    put(client, "inventories", {CLASS: {"total": 1}})


def stop_using(client: Client) -> None:
    put(client, "traits", [])
    put(client, "inventories", {})


def put(client: Client, kind: str, members: Collection[str]) -> None:
    generation = client.result("GET", f"/resource_providers/{HOST}")["generation"]
    body = {"resource_provider_generation": generation, kind: members}
    assert list(client.result("PUT", f"/resource_providers/{HOST}/{kind}", body)[kind]) == list(members)


def candidate_providers(client: Client) -> list[str]:
    return list(client.result("GET", CANDIDATES)["provider_summaries"])


def test_deleted_names_are_not_listed(clients: tuple[Client, Client]) -> None:
    modifying, observing = clients
    delete(modifying)
    assert TRAIT not in observing.result("GET", "/traits")["traits"]
    assert CLASS not in [
        resource_class["name"]
        for resource_class in observing.result("GET", "/resource_classes")["resource_classes"]
    ]
    assert observing("GET", f"/traits/{TRAIT}").status == 404
    assert observing("GET", f"/resource_classes/{CLASS}").status == 404


def test_deleted_names_cannot_be_used(clients: tuple[Client, Client]) -> None:
    modifying, observing = clients
    delete(modifying)
    provider = f"/resource_providers/{HOST}"
    generation = observing.result("GET", provider)["generation"]
    traits = {"resource_provider_generation": generation, "traits": [TRAIT]}
    assert observing("PUT", f"{provider}/traits", traits).status == 400
    inventory = {"resource_provider_generation": generation, "total": 1}
    assert observing("PUT", f"{provider}/inventories/{CLASS}", inventory).status == 404
    assert observing("GET", CANDIDATES).status == 400
    assert observing("GET", f"/resource_providers?required={TRAIT}").status == 400
    assert observing("GET", f"/resource_providers?resources={CLASS}:1").status == 400


def test_recreated_names_are_new_names(clients: tuple[Client, Client]) -> None:
    modifying, observing = clients
    delete(modifying)
    create(modifying)
    assert candidate_providers(observing) == []
    assert observing.result("GET", f"/resource_providers?required={TRAIT}")["resource_providers"] == []
    use(modifying)
    assert candidate_providers(observing) == [HOST]
    assert observing.result("GET", f"/resource_providers/{HOST}/traits")["traits"] == [TRAIT]
    assert list(observing.result("GET", f"/resource_providers/{HOST}/inventories")["inventories"]) == [CLASS]
    assert [
        provider["uuid"]
        for provider in observing.result("GET", f"/resource_providers?resources={CLASS}:1")[
            "resource_providers"
        ]
    ] == [HOST]


def test_recreated_names_can_be_used(clients: tuple[Client, Client]) -> None:
    modifying, observing = clients
    delete(modifying)
    create(modifying)
    use(observing)
    assert candidate_providers(observing) == candidate_providers(modifying) == [HOST]
