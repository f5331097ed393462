import orjson
import pytest

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.records import (
    ImportProblem,
    ImportRefused,
    ProviderRecord,
    ResourceClassRecord,
    TraitRecord,
)
from placement_svc.schemas.records import parse, to_line

HOST = "a0000000-0000-4000-8000-000000000000"
SERVER = "c0000000-0000-4000-8000-000000000000"

PROVIDER = ProviderRecord(
    uuid=HOST,
    name='☃ \\ "host"\t',
    parent_uuid=SERVER,
    traits=["HW_NUMA_ROOT", "CUSTOM_FAST"],
    aggregates=["{B0000000-0000-4000-8000-000000000000}"],
    inventories={"VCPU": Inventory(8, 1, 2, 4, 2, 1.5), "CUSTOM_GPU": Inventory(1, allocation_ratio=-1.0)},
)
CONSUMER = Claim(SERVER.upper(), "project", "user", "INSTANCE", None, {HOST: {"VCPU": 2, "DISK_GB": 1}})


@pytest.mark.parametrize(
    "record",
    [
        TraitRecord("CUSTOM_FAST"),
        ResourceClassRecord("CUSTOM_GPU"),
        PROVIDER,
        ProviderRecord(HOST, "", None, [], [], {}),
        CONSUMER,
        Claim("-" * 36, "p", "u", None, None, {HOST: {"VCPU": 2147483647}}),
    ],
)
def test_a_record_is_parsed_as_it_was_written(record):
    line = to_line(record)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert parse(line) == record


def test_what_a_record_leaves_out_has_the_defaults_of_requests():
    stated = {"uuid": HOST.upper().replace("-", ""), "name": "host", "inventories": {"VCPU": {"total": 8}}}
    record = parse(orjson.dumps({"resource_provider": stated}))
    assert record == ProviderRecord(HOST, "host", None, [], [], {"VCPU": Inventory(8)})


def test_a_trait_that_is_named_twice_is_one_trait():
    stated = {"uuid": HOST, "name": "host", "traits": ["B", "A", "B"]}
    assert parse(orjson.dumps({"resource_provider": stated})).traits == ["B", "A"]


def provider(**stated):
    return {"resource_provider": {"uuid": HOST, "name": "host", **stated}}


def consumer(**stated):
    held = {HOST: {"resources": {"VCPU": 1}}}
    return {"consumer": {"uuid": SERVER, "project_id": "p", "user_id": "u", "allocations": held, **stated}}


def inventory(**stated):
    return provider(inventories={"VCPU": {"total": 8, **stated}})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "A record is an object with one key"),
        ({}, "A record is an object with one key"),
        ({"trait": "CUSTOM_A", "resource_class": "CUSTOM_B"}, "A record is an object with one key"),
        ({"aggregate": HOST}, "one of trait, resource_class, resource_provider, consumer"),
        ({"trait": "HW_NUMA_ROOT"}, 'start with the prefix "CUSTOM_"'),
        ({"trait": 5}, "name: 5 is not of type 'string'"),
        ({"resource_class": "VCPU"}, "name: 'VCPU' does not match"),
        ({"resource_class": None}, "name: None is not of type 'string'"),
        ({"resource_provider": None}, "None is not of type 'object'"),
        ({"resource_provider": {"uuid": HOST}}, "'name' is a required property"),
        ({"resource_provider": {"name": "host"}}, "'uuid' is a required property"),
        (provider(generation=3), "('generation' was unexpected)"),
        (provider(uuid="host"), "uuid: 'host' is not a 'uuid'"),
        (provider(name="x" * 201), "is too long"),
        (provider(name="\x00"), "name: '\\x00' does not match"),
        (provider(parent_provider_uuid="host"), "parent_provider_uuid: 'host' is not a 'uuid'"),
        (provider(traits="CUSTOM_A"), "traits: 'CUSTOM_A' is not of type 'array'"),
        (provider(traits=["CUSTOM_A", ""]), "traits: 1: '' should be non-empty"),
        (provider(aggregates=[HOST, HOST]), "has non-unique elements"),
        (provider(inventories={"vcpu": {"total": 1}}), "'vcpu' does not match any of the regexes"),
        (inventory(total=0), "inventories: VCPU: total: 0 is less than the minimum of 1"),
        (inventory(used=1), "inventories: VCPU: Additional properties are not allowed ('used' was"),
        (inventory(resource_provider_generation=1), "('resource_provider_generation' was unexpected)"),
        (inventory(max_unit=2147483648), "is greater than the maximum"),
        (consumer(uuid="server"), "uuid: 'server' does not match"),
        (consumer(project_id=""), "project_id: '' should be non-empty"),
        (consumer(consumer_type="unknown"), "consumer_type: 'unknown' does not match"),
        (consumer(consumer_generation=1), "('consumer_generation' was unexpected)"),
        (consumer(allocations={}), "allocations: {} should be non-empty"),
        (consumer(allocations={HOST: {"resources": {"VCPU": 0}}}), "VCPU: 0 is less than the minimum of 1"),
        (consumer(allocations={HOST: {"resources": {"VCPU": 2**31}}}), "VCPU: 2147483648 is more than"),
    ],
)
def test_what_is_wrong_in_a_record_is_told(value, problem):
    with pytest.raises(Invalid) as error:
        parse(orjson.dumps(value))
    assert problem in str(error.value)


@pytest.mark.parametrize("line", [b"{", b"\xff", b"trait: CUSTOM_A", b'{"trait": "CUSTOM_A"} {}'])
def test_a_line_that_is_not_json_is_told(line):
    with pytest.raises(Invalid, match=r"^This is not JSON: "):
        parse(line)


def test_problems_are_told_in_the_order_of_lines():
    refused = ImportRefused(
        [ImportProblem((7,), "wrong"), ImportProblem((2, 30), "twice"), ImportProblem((2,), "bad")]
    )
    assert str(refused) == "line 2: bad\nlines 2, 30: twice\nline 7: wrong"


def test_not_every_line_of_a_problem_is_told():
    assert str(ImportProblem(tuple(range(1, 13)), "all alike")) == (
        "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more: all alike"
    )
