"""SQL conditions on one resource provider: its inventories, traits and aggregates.

They are built for every request, so the aliases of tables are shared: creating an alias costs more than the
rest of a condition. Sharing is safe because each condition that uses an alias is a subquery of its own.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    FromClause,
    Integer,
    String,
    TableValuedAlias,
    and_,
    any_,
    bindparam,
    cast,
    column,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.arrays import array_of
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, provider_aggregates, resource_providers
from placement_svc.domain.inventory import ANY_PART, MAX_INTEGER

MAX_SINGLE_CONDITIONS = 8
"""The number of conditions of one kind that a statement states one by one.

It states all further ones as one condition on arrays. PostgreSQL would plan each `EXISTS` as a join, and
1,000 of them for minutes.
"""

MAX_SINGLE_SETS = 4
"""The same for sets of aggregates, as each becomes a join wherever a demand does.

With nine sets in one group, PostgreSQL took 288 MB to plan the statement.
"""

_member_of = shared(provider_aggregates.alias("member_of"))
_any_inventory = shared(inventories.alias("any_inventory"))


def is_any(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of `values`, which are sent as one array parameter.

    SQLAlchemy's `any_` would make a reference cycle, which keeps the values until the garbage collector runs.
    """
    return column == func.any(literal(sorted(values), array_of(column.type)))


def gives_amount(
    inventory: FromClause, resource_class_id: int, amount: int, added_provider_ids: Collection[int] = ()
) -> ColumnElement[bool]:
    """Return the condition that `inventory` is of this class and a new allocation can get `amount` of it.

    The amount can be `ANY_PART`. The inventories of the providers `added_provider_ids` count too. Served by
    the indexes on (root_id, resource_class_id) and on (resource_class_id, max_allocatable), and by the
    primary key.
    """
    if amount > MAX_INTEGER:
        return false()
    can_give = gives_part(inventory) if amount == ANY_PART else fits_units(inventory, amount)
    if added_provider_ids:
        can_give = or_(can_give, is_any(inventory.c.provider_id, added_provider_ids))
    return and_(inventory.c.resource_class_id == resource_class_id, can_give)


def has_free_amount(inventory: FromClause, resource_class_id: int, amount: int) -> ColumnElement[bool]:
    """Return a condition that each inventory meets for which `gives_amount` holds without added providers.

    It ignores the units, so the index on (resource_class_id, root_id, provider_id) answers it alone.
    """
    if amount > MAX_INTEGER:
        return false()
    least = 1 if amount == ANY_PART else amount
    return and_(inventory.c.resource_class_id == resource_class_id, inventory.c.max_allocatable >= least)


def fits_unused(inventory: FromClause, resource_class_id: int, amount: int) -> ColumnElement[bool]:
    """Return the condition that `inventory` is of this class and could give `amount` if nothing were used."""
    if amount > MAX_INTEGER:
        return false()
    largest = unused_amount(inventory)
    units = func.fits_units(amount, inventory.c.min_unit, largest, inventory.c.step_size, type_=Boolean)
    return and_(inventory.c.resource_class_id == resource_class_id, units)


def fits_units(inventory: FromClause, amount: int | ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a new allocation can get `amount` of `inventory`, whatever its class."""
    # max_allocatable is max_unit or, if that is less, the free capacity; PostgreSQL inlines the function,
    # so the condition on it can use the index.
    return func.fits_units(
        amount, inventory.c.min_unit, inventory.c.max_allocatable, inventory.c.step_size, type_=Boolean
    )


def gives_part(inventory: FromClause) -> ColumnElement[bool]:
    """Return the condition that a new allocation can get some amount of `inventory`, whatever its class."""
    # The first condition can use the index.
    return and_(inventory.c.max_allocatable >= 1, inventory.c.max_allocatable >= least_amount(inventory))


def free_amount(inventory: FromClause) -> ColumnElement[int]:
    """Return what is free of `inventory`, whatever its units: negative if it is overcommitted."""
    return inventory.c.capacity - inventory.c.used


def unused_amount(inventory: FromClause) -> ColumnElement[int]:
    """Return what `max_allocatable` would be if nothing of `inventory` were used."""
    return func.least(inventory.c.max_unit, inventory.c.capacity)


def least_amount(inventory: FromClause) -> ColumnElement[int]:
    """Return the smallest amount that the units of `inventory` allow, whether it is free or not."""
    step_size = cast(inventory.c.step_size, BigInteger)
    return (inventory.c.min_unit + step_size - 1) // step_size * step_size


def fits_all(
    provider_id: ColumnElement[int],
    resources: Collection[tuple[int, int]],
    added: Collection[tuple[int, int]] = (),
) -> ColumnElement[bool]:
    """Return the condition that a provider's inventories can give all `resources`, pairs of class id, amount.

    The inventories `added`, pairs of class id and provider id, count too. The statement does not grow.
    """
    if any(amount > MAX_INTEGER for _, amount in resources):
        return false()
    requested = _pairs("requested", "class_id", "amount", resources)
    return count_fitting(provider_id, requested, added_inventories(added)) == len(resources)


def added_inventories(added: Collection[tuple[int, int]]) -> FromClause | None:
    """Return pairs of class id and provider id as a table, None if there are none."""
    return _pairs("added", "class_id", "provider_id", added) if added else None


def count_fitting(
    provider_id: ColumnElement[int], requested: FromClause, added: FromClause | None
) -> ColumnElement[int]:
    """Return how many of the resources `requested` (`class_id`, `amount`) the provider can give.

    The inventories in `added` (`class_id`, `provider_id`; None: none) count too.
    """
    return (
        select(func.count())
        .select_from(_any_inventory)
        .join(requested, requested.c.class_id == _any_inventory.c.resource_class_id)
        .where(
            _any_inventory.c.provider_id == provider_id,
            fits_units_or_added(_any_inventory, requested.c.amount, added),
        )
        .correlate_except(_any_inventory, requested)
        .scalar_subquery()
    )


def fits_units_or_added(
    inventory: FromClause, amount: ColumnElement[int], added: FromClause | None
) -> ColumnElement[bool]:
    """Return the condition that `inventory` can give `amount`, or is in `added` (None: nothing is)."""
    can_give = fits_units(inventory, amount)
    if added is None:
        return can_give
    is_added = exists().where(
        added.c.class_id == inventory.c.resource_class_id, added.c.provider_id == inventory.c.provider_id
    )
    return or_(can_give, is_added.correlate_except(added))


def fits_any(
    inventory: FromClause, resources: Collection[tuple[int, int]], added: Collection[tuple[int, int]]
) -> ColumnElement[bool]:
    """Return the condition that `inventory` can give one of `resources`, or is in `added`.

    The statement does not grow with them.
    """
    possible = [resource for resource in resources if resource[1] <= MAX_INTEGER]
    requested = _pairs("requested", "class_id", "amount", possible)
    can_give = fits_units_or_added(inventory, requested.c.amount, added_inventories(added))
    if any(amount == ANY_PART for _, amount in possible):
        can_give = or_(can_give, and_(requested.c.amount == ANY_PART, gives_part(inventory)))
    return exists().where(requested.c.class_id == inventory.c.resource_class_id, can_give)


def _pairs(table: str, first: str, second: str, pairs: Collection[tuple[int, int]]) -> TableValuedAlias:
    """Return pairs of integers as a table for a FROM clause."""
    arrays = (int_array(pair[index] for pair in pairs) for index in range(2))
    columns = (column(first, Integer), column(second, Integer))
    return func.unnest(*arrays).table_valued(*columns).render_derived(name=table)


def ids_text(ids: Iterable[int]) -> str:
    """Return ids as the text of an array: psycopg2 would send a literal for each element."""
    return f"{{{','.join(map(str, ids))}}}"


def int_array(values: Iterable[int], type_: type[Integer] = Integer) -> ColumnElement[Any]:
    """Return an array that is sent as text."""
    return cast(literal(ids_text(values)), ARRAY(type_))


def any_id(name: str) -> ColumnElement[Any]:
    """Return any id of the array that the parameter `name` has as text; hides how many there are."""
    return _any_hidden(cast(bindparam(name, type_=String), ARRAY(Integer)))


def any_of_ids(ids: Iterable[int]) -> ColumnElement[Any]:
    """Return any of thousands of ids; hides how many there are."""
    return _any_hidden(int_array(ids))


def _any_hidden(array: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return any element of an array; a subquery hides from the planner how many there are.

    It would make an estimate for each of a thousand, and for each table. Now it assumes ten, and uses the
    indexes.
    """
    return func.any(cast(select(array).scalar_subquery(), ARRAY(Integer)))


def held_among(name: str) -> ColumnElement[Any]:
    """Return the array of those traits of a provider whose ids the parameter `name` has as text.

    A provider may have a hundred others.
    """
    held = func.unnest(resource_providers.c.trait_ids, type_=Integer).column_valued("held")
    return func.array(select(held).where(held == any_id(name)).scalar_subquery())


def has_traits(
    provider: FromClause, any_of: Collection[Collection[int]], forbidden: Collection[int] = ()
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions that `provider` has a trait of each set in `any_of` and none of `forbidden`.

    They read the provider's own row, and all traits that are required singly make one condition.
    """
    trait_ids = provider.c.trait_ids
    single = [trait_id for ids in any_of if len(ids) == 1 for trait_id in ids]
    if single:
        yield trait_ids.contains(sorted(single))
    several = iter(dict.fromkeys(frozenset(ids) for ids in any_of if len(ids) > 1))
    for ids in islice(several, MAX_SINGLE_CONDITIONS):
        yield trait_ids.overlap(sorted(ids))
    if others := list(several):
        yield count_sets_with_trait(trait_ids, _members(others)) == len(others)
    if forbidden:
        yield not_(trait_ids.overlap(sorted(forbidden)))


def in_any_aggregate(provider_id: ColumnElement[int], aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a provider is itself a member of at least one of these aggregates."""
    return (
        exists()
        .where(_member_of.c.provider_id == provider_id, is_any(_member_of.c.aggregate_id, aggregate_ids))
        .correlate_except(_member_of)
    )


def in_any_aggregate_of(
    provider_id: ColumnElement[int], aggregate_ids: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Return the condition that a provider is a member of at least one aggregate in an array of ids."""
    return (
        exists()
        .where(_member_of.c.provider_id == provider_id, _member_of.c.aggregate_id == any_(aggregate_ids))
        .correlate_except(_member_of)
    )


def in_each_aggregate_set(
    provider_id: ColumnElement[int], any_of: Iterable[Collection[int]]
) -> ColumnElement[bool]:
    """Return the condition that a provider is itself a member of an aggregate of each set in `any_of`."""
    sets = iter(dict.fromkeys(map(frozenset, any_of)))
    conditions = [in_any_aggregate(provider_id, ids) for ids in islice(sets, MAX_SINGLE_SETS)]
    if others := list(sets):
        conditions.append(count_sets_with_aggregate(provider_id, _members(others)) == len(others))
    return and_(true(), *conditions)


def count_sets_with_trait(trait_ids: ColumnElement[Any], members: FromClause) -> ColumnElement[int]:
    """Return how many sets of traits have one of `trait_ids`; `members` are their rows (`number`, `id`)."""
    own = func.unnest(trait_ids).table_valued(column("id", Integer)).render_derived(name="own_trait")
    return (
        select(func.count(members.c.number.distinct()))
        .select_from(own.join(members, members.c.id == own.c.id))
        .correlate_except(own, members)
        .scalar_subquery()
    )


def count_sets_with_aggregate(provider_id: ColumnElement[int], members: FromClause) -> ColumnElement[int]:
    """Return in how many sets a provider has an aggregate; `members` are their rows (`number`, `id`)."""
    return (
        select(func.count(members.c.number.distinct()))
        .select_from(_member_of.join(members, members.c.id == _member_of.c.aggregate_id))
        .where(_member_of.c.provider_id == provider_id)
        .correlate_except(_member_of, members)
        .scalar_subquery()
    )


def _members(sets: Sequence[Collection[int]]) -> TableValuedAlias:
    """Return the members of sets as a table: the number of the set, and the id of the member."""
    rows = [(number, id_) for number, ids in enumerate(sets) for id_ in sorted(ids)]
    return _pairs("member", "number", "id", rows)
