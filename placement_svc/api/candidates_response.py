"""The response to a request for allocation candidates, as JSON text (`docs/spec/candidates.md 4`).

There may be a million candidates and thousands of summaries. So the text is generated in pieces, and put
together from parts that are JSON already or need no escaping.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, islice
from operator import itemgetter
from typing import Any

from placement_svc.db.search.candidates import SearchResult
from placement_svc.db.search.trees import ClassInventories, TraitSet, TreeProvider
from placement_svc.domain.combining.split_suppliers import divided
from placement_svc.domain.demands import Demand, allocations_of, mappings_of
from placement_svc.domain.execution import request_stats
from placement_svc.http.json import STREAMING_THRESHOLD, dumps
from placement_svc.http.microversion import since

ITEMS_PER_PIECE = 100
"""The most allocation requests, or summaries, in one piece of a response."""

PIECE_LENGTH = 100_000
"""The number of characters at which a piece ends, whatever the number of items."""

SUMMARY_LENGTH = 200
"""The number of characters of a summary besides its resources and traits, at most."""

TEMPLATE_CACHE_SIZE = 1000
"""How many templates are cached while a response is generated."""

_PLACEHOLDER = re.compile("<([0-9]+)>")
"""The placeholder of a uuid: no name contains such brackets."""

Template = tuple[str, Callable[[Sequence[str]], Any]]
"""The JSON of an allocation request with a ``%s`` for each uuid, and a function that picks these uuids from
the uuids of the suppliers.
"""


class CandidatesResponse:
    """The response in the format of the current request's microversion.

    Its allocation requests can be generated while the inventories of the summaries are being fetched.
    """

    def __init__(self, result: SearchResult) -> None:
        self._result = result
        self._shows_list = not since("1.12")
        self._shows_mappings = since("1.34")
        self._shows_traits = since("1.17")
        self._shows_trees = since("1.29")
        self._supplier_ids: set[int] = set()
        """The ids of the providers that supply anything in the allocation requests generated so far."""
        self._allocation_requests = _comma_separated(self._allocation_request_texts(self._supplier_ids))
        self._generated: list[bytes] = []

    def generate_while_fetching(self) -> None:
        """Generate allocation requests until the inventories are there; keep no more than `respond` does."""
        while self._result.is_fetching() and len(self._generated) < STREAMING_THRESHOLD:
            piece = next(self._allocation_requests, None)
            if piece is None:
                return
            self._generated.append(piece)

    def pieces(self) -> Iterator[bytes]:
        """Yield the text."""
        yield b'{"allocation_requests":['
        yield from self._generated
        yield from self._allocation_requests
        yield b'],"provider_summaries":{'
        # All allocation requests have been generated.
        yield from self._summaries(self._supplier_ids)
        yield b"}}"

    def _allocation_request_texts(self, supplier_ids: set[int]) -> Iterator[str]:
        """Yield the JSON of each allocation request, and add its suppliers to `supplier_ids`."""
        uuids = self._result.trees.uuids
        has_resources = [bool(demand.resources) for demand in self._result.demands]
        all_have_resources = all(has_resources)
        template_of = lru_cache(TEMPLATE_CACHE_SIZE)(self._template)
        stats = request_stats.current()
        stats.candidates = 0
        for candidate in self._result.deadline.checked(self._result.candidates):
            stats.candidates += 1
            if self._result.may_split:
                demands, ids = divided(self._result.demands, candidate)
                supplier_ids.update(compress(ids, [bool(demand.resources) for demand in demands]))
                text, pick = template_of(tuple(map(ids.index, ids)), tuple(demands))
                yield text % pick([uuids[id_] for id_ in ids])
                continue
            supplier_ids.update(candidate if all_have_resources else compress(candidate, has_resources))
            text, pick = template_of(tuple(map(candidate.index, candidate)))
            yield text % pick([uuids[id_] for id_ in candidate])

    def _template(
        self, first_demands: tuple[int, ...], demands: tuple[Demand, ...] | None = None
    ) -> Template:
        """Return the template of all candidates that assign the same demands to a common supplier.

        For each demand, `first_demands` has the index of the first demand with the same supplier. Such
        candidates differ only in the uuids of their suppliers. `demands` are those of a candidate whose
        classes may be split (None: those of the request).
        """
        placeholders = [f"<{index}>" for index in first_demands]
        body = self._allocation_request(demands or self._result.demands, placeholders)
        text = dumps(body).decode()
        indexes = map(int, _PLACEHOLDER.findall(text))
        return _PLACEHOLDER.sub("%s", text), itemgetter(*indexes)

    def _allocation_request(self, demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, Any]:
        allocations = allocations_of(demands, uuids)
        body: dict[str, Any] = {}
        if self._shows_list:
            body["allocations"] = [
                {"resource_provider": {"uuid": uuid}, "resources": amounts}
                for uuid, amounts in allocations.items()
            ]
        else:
            body["allocations"] = {uuid: {"resources": amounts} for uuid, amounts in allocations.items()}
        if self._shows_mappings:
            body["mappings"] = mappings_of(demands, uuids)
        return body

    def _summaries(self, supplier_ids: Collection[int]) -> Iterator[bytes]:
        """Yield the members of `provider_summaries`."""
        trees = self._result.trees
        resources = _resources(trees.inventories)
        traits = self._traits(trees.trait_sets)
        longest = max(map(len, resources.values()), default=0) + max(map(len, traits.values()), default=0)
        count = max(1, min(ITEMS_PER_PIECE, PIECE_LENGTH // (longest + SUMMARY_LENGTH)))
        providers = self._summarized(supplier_ids)
        for start in range(0, len(providers), count):
            self._result.deadline.check()
            piece = ",".join(self._summary_texts(providers[start : start + count], resources, traits))
            yield f"{',' if start else ''}{piece}".encode()

    def _summary_texts(
        self, providers: Sequence[TreeProvider], resources: Mapping[int, str], traits: Mapping[int, str]
    ) -> Sequence[str]:
        """Return the summaries of providers as members of `provider_summaries`."""
        uuids = self._result.trees.uuids
        no_traits = self._traits_member([])
        tree_members = ""
        texts = []
        for id_, uuid, parent_id, root_id in providers:
            if self._shows_trees:
                parent = "null" if parent_id is None else f'"{uuids[parent_id]}"'
                tree_members = f',"parent_provider_uuid":{parent},"root_provider_uuid":"{uuids[root_id]}"'
            start = f'"{uuid}":{{"resources":{{{resources.get(id_, "")}}}{traits.get(id_, no_traits)}'
            texts.append(f"{start}{tree_members}}}")
        return texts

    def _traits(self, trait_sets: Iterable[TraitSet]) -> dict[int, str]:
        """Return the member `traits` of each provider that has any, by id."""
        members: dict[int, str] = {}
        for names, provider_ids in trait_sets:
            members.update(dict.fromkeys(provider_ids, self._traits_member(names)))
        return members

    def _traits_member(self, names: Sequence[str]) -> str:
        return f',"traits":{dumps(names).decode()}' if self._shows_traits else ""

    def _summarized(self, supplier_ids: Collection[int]) -> Sequence[TreeProvider]:
        """Return the providers that have a summary: whole trees, before 1.29 the suppliers alone."""
        providers = self._result.trees.providers
        if not self._shows_trees:
            return [providers[id_] for id_ in sorted(supplier_ids)]
        root_ids = {root_id for _, _, _, root_id in map(providers.__getitem__, supplier_ids)}
        in_order = map(providers.__getitem__, sorted(providers))
        return [provider for provider in in_order if provider[3] in root_ids]


def _resources(inventories: Iterable[ClassInventories]) -> dict[int, str]:
    """Return the members of `resources` in the summary of each provider that has any, by id."""
    members: dict[int, str] = {}
    for resource_class, provider_ids, amounts in inventories:
        member_by_amounts = {each: _resource_member(resource_class, each) for each in set(amounts)}
        for id_, each in zip(provider_ids, amounts, strict=True):
            member = member_by_amounts[each]
            members[id_] = f"{members[id_]},{member}" if id_ in members else member
    return members


def _resource_member(resource_class: str, amounts: str) -> str:
    capacity, used = amounts.split()
    return f'"{resource_class}":{{"capacity":{capacity},"used":{used}}}'


def _comma_separated(texts: Iterator[str]) -> Iterator[bytes]:
    """Yield texts with commas between them, in pieces of at most `ITEMS_PER_PIECE` or `PIECE_LENGTH`."""
    comma = b""
    while piece := _first_texts(texts):
        yield comma + ",".join(piece).encode()
        comma = b","


def _first_texts(texts: Iterator[str]) -> list[str]:
    first = []
    length = 0
    for text in islice(texts, ITEMS_PER_PIECE):
        first.append(text)
        length += len(text)
        if length >= PIECE_LENGTH:
            break
    return first
