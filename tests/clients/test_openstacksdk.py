"""The placement proxy of openstacksdk: it creates, finds, claims and deletes resources."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cloud import uuid_of

pytest.importorskip("openstack", reason="needs the extra clients: pip install -e '.[clients]'")

import openstack
from openstack import exceptions

# openstacksdk uses its own deprecated functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")

HOST, NUMA0, NUMA1, RACK, CONSUMER, OTHER = map(uuid_of, ("host", "numa0", "numa1", "rack", "one", "other"))


@pytest.fixture
def placement(service: str) -> Iterator[Any]:
    """The placement proxy of a connection, which has an endpoint and a token and discovers the version."""
    with openstack.connect(
        auth_type="admin_token", endpoint=service, token="admin", load_yaml_config=False, load_envvars=False
    ) as connection:
        yield connection.placement


@pytest.fixture
def host(placement: Any) -> Any:
    """A provider with an inventory of DISK_GB."""
    host = placement.create_resource_provider(name="host", id=HOST)
    return placement.set_resource_provider_inventories(host, {"DISK_GB": {"total": 100}}, host.generation)


@contextmanager
def http_error(kind: type[exceptions.HttpException], detail: str) -> Iterator[None]:
    """Expect an exception of this type, whose response has this text in its `detail`."""
    with pytest.raises(kind) as raised:
        yield
    assert detail in raised.value.response.json()["errors"][0]["detail"]


def claim(**amounts: int) -> dict[str, Any]:
    return {
        "allocations": {HOST: {"resources": amounts}},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        "project_id": "project",
        "user_id": "user",
    }


def test_the_version_is_discovered(placement: Any, service: str) -> None:
    endpoint = placement.get_endpoint_data()
    assert (endpoint.min_microversion, endpoint.max_microversion) == ((1, 0), (1, 39))
    assert endpoint.url.rstrip("/") == service


def test_providers(placement: Any) -> None:
    host = placement.create_resource_provider(name="host", id=HOST)
    assert (host.id, host.name, host.generation, host.root_provider_id) == (HOST, "host", 0, HOST)
    numa = placement.create_resource_provider(name="numa0", id=NUMA0, parent_provider_uuid=HOST)
    assert (numa.parent_provider_id, numa.root_provider_id) == (HOST, HOST)
    assert placement.get_resource_provider(NUMA0) == numa
    assert placement.find_resource_provider("numa0").id == NUMA0
    assert placement.find_resource_provider("nothing") is None
    assert placement.update_resource_provider(numa, name="numa").name == "numa"
    assert [each.name for each in placement.resource_providers(in_tree=HOST)] == ["host", "numa"]
    assert [each.id for each in placement.resource_providers(name="numa")] == [NUMA0]
    placement.delete_resource_provider(numa, ignore_missing=False)
    with pytest.raises(exceptions.NotFoundException):
        placement.delete_resource_provider(NUMA0, ignore_missing=False)
    placement.delete_resource_provider(NUMA0)
    assert [each.id for each in placement.resource_providers()] == [HOST]


def test_provider_filters(placement: Any, host: Any) -> None:
    placement.create_resource_provider(name="other", id=OTHER)
    placement.create_trait("CUSTOM_FAST")
    resource = placement.get_resource_provider_trait(HOST)
    placement.set_resource_provider_trait(resource, traits=["CUSTOM_FAST"])
    for query in ({"resources": "DISK_GB:50"}, {"required": "CUSTOM_FAST"}, {"uuid": HOST}):
        assert [each.id for each in placement.resource_providers(**query)] == [HOST]


def test_an_existing_name_is_a_conflict(placement: Any, host: Any) -> None:
    with http_error(exceptions.ConflictException, "host already exists"):
        placement.create_resource_provider(name="host")


def test_aggregates(placement: Any, host: Any) -> None:
    placement.set_resource_provider_aggregates(host, RACK)
    provider = placement.fetch_resource_provider_aggregates(HOST)
    assert provider.aggregates == [RACK]
    assert provider.generation == host.generation + 1
    assert [each.id for each in placement.resource_providers(member_of=RACK)] == [HOST]
    with http_error(exceptions.ConflictException, "generation"):
        placement.set_resource_provider_aggregates(host)


def test_inventories(placement: Any, host: Any) -> None:
    vcpu = placement.create_resource_provider_inventory(host, "VCPU", total=8, allocation_ratio=2.0)
    assert (vcpu.total, vcpu.reserved, vcpu.allocation_ratio) == (8, 0, 2.0)
    inventory = placement.get_resource_provider_inventory("VCPU", HOST)
    assert inventory.total == 8
    changed = placement.update_resource_provider_inventory(
        "VCPU", HOST, resource_provider_generation=inventory.resource_provider_generation, total=6, reserved=2
    )
    assert (changed.total, changed.reserved, changed.allocation_ratio) == (6, 2, 1.0)
    totals = {each.resource_class: each.total for each in placement.resource_provider_inventories(HOST)}
    assert totals == {"DISK_GB": 100, "VCPU": 6}
    placement.delete_resource_provider_inventory("VCPU", HOST, ignore_missing=False)
    with pytest.raises(exceptions.NotFoundException):
        placement.get_resource_provider_inventory("VCPU", HOST)
    placement.delete_resource_provider_inventories(HOST)
    assert list(placement.resource_provider_inventories(HOST)) == []


def test_another_generation_is_a_conflict(placement: Any, host: Any) -> None:
    with http_error(exceptions.ConflictException, "generation"):
        placement.set_resource_provider_inventories(host, {}, host.generation - 1)


def test_resource_classes(placement: Any) -> None:
    assert placement.create_resource_class(name="CUSTOM_GOLD").name == "CUSTOM_GOLD"
    assert placement.get_resource_class("CUSTOM_GOLD").name == "CUSTOM_GOLD"
    assert "CUSTOM_GOLD" in [each.name for each in placement.resource_classes()]
    assert placement.update_resource_class("CUSTOM_GOLD", name="CUSTOM_SILVER").name == "CUSTOM_SILVER"
    placement.delete_resource_class("CUSTOM_SILVER", ignore_missing=False)
    with pytest.raises(exceptions.NotFoundException):
        placement.get_resource_class("CUSTOM_SILVER")
    with http_error(exceptions.BadRequestException, "standard resource class VCPU"):
        placement.delete_resource_class("VCPU")


def test_traits(placement: Any, host: Any) -> None:
    assert placement.create_trait("CUSTOM_FAST").name == "CUSTOM_FAST"
    assert placement.get_trait("CUSTOM_FAST").id == "CUSTOM_FAST"
    assert [each.name for each in placement.traits(name="startswith:CUSTOM_")] == ["CUSTOM_FAST"]
    resource = placement.get_resource_provider_trait(HOST)
    assert resource.traits == []
    changed = placement.set_resource_provider_trait(resource, traits=["CUSTOM_FAST", "HW_NUMA_ROOT"])
    assert sorted(changed.traits) == ["CUSTOM_FAST", "HW_NUMA_ROOT"]
    assert {each.name for each in placement.traits(associated=True)} == {"CUSTOM_FAST", "HW_NUMA_ROOT"}
    with http_error(exceptions.ConflictException, "in use"):
        placement.delete_trait("CUSTOM_FAST")
    placement.delete_resource_provider_trait(HOST)
    assert placement.get_resource_provider_trait(HOST).traits == []
    placement.delete_trait("CUSTOM_FAST", ignore_missing=False)
    with pytest.raises(exceptions.NotFoundException):
        placement.get_trait("CUSTOM_FAST")


def test_allocations(placement: Any, host: Any) -> None:
    placement.update_allocation(CONSUMER, **claim(DISK_GB=30))
    consumer = placement.get_allocation(CONSUMER)
    assert consumer.allocations[HOST]["resources"] == {"DISK_GB": 30}
    assert (consumer.project_id, consumer.user_id, consumer.consumer_type) == ("project", "user", "INSTANCE")
    assert consumer.consumer_generation == 1
    with http_error(exceptions.ConflictException, "exceed the capacity"):
        placement.update_allocation(OTHER, **claim(DISK_GB=71))

    move = {
        CONSUMER: claim() | {"allocations": {}, "consumer_generation": 1},
        OTHER: claim(DISK_GB=71) | {"consumer_type": "MIGRATION"},
    }
    placement.create_allocations(move)
    [allocation] = placement.resource_provider_allocations(HOST)
    assert (allocation.consumer_id, allocation.resources) == (OTHER, {"DISK_GB": 71})
    assert placement.fetch_resource_provider_usages(HOST).usages == {"DISK_GB": 71}
    [usage] = placement.usages("project")
    assert (usage.consumer_type, usage.consumer_count, usage.resources) == ("MIGRATION", 1, {"DISK_GB": 71})
    [empty] = placement.usages("project", user_id="nobody")
    assert empty.resources == {}

    placement.delete_allocation(OTHER, ignore_missing=False)
    assert placement.get_allocation(OTHER).allocations == {}
    with pytest.raises(exceptions.NotFoundException):
        placement.delete_allocation(OTHER, ignore_missing=False)


def test_a_claim_from_candidates_to_deletion(placement: Any, host: Any) -> None:
    placement.create_trait("CUSTOM_FAST")
    for name, uuid in (("numa0", NUMA0), ("numa1", NUMA1)):
        numa = placement.create_resource_provider(name=name, id=uuid, parent_provider_uuid=HOST)
        placement.set_resource_provider_inventories(numa, {"VCPU": {"total": 4}}, 0)
    placement.set_resource_provider_trait(
        placement.get_resource_provider_trait(NUMA1), traits=["CUSTOM_FAST"]
    )
    placement.set_resource_provider_aggregates(host, RACK)

    query = {
        "resources": "DISK_GB:10",
        "member_of": RACK,
        "resources_FAST": "VCPU:3",
        "required_FAST": "CUSTOM_FAST",
        "resources_ANY": "VCPU:2",
        "group_policy": "none",
    }
    [candidate] = placement.allocation_candidates(**query)
    assert candidate.mappings == {"": [HOST], "_FAST": [NUMA1], "_ANY": [NUMA0]}
    assert set(candidate.provider_summaries) == {HOST, NUMA0, NUMA1}
    placement.update_allocation(CONSUMER, **claim() | {"allocations": candidate.allocations})

    [usage] = placement.usages("project")
    assert usage.resources == {"DISK_GB": 10, "VCPU": 5}
    assert list(placement.allocation_candidates(**query)) == []
    placement.delete_allocation(CONSUMER)
    for uuid in (NUMA1, NUMA0, HOST):
        placement.delete_resource_provider(uuid, ignore_missing=False)
    assert list(placement.resource_providers()) == []
