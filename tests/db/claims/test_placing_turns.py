"""A request lets others run only while it holds no lock: they may wait for it."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from placement_svc.db.claims import placing
from placement_svc.db.claims.placing import PlacingOptions, PlacingService
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.engine import Database
from placement_svc.db.placement_group_rule import PlacementGroupRule
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.allocations import Claim
from placement_svc.domain.deadline import Deadline, Turn
from placement_svc.domain.errors import NoLongTurn
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.placements import PlacementRequest
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read
from tests.support.turns import RecordedTurn

WRITERS = text("""
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL
""")


class SharingDeadline(Deadline):
    """A deadline that shares the turn at each check."""

    __slots__ = ()

    def check(self) -> None:
        if self.turn is not None:
            self.turn.share(self.remaining())


def wanted() -> PlacementRequest:
    """Return a request for one VCPU for a new consumer."""
    claim = Claim(str(uuid4()), "p", "u", "T", None, {})
    request = CandidatesRequest((RequestGroup("", {"VCPU": 1}),))
    return PlacementRequest(request=request, consumers=[claim], min_count=1, explanation="")


def search(turn: Turn) -> SearchOptions:
    return SearchOptions(deadline=SharingDeadline.of(60, turn=turn), memory=MemoryBudget(1 << 20))


@pytest.mark.parametrize(("in_group", "locks_first"), [(False, False), (True, False), (False, True)])
def test_turn_is_shared_only_without_locks(
    api: Api,
    database: Database,
    engine: Engine,
    load_cloud: LoadCloud,
    monkeypatch: pytest.MonkeyPatch,
    in_group: bool,
    locks_first: bool,
) -> None:
    load_cloud(read("h{VCPU8}"))
    group = str(uuid4())
    assert api("PUT", f"/placement_groups/{group}", {"policy": "affinity"}).status_code == 201
    if locks_first:
        monkeypatch.setattr(placing, "MAX_UNLOCKED_ATTEMPTS", 0)
    writers: list[int] = []

    class WatchedTurn(RecordedTurn):
        def share(self, seconds: float) -> None:
            with engine.connect() as connection:
                writers.append(connection.execute(WRITERS).scalar_one())

    rule = PlacementGroupRule(group) if in_group else None
    options = PlacingOptions(search=search(WatchedTurn([])), rule=rule)
    result = PlacingService(database, ClaimService(database)).place(wanted(), options)
    assert len(result.placements.placed) == 1
    assert set(writers) == {0}


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_search_that_gets_no_long_turn_waits_without_a_connection(
    database: Database, load_cloud: LoadCloud, *, is_dry_run: bool
) -> None:
    load_cloud(read("h{VCPU8}"))
    in_use: list[int] = []

    class LateTurn(RecordedTurn):
        def share(self, seconds: float) -> None:
            if not in_use:
                raise NoLongTurn("no turn")

        def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
            in_use.append(database.engine.pool.checkedout())  # type: ignore[attr-defined]

    service = PlacingService(database, ClaimService(database))
    call = service.find if is_dry_run else service.place
    result = call(wanted(), PlacingOptions(search=search(LateTurn([]))))
    assert len(result.placements.placed) == 1
    assert in_use == [0]
