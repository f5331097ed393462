"""The providers of recent claims: those of the last claim, of a bounded number of consumers."""

import pytest

from placement_svc.db.claims import recent_claims
from placement_svc.db.claims.recent_claims import RecentClaims
from placement_svc.domain.allocations import Claim


def claim(consumer: str, *providers: str) -> Claim:
    return Claim(consumer, "project", "user", None, None, {provider: {"VCPU": 1} for provider in providers})


def test_providers_are_those_of_the_last_claim() -> None:
    recent = RecentClaims()
    recent.add([claim("a", "host"), claim("b", "host", "pool")])
    recent.add([claim("a", "other")])
    assert [recent.take(name) for name in "abc"] == [{"other"}, {"host", "pool"}, None]


def test_providers_are_forgotten_with_the_allocations_and_when_they_are_taken() -> None:
    recent = RecentClaims()
    recent.add([claim("a", "host"), claim("b", "host")])
    recent.add([claim("a")])
    assert recent.take("a") is None
    assert [recent.take("b") for _ in range(2)] == [{"host"}, None]


def test_claims_of_many_providers_are_not_recorded() -> None:
    recent = RecentClaims()
    recent.add([claim("a", *map(str, range(16))), claim("b", *map(str, range(17)))])
    assert len(recent.take("a") or ()) == 16
    assert recent.take("b") is None


def test_the_oldest_claims_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_claims, "MAX_CONSUMERS", 2)
    recent = RecentClaims()
    for name in "abac":
        recent.add([claim(name, "host")])
    assert [recent.take(name) for name in "abc"] == [{"host"}, None, {"host"}]
