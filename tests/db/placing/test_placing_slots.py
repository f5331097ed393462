"""A request lets others run only while it holds no lock: they may wait for it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import Engine, func, select, text

from placement_svc.db import placement_groups
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.connections.engine import Database
from placement_svc.db.placement_group_rule import PlacementGroupRule
from placement_svc.db.placing import service as placing
from placement_svc.db.placing.service import CLAIM_LOCK, PlacingOptions, PlacingService
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import NoLongSlot, Unavailable
from placement_svc.domain.execution.deadline import Deadline, Slot
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.placing.placements import PlacementRequest
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read
from tests.support.service import wait_until
from tests.support.slots import RecordedSlot

WRITERS = text("""
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend' AND backend_xid IS NOT NULL
""")


WAITING = text("""
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
     WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
""")


def read_waiting(engine: Engine) -> int:
    """Return how many sessions in this database wait for an advisory lock."""
    with engine.connect() as connection:
        return int(connection.execute(WAITING).scalar_one())


class SharingDeadline(Deadline):
    """A deadline that shares the slot at each check."""

    __slots__ = ()

    def check(self) -> None:
        if self.slot is not None:
            self.slot.share(self.remaining())


def wanted() -> PlacementRequest:
    """Return a request for one VCPU for a new consumer."""
    claim = Claim(str(uuid4()), "p", "u", "T", None, {})
    request = CandidatesRequest((RequestGroup("", {"VCPU": 1}),))
    return PlacementRequest(request=request, consumers=[claim], min_count=1, explanation="")


def search(slot: Slot) -> SearchOptions:
    return SearchOptions(deadline=SharingDeadline.of(60, slot=slot), memory=MemoryBudget(1 << 20))


@pytest.fixture
def group(api: Api, load_cloud: LoadCloud) -> str:
    """A placement group in a cloud of one host."""
    load_cloud(read("h{VCPU8}"))
    uuid = str(uuid4())
    assert api("PUT", f"/placement_groups/{uuid}", {"policy": "affinity"}).status_code == 201
    return uuid


@pytest.mark.parametrize(("in_group", "is_exclusive"), [(False, False), (True, False), (False, True)])
def test_slot_is_shared_only_without_locks(
    database: Database,
    engine: Engine,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    in_group: bool,
    is_exclusive: bool,
) -> None:
    if is_exclusive:
        monkeypatch.setattr(placing, "MAX_UNLOCKED_ATTEMPTS", 0)
    writers: list[int] = []

    class WatchedSlot(RecordedSlot):
        def share(self, seconds: float) -> None:
            with engine.connect() as connection:
                writers.append(connection.execute(WRITERS).scalar_one())

    rule = PlacementGroupRule(group) if in_group else None
    options = PlacingOptions(search=search(WatchedSlot([])), rule=rule)
    result = PlacingService(database, ClaimService(database)).place(wanted(), options)
    assert len(result.placements.placed) == 1
    assert set(writers) == {0}


def test_exclusive_attempt_searches_what_the_one_before_has_left(
    database: Database, engine: Engine, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "MAX_UNLOCKED_ATTEMPTS", 0)
    load_cloud(read("g{VCPU1}; h{VCPU1 res1}"))
    service = PlacingService(database, ClaimService(database))
    with ThreadPoolExecutor(2) as threads:
        with engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(CLAIM_LOCK)))
            options = PlacingOptions(search=search(RecordedSlot([])))
            placed = [threads.submit(service.place, wanted(), options) for _ in range(2)]
            wait_until(lambda: read_waiting(engine) == 1)
            # The other attempt waits in this process, without a connection.
            assert database.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
            connection.execute(text("UPDATE inventories SET reserved = 0"))
        results = [each.result() for each in placed]
    assert [result.attempts for result in results] == [1, 1]
    assert {result.placements.placed[0].root.name for result in results} == {"g", "h"}


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_search_that_gets_no_long_slot_waits_without_a_connection(
    database: Database, load_cloud: LoadCloud, *, is_dry_run: bool
) -> None:
    load_cloud(read("h{VCPU8}"))
    in_use: list[int] = []

    class LateSlot(RecordedSlot):
        def share(self, seconds: float) -> None:
            if not in_use:
                raise NoLongSlot("no slot")

        def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
            in_use.append(database.engine.pool.checkedout())  # type: ignore[attr-defined]

    service = PlacingService(database, ClaimService(database))
    call = service.find if is_dry_run else service.place
    result = call(wanted(), PlacingOptions(search=search(LateSlot([]))))
    assert len(result.placements.placed) == 1
    assert in_use == [0]


def test_claims_into_a_group_wait_for_each_other_without_a_slot_and_a_connection(
    database: Database, engine: Engine, group: str
) -> None:
    service = PlacingService(database, ClaimService(database))
    slots: list[list[str]] = [[] for _ in range(4)]

    def place(events: list[str]) -> int:
        options = PlacingOptions(search=search(RecordedSlot(events)), rule=PlacementGroupRule(group))
        return len(service.place(wanted(), options).placements.placed)

    with ThreadPoolExecutor(len(slots)) as threads:
        with engine.begin() as connection:
            placement_groups.lock(connection, group)
            placed = [threads.submit(place, events) for events in slots]
            wait_until(lambda: sum("pause" in events for events in slots) == len(slots) - 1)
            # The first one may get its connection only now; the others have given theirs back.
            wait_until(lambda: database.engine.pool.checkedout() == 1)  # type: ignore[attr-defined]
        assert [each.result() for each in placed] == [1] * len(slots)
    assert sum("resume" in events for events in slots) == len(slots) - 1


def test_claim_into_a_group_waits_at_most_until_its_deadline(
    database: Database, engine: Engine, group: str
) -> None:
    service = PlacingService(database, ClaimService(database))
    first = PlacingOptions(search=search(RecordedSlot([])), rule=PlacementGroupRule(group))
    late = SearchOptions(deadline=Deadline.of(0.2), memory=MemoryBudget(1 << 20))
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            placement_groups.lock(connection, group)
            placed = threads.submit(service.place, wanted(), first)
            wait_until(lambda: database.engine.pool.checkedout() == 1)  # type: ignore[attr-defined]
            with pytest.raises(Unavailable, match=r"takes longer than 0\.2 seconds"):
                service.place(wanted(), replace(first, search=late))
        assert len(placed.result().placements.placed) == 1
    assert len(service.place(wanted(), first).placements.placed) == 1
