"""Allocation candidates (`spec/candidates.md`)."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from flask import Blueprint, Response, current_app, g

from placement_svc.api.context import database, load_pairs
from placement_svc.db import tally
from placement_svc.db.search.candidates import Found, find_candidates
from placement_svc.domain.candidates import Candidate, Supplier
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import dumps, respond
from placement_svc.http.microversion import since
from placement_svc.schemas.allocation_candidates import check_size, parse_request

bp = Blueprint("allocation_candidates", __name__)


@bp.get("/allocation_candidates")
@endpoint("allocation_candidates:list", introduced="1.10", checks_accept=True)
def list_candidates() -> Response:
    """List the combinations of providers that can supply what the query asks."""
    pairs = load_pairs()
    check_size(pairs, current_app.config["MAX_GROUPS"])
    wanted = parse_request(pairs, g.microversion)
    found = database().read(find_candidates, wanted, one_per_tree=not since("1.29"))
    shape = _Shape(wanted)
    return caching.stamp(respond(shape.pieces(found)), caching.now())


class _Shape:
    """How the answer looks at the microversion of the present request."""

    def __init__(self, wanted: CandidatesRequest) -> None:
        self.as_list = not since("1.12")
        self.shows_mappings = since("1.34")
        self.shows_traits = since("1.17")
        self.shows_trees = since("1.29")
        self.classes: set[str] | None = (
            None if since("1.27") else {name for group in wanted.groups for name in group.resources}
        )

    def pieces(self, found: Found) -> Iterator[bytes]:
        """Yield the answer's JSON piece by piece: it may be long, and is never in memory as a whole."""
        suppliers: dict[int, Supplier] = {}
        count = 0
        yield b'{"allocation_requests":['
        for count, candidate in enumerate(found.candidates, 1):
            suppliers.update((s.id, s) for s in candidate.suppliers_of_amounts())
            yield (b"," if count > 1 else b"") + dumps(self._allocation_request(candidate))
        tally.current().candidates = count
        summaries = {s.uuid: self._summary(s) for s in self._summarized(found, suppliers.values())}
        yield b'],"provider_summaries":' + dumps(summaries) + b"}"

    def _allocation_request(self, candidate: Candidate) -> dict[str, Any]:
        allocations = candidate.allocations()
        shown: dict[str, Any] = {}
        if self.as_list:
            shown["allocations"] = [
                {"resource_provider": {"uuid": uuid}, "resources": amounts}
                for uuid, amounts in allocations.items()
            ]
        else:
            shown["allocations"] = {uuid: {"resources": amounts} for uuid, amounts in allocations.items()}
        if self.shows_mappings:
            shown["mappings"] = candidate.mappings()
        return shown

    def _summarized(self, found: Found, suppliers: Collection[Supplier]) -> Iterable[Supplier]:
        """Return whom to summarize: whole trees, before 1.29 those alone who supply something."""
        if not self.shows_trees:
            return suppliers
        root_ids = {supplier.root_id for supplier in suppliers}
        return (provider for provider in found.providers.values() if provider.root_id in root_ids)

    def _summary(self, provider: Supplier) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "resources": {
                name: {"capacity": resource.capacity, "used": resource.used}
                for name, resource in provider.resources.items()
                if self.classes is None or name in self.classes
            }
        }
        if self.shows_traits:
            shown["traits"] = provider.traits
        if self.shows_trees:
            shown["parent_provider_uuid"] = provider.parent_uuid
            shown["root_provider_uuid"] = provider.root_uuid
        return shown
