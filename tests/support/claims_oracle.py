"""An oracle for POST /claims: it follows the placements of a response over a cloud in memory, one by one.

It implements `docs/spec/extensions.md 5.1` with the rules of `tests/support/oracle.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.cloud import SHARING, Cloud
from tests.support.fits_oracle import claimed
from tests.support.oracle import Candidate, Request, candidates, ordered_places, rank, read_candidate


def consumer(uuid: str, generation: int | None = None) -> dict[str, Any]:
    """Return a consumer as the body of POST /claims has it."""
    return {
        "uuid": uuid,
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
        "consumer_generation": generation,
    }


def root_name(cloud: Cloud, candidate: Candidate) -> str:
    """Return the first root by uuid of the suppliers that do not share; if all share, of all."""
    suppliers = [cloud.provider(name) for name, _, _ in candidate.amounts]
    own = [provider for provider in suppliers if SHARING not in provider.traits]
    return min((cloud.root(provider) for provider in own or suppliers), key=lambda root: root.uuid).name


def first_candidates(cloud: Cloud, request: Request) -> set[Candidate]:
    """Return the candidates that the next consumer may get."""
    if request.order_by in (None, "random"):
        ranked = {candidate: rank(cloud, request, candidate) for candidate in candidates(cloud, request)}
        return {candidate for candidate, each in ranked.items() if each == min(ranked.values())}
    return {candidate for _, candidate in next(iter(ordered_places(cloud, request)), set())}


def follow(cloud: Cloud, request: Request, claims: Sequence[Mapping[str, Any]]) -> Cloud:
    """Return the cloud after the placements of a response; each must be the best one of what is left."""
    for claim in claims:
        entry = {key: claim[key] for key in ("allocations", "mappings")}
        candidate = read_candidate(cloud, request, entry)
        expected = first_candidates(cloud, request)
        assert candidate in expected, f"{candidate} instead of one of {sorted(map(str, expected))}"
        assert claim["root"]["name"] == root_name(cloud, candidate)
        assert claim["root"]["uuid"] == cloud.provider(claim["root"]["name"]).uuid
        cloud = claimed(cloud, candidate.amounts)
    return cloud
