"""The cloud of the demo: hosts with everything that Placement describes, and a full rack."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from placement_svc.db.connections.engine import Database
from placement_svc.demo import cloud, racks
from placement_svc.domain.demo import demo_uuid
from placement_svc.domain.records import ProviderRecord

LARGE = "resources_CPU=VCPU:8,MEMORY_MB:16384"


@pytest.fixture
def loaded(database: Database) -> None:
    """The default cloud of the demo."""
    cloud.load(database, cloud.records(cloud.HOSTS))


@pytest.mark.parametrize("hosts", [0, 1, 20, 21, 240])
def test_cloud_is_the_same_each_time(hosts: int) -> None:
    records = list(cloud.records(hosts))
    assert records == list(cloud.records(hosts))
    roots = [each for each in records if isinstance(each, ProviderRecord) and each.parent_uuid is None]
    pools = racks.ZONES if hosts else 0
    assert len(roots) == 3 + pools + hosts


@pytest.mark.parametrize("hosts", [1, 45, 1000])
def test_cloud_of_any_size_can_be_stored(database: Database, hosts: int) -> None:
    assert cloud.load(database, cloud.records(hosts)).overcommitted == []


@pytest.mark.usefixtures("loaded")
def test_one_rack_is_full(call: Callable[..., Any]) -> None:
    body = call("GET", "/capacity?group_by=aggregate&sort_by=-ratio:VCPU&limit=2")
    fullest, second = ((group["aggregate"], group["resource_classes"]["VCPU"]) for group in body["groups"])
    assert fullest[0] == demo_uuid(f"aggregate rack {racks.FULL_RACK}")
    assert fullest[1]["free"] == 0
    assert second[1]["free"] > 0


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("query", "has_candidates"),
    [
        (LARGE, True),
        (f"{LARGE}&member_of_CPU={demo_uuid('aggregate rack 3')}", False),
        (f"{LARGE}&resources_GPU=PGPU:1&same_subtree=_CPU,_GPU&group_policy=none", True),
        ("resources=VCPU:4,DISK_GB:100&root_required=HW_CPU_X86_AVX512F", True),
        (f"resources=VCPU:4,SRIOV_NET_VF:1&member_of={demo_uuid('aggregate zone 2')}", True),
    ],
)
def test_requests_for_everything_have_candidates(
    call: Callable[..., Any], query: str, has_candidates: bool
) -> None:
    found = call("GET", f"/allocation_candidates?{query}&limit=1")["allocation_requests"]
    assert bool(found) == has_candidates


@pytest.mark.usefixtures("loaded")
def test_projects_and_consumer_types_differ(app: Flask, call: Callable[..., Any]) -> None:
    consumers = call("GET", "/consumers")["consumers"]
    assert set(Counter(each["consumer_type"] for each in consumers)) == {
        "INSTANCE",
        "BATCH_JOB",
        "CI_RUNNER",
        "VOLUME",
    }
    projects = {each["project_id"]: each["consumers"] for each in call("GET", "/projects")["projects"]}
    assert set(projects) == {"web", "data", "batch", "research", "ci"}
