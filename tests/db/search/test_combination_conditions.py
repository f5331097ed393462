"""A selective lookup finds no trees that the combination rules exclude for lack of suppliers or amounts."""

import logging
import re

import pytest

from placement_svc.db.search import candidates
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read, uuid_of
from tests.support.versions import EXTENDED

HOSTS = 40

PAIR = "resources_A=VCPU:1&resources_B=DISK_GB:1"
TWO_OF_A_SUBTREE = "resources_A=VCPU:1&resources_B=VCPU:2&group_policy=isolate&same_subtree=_A,_B"
TOGETHER = "resources=VCPU:6&resources_G=VCPU:6"

TWO_NODES = "last{DISK_GB8}; x<last{VCPU8}; y<last{VCPU8}"
NODE_BELOW_ANOTHER = "last{DISK_GB8}; x<last{VCPU8}; y<x{VCPU8}"
ONE_NODE = "last{DISK_GB8}; x<last{VCPU11}"

CASES = {
    (f"{PAIR}&group_policy=isolate", TWO_NODES): (1, 1),
    (f"{PAIR}&isolate=_A", TWO_NODES): (1, 1),
    (f"{PAIR}&same_subtree=_A,!_B", TWO_NODES): (1, 1),
    (f"{PAIR}&resources_C=VCPU:1&group_policy=isolate", TWO_NODES): (1, 1),
    (f"{PAIR}&resources_C=VCPU:1&resources_D=VCPU:1&group_policy=isolate", TWO_NODES): (0, 0),
    (TWO_OF_A_SUBTREE, TWO_NODES): (0, 0),
    (TWO_OF_A_SUBTREE, NODE_BELOW_ANOTHER): (1, 1),
    (TOGETHER, TWO_NODES): (1, 1),
    (TOGETHER, ONE_NODE): (0, 0),
}
"""The queries and the last tree, unlike all hosts: the anchors of the second batch, and the candidates."""


@pytest.mark.parametrize(
    ("query", "last", "anchors", "found"), [(*key, *value) for key, value in CASES.items()]
)
def test_lookup_finds_no_trees_that_cannot_supply_all(
    api: Api,
    load_cloud: LoadCloud,
    caplog: pytest.LogCaptureFixture,
    query: str,
    last: str,
    anchors: int,
    found: int,
) -> None:
    load_cloud(read("; ".join([*(f"h{number}{{VCPU8 DISK_GB8}}" for number in range(HOSTS)), last])))
    caplog.set_level(logging.DEBUG, candidates.log.name)
    response = api("GET", f"/allocation_candidates?{query}&limit=1", version=EXTENDED)
    assert len(response.json["allocation_requests"]) == found
    lookups = re.findall(r"lookup for at most \d+ anchors found (\d+)", caplog.text)
    # The first batch finds a host, as it does not check the rules.
    assert lookups == ["1", str(anchors)]


@pytest.mark.parametrize(
    "query",
    [
        f"{PAIR}&group_policy=isolate",
        f"{PAIR}&same_subtree=_A,!_B",
        "resources=DISK_GB:6&resources_B=DISK_GB:6&resources_A=VCPU:1",
    ],
)
def test_sharing_provider_supplies_a_part(api: Api, load_cloud: LoadCloud, query: str) -> None:
    load_cloud(read("h{VCPU8 DISK_GB8}@X; s{DISK_GB8}$@X; other{VCPU8 DISK_GB8}"))
    response = api("GET", f"/allocation_candidates?{query}", version=EXTENDED)
    suppliers = {frozenset(each["allocations"]) for each in response.json["allocation_requests"]}
    assert suppliers == {frozenset([uuid_of("h"), uuid_of("s")])}


def test_ignored_consumer_frees_the_sum(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h{VCPU12 used12}; other{VCPU8}"))
    ignored = f"{TOGETHER}&ignore_consumer={uuid_of('consumer')}"
    response = api("GET", f"/allocation_candidates?{ignored}", version=EXTENDED)
    assert [list(each["allocations"]) for each in response.json["allocation_requests"]] == [[uuid_of("h")]]


@pytest.mark.parametrize(
    ("last", "found"), [("s{IPV4_ADDRESS9}$@A", 0), ("s{IPV4_ADDRESS9}$@A; t<s{VCPU9}$@A", 1)]
)
def test_lookup_finds_a_subtree_of_sharing_providers_only_in_one_tree(
    api: Api, load_cloud: LoadCloud, caplog: pytest.LogCaptureFixture, last: str, found: int
) -> None:
    """Each host has VCPU, and is served with the other class; no host has a provider of both."""
    cloud = f"{'; '.join(f'h{number}{{VCPU8}}@A' for number in range(HOSTS))}; {last}"
    load_cloud(read(cloud))
    caplog.set_level(logging.DEBUG, candidates.log.name)
    groups = "resources_A=IPV4_ADDRESS:1&resources_B=VCPU:1&group_policy=none&same_subtree=_A,_B"
    response = api("GET", f"/allocation_candidates?{groups}&limit=2", version=EXTENDED)
    assert len(response.json["allocation_requests"]) == found
    anchors = re.findall(r"lookup for at most \d+ anchors found (\d+)", caplog.text)
    assert sum(map(int, anchors)) <= (HOSTS + 1 if found else 2)
