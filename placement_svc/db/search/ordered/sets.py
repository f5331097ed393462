"""The roots of some sets in the order of the best key that their trees can have, one statement for a batch.

It reads all roots of the sets (`root_sets`), and returns those that come next.
"""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    String,
    Text,
    and_,
    bindparam,
    cast,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from placement_svc.db.filters import free_amount
from placement_svc.db.prepared import FixedStatement
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.root_sets import SetSize, roots_in_sets
from placement_svc.db.search.sharing import Supplies
from placement_svc.db.search.tree_conditions import tree_aggregates
from placement_svc.db.tables import inventories, resource_providers

STATEMENT_CACHE_SIZE = 64
"""Statements that are cached: schedulers repeat the requests for the same flavors."""

_root = resource_providers.alias("root").c
_inventory_row = inventories.alias("inventory")
_inventory = _inventory_row.c
_free = free_amount(_inventory_row)


@dataclass(frozen=True, kw_only=True)
class OrderedSets:
    """The sets of a search, and the order of their roots.

    The key is what is free of the class `class_id` in an inventory with at least `least_amount`: with
    `spreads`, the negative of the greatest amount, otherwise the least one. Roots of the same key are in the
    order of a text: the uuid, or with `is_random` a hash of the id. Without a class, all keys are 0. With
    `uses_amounts`, the trees also have the amounts of each demand. With `is_served`, the key can also be that
    of a sharing provider.
    """

    criteria: SearchCriteria
    supplies: Supplies
    class_id: int | None
    least_amount: int
    spreads: bool
    is_random: bool
    uses_amounts: bool
    is_served: bool

    def statement(self, count: int) -> FixedStatement:
        """Return the statement for the next `count` roots; the search must have a set.

        Its rows have the id, the key and the text of each root. The parameters `after_key` and `after_text`
        are those of the last root before, and `seed` is an integer that the hashes depend on. `served_keys`
        is a JSON object with the best key of the sharing providers of each aggregate, by its id.
        """
        build = _cached_statement if self.criteria.is_common else _build_statement
        return build(self, count)


def _build_statement(sets: OrderedSets, count: int) -> FixedStatement:
    in_sets = roots_in_sets(sets.criteria, dict(sets.supplies), SetSize.ANY, uses_amounts=sets.uses_amounts)
    assert in_sets is not None
    after_key, after_text = bindparam("after_key", type_=BigInteger), bindparam("after_text", type_=String)
    # The OFFSET makes PostgreSQL compute the key of each root once.
    keyed = _select_with_keys(sets, in_sets).offset(0).subquery("roots")
    # The text of a root takes as long as its key, so it is only computed if it may decide.
    first = (
        select(keyed.c.root_id, keyed.c.key)
        .where(or_(keyed.c.key > after_key, and_(keyed.c.key == after_key, _text(sets, keyed) > after_text)))
        .order_by(keyed.c.key)
        .fetch(count, with_ties=True)
        .subquery("first_roots")
    )
    text = _text(sets, first).label("text")
    query = select(first, text).order_by(first.c.key, text).limit(count)
    types = {"after_key": "bigint", "after_text": "text"}
    types |= {"seed": "bigint"} if sets.is_random else {}
    types |= {"served_keys": "jsonb"} if sets.is_served else {}
    return FixedStatement(query, types, prepares_at_first_use=False)


# Building a statement costs more than running it.
_cached_statement = lru_cache(STATEMENT_CACHE_SIZE)(_build_statement)


def _select_with_keys(sets: OrderedSets, in_sets: FromClause) -> Select[int, int]:
    """Return the query for the roots with their keys; a key is null if the tree cannot give the least amount.

    Sets of amounts read whole classes, and so does their query for the keys: to look up the inventories of
    each root takes longer if the sets have most roots.
    """
    if sets.class_id is None:
        return select(in_sets.c.root_id, literal(0, BigInteger).label("key"))
    best = (-func.max(_free) if sets.spreads else func.min(_free)).label("key")
    keys = select(best).where(_inventory.resource_class_id == sets.class_id, _free >= sets.least_amount)
    joined: FromClause = in_sets
    own: ColumnElement[int]
    if sets.uses_amounts:
        all_keys = keys.add_columns(_inventory.root_id).group_by(_inventory.root_id).subquery("all_keys")
        joined = in_sets.outerjoin(all_keys, all_keys.c.root_id == in_sets.c.root_id)
        own = all_keys.c.key
    else:
        own = keys.where(_inventory.root_id == in_sets.c.root_id).scalar_subquery()
    key = func.least(own, _served_key(in_sets)) if sets.is_served else own
    return select(in_sets.c.root_id, key.label("key")).select_from(joined)


def _served_key(in_sets: FromClause) -> ColumnElement[int]:
    """Return the best key of the sharing providers that serve the tree of a root; null if there is none."""
    keys = cast(bindparam("served_keys", type_=String), JSONB)
    key = cast(keys.op("->>")(cast(tree_aggregates.c.aggregate_id, Text)), BigInteger)
    in_tree = select(func.min(key)).where(tree_aggregates.c.root_id == in_sets.c.root_id)
    return in_tree.correlate(in_sets).scalar_subquery()


def _text(sets: OrderedSets, roots: FromClause) -> ColumnElement[str]:
    """Return the text that orders roots of the same key."""
    if sets.is_random:
        return _hash(roots.c.root_id)
    return select(_root.uuid).where(_root.id == roots.c.root_id).scalar_subquery()


def _hash(root_id: ColumnElement[int]) -> ColumnElement[str]:
    """Return a text that puts roots in a random order, behind the texts of `OrderedRoots.drawn`."""
    hashed = func.hashint4extended(root_id, bindparam("seed", type_=BigInteger))
    return func.concat("1", func.lpad(func.to_hex(hashed), 16, "0"))
