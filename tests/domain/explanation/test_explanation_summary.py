"""The summary says whether a host or a single provider lacks something."""

from typing import Any

import pytest

from placement_svc.domain.explanation.summary import summarize


def _impossible(suffix: str, *filters: dict[str, Any]) -> str:
    """Return the summary of a request whose group can never have a supplier."""
    roots = {"total": 2, "more": False, "with_candidates": 0}
    groups = [{"suffix": suffix, "filters": filters}]
    return summarize({"has_candidates": False, "kind": "impossible", "roots": roots, "groups": groups})


@pytest.mark.parametrize(("suffix", "where"), [("", ""), ("_A", " for the group _A")])
def test_a_capacity_is_that_of_a_single_provider(suffix: str, where: str) -> None:
    capacity = {"code": "capacity", "resource_class": "VCPU", "wanted": 70, "best": 60, "alone": 0, "left": 0}
    sentence = f"No single provider has a capacity of 70 VCPU{where}: the largest has 60."
    assert _impossible(suffix, capacity) == f"No candidates among 2 hosts. {sentence}"


@pytest.mark.parametrize(
    ("suffix", "supplier"), [("", "host has everything"), ("_A", "provider has everything for the group _A")]
)
def test_several_providers_of_a_host_may_supply_the_unsuffixed_group(suffix: str, supplier: str) -> None:
    vcpu = {"code": "inventory", "resource_class": "VCPU", "query": "VCPU:1", "alone": 1, "left": 1}
    pgpu = {"code": "inventory", "resource_class": "PGPU", "query": "PGPU:1", "alone": 1, "left": 0}
    assert f"No {supplier} at the same time (VCPU:1, PGPU:1)" in _impossible(suffix, vcpu, pgpu)
