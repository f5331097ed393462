"""The work for the nearest roots of an explanation does not grow with roots times sharing providers."""

from collections.abc import Iterable
from fractions import Fraction

import pytest

from placement_svc.db.engine import Database
from placement_svc.db.explanation.details import ProviderDetails
from placement_svc.db.explanation.explain import ExplainedRequest, ExplanationOptions, explain
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.errors import Unavailable
from placement_svc.domain.explanation import Filter, QueryTexts
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.memory import MemoryBudget
from tests.conftest import LoadCloud
from tests.support.cloud import read

SHARING = 40
"""Sharing providers that serve each other: each is a group of roots of its own."""

GROUPS = 4


def explained() -> ExplainedRequest:
    groups = tuple(RequestGroup(f"_{number}", {"DISK_GB": 100 + number}) for number in range(GROUPS))
    return ExplainedRequest(request=CandidatesRequest(groups), texts=QueryTexts(groups={}), relaxes=False)


def options(deadline: Deadline) -> ExplanationOptions:
    return ExplanationOptions(
        search=SearchOptions(deadline=deadline, memory=MemoryBudget(10**8)), max_roots=100
    )


def test_gap_of_each_sharing_provider_is_computed_once(
    database: Database, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("; ".join(f"s{n}{{DISK_GB{n + 1}}}$@a" for n in range(SHARING))))
    computed = 0
    gap = ProviderDetails.gap

    def counted(self: ProviderDetails, failing: Iterable[Filter]) -> Fraction:
        nonlocal computed
        computed += 1
        return gap(self, failing)

    monkeypatch.setattr(ProviderDetails, "gap", counted)
    body = database.read(explain, explained(), options(Deadline.of(3600)))

    assert len(body["nearest"]) == 10
    # Once to choose the roots, and once for each of the ten that are shown.
    assert computed <= 11 * GROUPS * (SHARING + 1)


def test_search_for_the_nearest_roots_ends_at_the_deadline(
    database: Database, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("; ".join(f"s{n}{{DISK_GB{n + 1}}}$@a" for n in range(3))))
    deadline = Deadline.of(3600)
    gap = ProviderDetails.gap

    def late(self: ProviderDetails, failing: Iterable[Filter]) -> Fraction:
        deadline.end = deadline.next_event = 0.0
        return gap(self, failing)

    monkeypatch.setattr(ProviderDetails, "gap", late)
    with pytest.raises(Unavailable, match="takes longer"):
        database.read(explain, explained(), options(deadline))
