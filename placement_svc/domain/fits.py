"""How often a request can be claimed (`docs/spec/extensions.md 4`)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement_svc.domain.groups import CandidatesRequest
from placement_svc.domain.pages import Page, PageRequest, Position
from placement_svc.domain.simulated_claims.amounts import RootClaims
from placement_svc.domain.simulated_claims.run import ClaimRun

DEFAULT_MAX = 100_000
"""The number of claims at which counting stops, unless the request sets another one."""

OTHER = "other"
"""The binding of a root at which the maximum number of claims ended the count."""

END_OF_COUNT = "end of the count"
"""The text that people read instead of `OTHER`."""


@dataclass(frozen=True, kw_only=True)
class FitsRequest:
    """A request whose claims are to be counted, up to `max_claims`.

    The trees of the providers with the uuids `without` count as absent. With `by_aggregate`, the claims are
    also counted by the aggregates of the roots.
    """

    request: CandidatesRequest
    max_claims: int = DEFAULT_MAX
    without: tuple[str, ...] = ()
    by_aggregate: bool = False


@dataclass(frozen=True)
class RootFits:
    """How many claims fit at a root, and the resource class that allows no more of them, or `OTHER`."""

    uuid: str
    name: str
    fits: int
    binding: str


@dataclass(frozen=True)
class CountedRoots:
    """The roots with claims by id, ordered by uuid, and whether no other choice gives more claims."""

    roots: Mapping[int, RootFits]
    is_exact: bool


@dataclass(frozen=True, kw_only=True)
class Fits:
    """How many claims fit.

    `roots` has the roots with claims: those with most first, then by uuid. `stranded` has the amounts that
    remain free, by class. `aggregates` has the claims by aggregate, None if they are not requested.
    """

    count: int
    is_exact: bool
    roots: Sequence[RootFits]
    stranded: Mapping[str, int]
    aggregates: Mapping[str, int] | None

    @property
    def binding(self) -> Mapping[str, int]:
        """The claims by the binding of their root."""
        counts = Counter[str]()
        for root in self.roots:
            counts[root.binding] += root.fits
        return counts


def find_page(fits: Fits, page: PageRequest) -> Page[RootFits]:
    """Return a page of the roots with claims."""
    following = fits.roots
    if page.after is not None:
        after = _sort_key(page.after.value, page.after.key)
        following = [root for root in fits.roots if _sort_key(root.fits, root.uuid) > after]
    elements = following[: page.limit]
    last = Position(elements[-1].uuid, elements[-1].fits) if elements else None
    return Page(elements, last, len(elements) < len(following))


def _sort_key(count: Any, uuid: str | None) -> tuple[int, str | None]:
    """Return the value by which roots are sorted: those with most claims are first, then by uuid."""
    return -count, uuid


def requested_amounts(request: CandidatesRequest) -> dict[str, int]:
    """Return the amounts of one claim by resource class, in the order of the request."""
    amounts: dict[str, int] = {}
    for group in request.groups:
        for name, amount in group.resources.items():
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def binding_of(claims: RootClaims, run: ClaimRun, classes: Sequence[str]) -> str:
    """Return the first of `classes` of which the last claim at a root does not fit once more, or `OTHER`."""
    if claims.is_cut:
        return OTHER
    free = run.inventories.free
    exhausted = {name for (id_, name), amount in claims.last.items() if free[id_, name] < amount}
    return next(name for name in classes if name in exhausted)
