"""Allocation candidates (`spec/candidates.md`)."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from flask import Blueprint, Response, g

from placement_svc.api.context import database, load_pairs, settings
from placement_svc.db import tally
from placement_svc.db.search.candidates import Found, Manner, find_candidates
from placement_svc.db.search.trees import TreeProvider
from placement_svc.domain.candidates import Candidate
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.demands import allocations_of, mappings_of
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import dumps, respond
from placement_svc.http.microversion import since
from placement_svc.schemas.allocation_candidates import check_size, parse_request

bp = Blueprint("allocation_candidates", __name__)

SUMMARIES_AT_ONCE = 1000
"""How many provider summaries make one piece of an answer."""


@bp.get("/allocation_candidates")
@endpoint("allocation_candidates:list", introduced="1.10", checks_accept=True)
def list_candidates() -> Response:
    """List the combinations of providers that can supply what the query asks."""
    pairs = load_pairs()
    check_size(pairs, settings().max_groups)
    wanted = parse_request(pairs, g.microversion)
    found = database().read(find_candidates, wanted, _manner(wanted))
    return caching.stamp(respond(_Shape().pieces(found)), caching.now())


def _manner(wanted: CandidatesRequest) -> Manner:
    configured = settings()
    asked_for = frozenset(name for group in wanted.groups for name in group.resources)
    return Manner(
        deadline=Deadline.of(configured.request_deadline),
        one_per_tree=not since("1.29"),
        shown=None if since("1.27") else asked_for,
        randomize=configured.randomize_candidates,
        depth_first=configured.candidates_strategy == "depth-first",
        maximum=configured.max_candidates or None,
    )


class _Shape:
    """How the answer looks at the microversion of the present request."""

    def __init__(self) -> None:
        self.as_list = not since("1.12")
        self.shows_mappings = since("1.34")
        self.shows_traits = since("1.17")
        self.shows_trees = since("1.29")

    def pieces(self, found: Found) -> Iterator[bytes]:
        """Yield the answer's JSON piece by piece: it may be long, and is never in memory as a whole."""
        suppliers: set[int] = set()
        supplying = [index for index, demand in enumerate(found.demands) if demand.resources]
        count = 0
        yield b'{"allocation_requests":['
        for count, candidate in enumerate(found.candidates, 1):
            suppliers.update(candidate[index] for index in supplying)
            yield (b"," if count > 1 else b"") + dumps(self._allocation_request(found, candidate))
        tally.current().candidates = count
        yield b'],"provider_summaries":{'
        summaries = self._summaries(found, suppliers)
        yield ",".join(itertools.islice(summaries, SUMMARIES_AT_ONCE)).encode()
        while some := ",".join(itertools.islice(summaries, SUMMARIES_AT_ONCE)):
            yield b"," + some.encode()
        yield b"}}"

    def _allocation_request(self, found: Found, candidate: Candidate) -> dict[str, Any]:
        uuids = [found.trees.providers[id_].uuid for id_ in candidate]
        allocations = allocations_of(found.demands, uuids)
        shown: dict[str, Any] = {}
        if self.as_list:
            shown["allocations"] = [
                {"resource_provider": {"uuid": uuid}, "resources": amounts}
                for uuid, amounts in allocations.items()
            ]
        else:
            shown["allocations"] = {uuid: {"resources": amounts} for uuid, amounts in allocations.items()}
        if self.shows_mappings:
            shown["mappings"] = mappings_of(found.demands, uuids)
        return shown

    def _summaries(self, found: Found, suppliers: set[int]) -> Iterator[str]:
        """Yield the summaries of whole trees, before 1.29 of those alone who supply something.

        They are put together as text: there are thousands, and all that varies comes as JSON already
        or has nothing in it to be escaped.
        """
        providers = found.trees.providers
        traits = {
            ids: f',"traits":{dumps(names).decode()}' if self.shows_traits else ""
            for ids, names in found.trait_names.items()
        }
        told: Iterable[TreeProvider]
        if self.shows_trees:
            root_ids = {providers[id_].root_id for id_ in suppliers}
            told = (provider for provider in providers.values() if provider.root_id in root_ids)
        else:
            told = [providers[id_] for id_ in sorted(suppliers)]
        place = ""
        for _, uuid, parent_id, root_id, trait_ids, resources, *_ in told:
            if self.shows_trees:
                parent = "null" if parent_id is None else f'"{providers[parent_id].uuid}"'
                root = providers[root_id].uuid
                place = f',"parent_provider_uuid":{parent},"root_provider_uuid":"{root}"'
            yield f'"{uuid}":{{"resources":{{{resources or ""}}}{traits[trait_ids]}{place}}}'
