"""How often a request can be claimed: the suppliers of the whole cloud (`docs/spec/extensions.md 4`)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, select

from placement_svc.db.connections.engine import driver_rows
from placement_svc.db.filters import any_of_ids, is_any
from placement_svc.db.independent_fits import count_independent, has_independent_demands
from placement_svc.db.search.anchors import Anchor, ScanCursor, find_anchors
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.ignored_consumers import InventoryReader, read_freed_inventories
from placement_svc.db.search.sharing import SharedSupplies, find_shared_supplies
from placement_svc.db.search.simulated_suppliers import (
    SimulatedSuppliers,
    class_ids_of,
    read_suppliers,
    suppliers_by_uuid,
)
from placement_svc.db.serial_plans import use_serial_plans
from placement_svc.db.stranded import free_amounts
from placement_svc.db.tables import aggregates, provider_aggregates, resource_providers
from placement_svc.domain.errors import BadQueryValue
from placement_svc.domain.fits import (
    CountedRoots,
    Fits,
    FitsRequest,
    RootFits,
    binding_of,
    requested_amounts,
)
from placement_svc.domain.simulated_claims.claiming import claim_all
from placement_svc.domain.simulated_claims.split_claiming import claim_all_with_splits
from placement_svc.domain.wording import list_sorted_names


def count_fits(connection: Connection, fits_request: FitsRequest, options: SearchOptions) -> Fits:
    """Return how often a request can be claimed; raise `Invalid` for unknown names and uuids.

    Four statements: names, a setting, the claims of all roots, and what is free in all. If the claims have to
    be simulated, anchors and suppliers take the place of the third, or follow it. One more each for
    sharing providers, `without`, aggregates, and ignored consumers.
    """
    options = options.with_own_memory()
    deadline = options.deadline
    freed = read_freed_inventories(connection, fits_request.request.ignore_consumer, deadline, options.memory)
    reader = InventoryReader(connection, freed)
    criteria = resolve_criteria(connection, fits_request.request, one_provider_per_tree=False, freed=freed)
    removed_root_ids = _root_ids(connection, fits_request.without)
    shared_supplies = find_shared_supplies(connection, criteria, deadline, options.memory)
    use_serial_plans(connection)
    counted = None
    if not freed and not shared_supplies and has_independent_demands(criteria):
        counted = count_independent(connection, criteria, fits_request, removed_root_ids, options)
    if counted is None:
        anchors = _find_anchors(connection, criteria, shared_supplies, removed_root_ids, options)
        suppliers = read_suppliers(connection, criteria, anchors, options, freed=freed)
        counted = _simulate_claims(criteria, anchors, suppliers, fits_request, options)
    fits_by_root = {id_: root.fits for id_, root in counted.roots.items()}
    count = sum(fits_by_root.values())
    free = free_amounts(reader, criteria, removed_root_ids, deadline)
    class_ids = class_ids_of(criteria)
    amounts = requested_amounts(fits_request.request)
    stranded = {name: free[class_ids[name]] - count * amount for name, amount in amounts.items()}
    return Fits(
        count=count,
        is_exact=counted.is_exact,
        roots=sorted(counted.roots.values(), key=lambda root: -root.fits),
        stranded={name: amount for name, amount in stranded.items() if amount},
        aggregates=_by_aggregate(connection, fits_by_root) if fits_request.by_aggregate else None,
    )


def _simulate_claims(
    criteria: SearchCriteria,
    anchors: Sequence[Anchor],
    suppliers: SimulatedSuppliers,
    fits_request: FitsRequest,
    options: SearchOptions,
) -> CountedRoots:
    """Claim the request at each anchor until it has no candidate."""
    deadline = options.deadline
    roots = suppliers_by_uuid(anchors, suppliers.uuids, deadline)
    roots.sort(key=lambda root: suppliers.uuids[root.id])
    claim = claim_all_with_splits if criteria.rules.splittable else claim_all
    run = claim(
        criteria.rules, roots, suppliers.inventories, fits_request.max_claims, deadline, options.memory
    )
    classes = list(requested_amounts(fits_request.request))
    found = {
        claims.root_id: RootFits(
            suppliers.uuids[claims.root_id],
            suppliers.names[claims.root_id],
            claims.count,
            binding_of(claims, run, classes),
        )
        for claims in deadline.checked(run.claims)
    }
    return CountedRoots(found, run.is_exact)


def _root_ids(connection: Connection, uuids: Sequence[str]) -> frozenset[int]:
    """Return the root ids of the providers with these uuids; raise `Invalid` for an unknown one."""
    if not uuids:
        return frozenset()
    table = resource_providers.c
    found = dict(
        driver_rows(connection, select(table.uuid, table.root_id).where(is_any(table.uuid, uuids)), {})
    )
    unknown = [uuid for uuid in uuids if uuid not in found]
    if unknown:
        raise BadQueryValue(f"Invalid 'without': No such resource provider(s): {list_sorted_names(unknown)}.")
    return frozenset(found.values())


def _find_anchors(
    connection: Connection,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    removed_root_ids: Collection[int],
    options: SearchOptions,
) -> list[Anchor]:
    """Return all anchors with their suppliers, as if the trees of `removed_root_ids` did not exist."""
    remaining: SharedSupplies = {
        each: left
        for each, found in shared_supplies.items()
        if (left := tuple(supply for supply in found if supply.root_id not in removed_root_ids))
    }
    anchors, _ = find_anchors(
        connection,
        criteria,
        remaining,
        ScanCursor(),
        max_anchors=None,
        deadline=options.deadline,
        memory=options.memory,
    )
    return [anchor for anchor in anchors if anchor.id not in removed_root_ids]


def _by_aggregate(connection: Connection, fits_by_root: Mapping[int, int]) -> Mapping[str, int]:
    """Return the claims by the aggregates of the roots: those with most first, then by uuid."""
    member = provider_aggregates.c
    query = (
        select(aggregates.c.uuid, member.provider_id)
        .join(aggregates, aggregates.c.id == member.aggregate_id)
        .where(member.provider_id == any_of_ids(fits_by_root))
    )
    counts = Counter[str]()
    for uuid, root_id in driver_rows(connection, query, {}):
        counts[uuid] += fits_by_root[root_id]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
