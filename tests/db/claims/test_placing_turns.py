"""A request lets others run only while it holds no lock: they may wait for it."""

from dataclasses import replace
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
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.placements import PlacementRequest
from tests.conftest import Api, LoadCloud
from tests.support.cloud import read

WRITERS = text("""
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL
""")


class SharingDeadline(Deadline):
    """A deadline that shares the turn at each check."""

    __slots__ = ()

    def check(self) -> None:
        if self.share_turn is not None:
            self.share_turn(self.remaining())


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

    def share_turn(_: float) -> None:
        with engine.connect() as connection:
            writers.append(connection.execute(WRITERS).scalar_one())

    claim = Claim(str(uuid4()), "p", "u", "T", None, {})
    request = CandidatesRequest((RequestGroup("", {"VCPU": 1}),))
    wanted = PlacementRequest(request=request, consumers=[claim], min_count=1, explanation="")
    search = SearchOptions(
        deadline=replace(SharingDeadline.of(60), share_turn=share_turn), memory=MemoryBudget(1 << 20)
    )
    options = PlacingOptions(search=search, rule=PlacementGroupRule(group) if in_group else None)
    result = PlacingService(database, ClaimService(database)).place(wanted, options)
    assert len(result.placements.placed) == 1
    assert set(writers) == {0}
