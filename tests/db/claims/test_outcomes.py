"""Which stored state shows that claims were granted whose connection was lost."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from placement_svc.db.claims import outcomes, procedures
from placement_svc.db.connections.engine import Database
from placement_svc.domain.allocations import Claim
from tests.conftest import LoadCloud
from tests.support.cloud import read, uuid_of

CONSUMER = str(uuid4())


@pytest.fixture
def claim(load_cloud: LoadCloud, database: Database) -> Claim:
    """A claim that is granted."""
    load_cloud(read("g{VCPU8,DISK_GB8}; h{VCPU8}"))
    allocations = {uuid_of("g"): {"VCPU": 1, "DISK_GB": 2}, uuid_of("h"): {"VCPU": 3}}
    claim = Claim(CONSUMER, "project", "user", "INSTANCE", None, allocations)
    assert procedures.claim(database, [claim], compare_generations=True) is None
    return claim


def test_granted_claims_are_found(database: Database, claim: Claim) -> None:
    assert outcomes.are_granted(database, [claim])
    assert outcomes.are_granted(database, [claim, replace(claim, consumer_uuid=str(uuid4()), allocations={})])
    changed = replace(claim, generation=1, consumer_type=None, allocations={uuid_of("h"): {"VCPU": 2}})
    assert procedures.claim(database, [changed], compare_generations=True) is None
    assert outcomes.are_granted(database, [changed])
    assert not outcomes.are_granted(database, [claim])


@pytest.mark.parametrize(
    "difference",
    [
        {"generation": 1},
        {"project_id": "another"},
        {"user_id": "another"},
        {"consumer_type": "ANOTHER"},
        {"allocations": {}},
        {"allocations": {uuid_of("g"): {"VCPU": 1, "DISK_GB": 2}, uuid_of("h"): {"VCPU": 4}}},
        {"allocations": {uuid_of("g"): {"VCPU": 1}, uuid_of("h"): {"VCPU": 3}}},
        {"consumer_uuid": str(uuid4())},
    ],
)
def test_another_stored_state_shows_nothing(
    database: Database, claim: Claim, difference: dict[str, Any]
) -> None:
    assert not outcomes.are_granted(database, [replace(claim, **difference)])
    assert not outcomes.are_granted(database, [claim, replace(claim, **difference)])


def test_release_is_found_if_the_consumer_is_gone(database: Database, claim: Claim) -> None:
    assert not outcomes.is_released(database, CONSUMER)
    assert procedures.delete_consumer(database, CONSUMER)
    assert outcomes.is_released(database, CONSUMER)
