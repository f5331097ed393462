"""The answer to a request for allocation candidates, as JSON text (`docs/spec/candidates.md 4`).

There may be a million candidates, and thousands of providers are told with them. So the text is made
piece by piece, and of what is JSON already or has nothing in it to be escaped.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, islice
from operator import itemgetter
from typing import Any

from placement_svc.db.search.candidates import Found
from placement_svc.db.search.trees import TreeProvider
from placement_svc.domain.demands import allocations_of, mappings_of
from placement_svc.http.json import dumps
from placement_svc.http.microversion import since
from placement_svc.observability import request_stats

AT_ONCE = 100
"""How many candidates, or providers, make one piece of an answer."""

FORMS = 1000
"""How many forms are kept while an answer is made."""

_STAND_IN = re.compile("<([0-9]+)>")
"""Where a uuid will stand in a form: no name in it has such brackets."""

Form = tuple[str, Callable[[Sequence[str]], Any]]
"""The JSON of candidates, with a ``%s`` for each uuid; and what picks these from those of the suppliers."""


class Answer:
    """An answer as it looks at the microversion of the present request."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.as_list = not since("1.12")
        self.shows_mappings = since("1.34")
        self.shows_traits = since("1.17")
        self.shows_trees = since("1.29")
        self.suppliers: set[int] = set()
        """The ids of who supplies anything, as far as candidates have been told."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the text."""
        yield b'{"allocation_requests":['
        yield from _joined(self._allocation_requests())
        yield b'],"provider_summaries":{'
        yield from _joined(self._summaries())
        yield b"}}"

    def _allocation_requests(self) -> Iterator[str]:
        uuids = self.found.trees.uuids
        supplies = [bool(demand.resources) for demand in self.found.demands]
        form_of = lru_cache(FORMS)(self._form)
        counts = request_stats.current()
        counts.candidates = 0
        for candidate in self.found.candidates:
            counts.candidates += 1
            self.suppliers.update(compress(candidate, supplies))
            text, pick = form_of(tuple(map(candidate.index, candidate)))
            yield text % pick([uuids[id_] for id_ in candidate])

    def _form(self, alike: tuple[int, ...]) -> Form:
        """Return the form of candidates that are alike: only the uuids of their suppliers differ.

        `alike` has, for each demand, the index of the first one with the same supplier.
        """
        shown = dumps(self._allocation_request([f"<{index}>" for index in alike])).decode()
        gaps = map(int, _STAND_IN.findall(shown))
        return _STAND_IN.sub("%s", shown), itemgetter(*gaps)

    def _allocation_request(self, uuids: Sequence[str]) -> dict[str, Any]:
        demands = self.found.demands
        allocations = allocations_of(demands, uuids)
        shown: dict[str, Any] = {}
        if self.as_list:
            shown["allocations"] = [
                {"resource_provider": {"uuid": uuid}, "resources": amounts}
                for uuid, amounts in allocations.items()
            ]
        else:
            shown["allocations"] = {uuid: {"resources": amounts} for uuid, amounts in allocations.items()}
        if self.shows_mappings:
            shown["mappings"] = mappings_of(demands, uuids)
        return shown

    def _summaries(self) -> Iterator[str]:
        uuids = self.found.trees.uuids
        traits: dict[int, str] = {}
        for names, provider_ids in self.found.trees.trait_sets:
            traits.update(dict.fromkeys(provider_ids, self._traits(names)))
        no_traits = self._traits([])
        resources = self.found.trees.resources
        place = ""
        for id_, uuid, parent_id, root_id in self._told():
            if self.shows_trees:
                parent = "null" if parent_id is None else f'"{uuids[parent_id]}"'
                place = f',"parent_provider_uuid":{parent},"root_provider_uuid":"{uuids[root_id]}"'
            yield f'"{uuid}":{{"resources":{{{resources.get(id_, "")}}}{traits.get(id_, no_traits)}{place}}}'

    def _traits(self, names: Sequence[str]) -> str:
        return f',"traits":{dumps(names).decode()}' if self.shows_traits else ""

    def _told(self) -> Iterable[TreeProvider]:
        """Return who has a summary: whole trees, before 1.29 only those who supply something."""
        providers = self.found.trees.providers
        if not self.shows_trees:
            return [providers[id_] for id_ in sorted(self.suppliers)]
        roots = {providers[id_][3] for id_ in self.suppliers}
        return [provider for provider in providers.values() if provider[3] in roots]


def _joined(texts: Iterator[str]) -> Iterator[bytes]:
    """Yield texts, with commas between them, many in a piece."""
    comma = b""
    while some := ",".join(islice(texts, AT_ONCE)):
        yield comma + some.encode()
        comma = b","
