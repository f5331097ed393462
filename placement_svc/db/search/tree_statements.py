"""The statements that fetch provider trees.

Each row of `INVENTORIES_AND_TRAITS` and `TREES` is one of three kinds:

- a resource class: its id, its name, the ids of providers, and the "capacity used" of each;
- a set of traits: the ids of the providers that have exactly these, and the ids and names of the traits;
- in `TREES` only, all providers: their ids, and the "uuid root_id parent_id" of each.
"""

from typing import Any

from sqlalchemy import ColumnElement, Text, any_, bindparam, cast, func, null, or_, select, union_all
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Boolean, String

from placement_svc.db.filters import any_id
from placement_svc.db.prepared import FixedStatement
from placement_svc.db.tables import inventories, resource_classes, resource_providers, traits


def _any(name: str, type_: Any) -> ColumnElement[Any]:
    return func.any(bindparam(name, type_=ARRAY(type_)))


_ROOT_IDS = any_id("root_ids")
_ROOT_IDS_TYPE = {"root_ids": "text"}

PROVIDERS = FixedStatement(
    select(
        resource_providers.c.id,
        resource_providers.c.uuid,
        resource_providers.c.parent_id,
        resource_providers.c.root_id,
    ).where(resource_providers.c.root_id == _ROOT_IDS),
    _ROOT_IDS_TYPE,
)

MAX_ALLOCATABLE = FixedStatement(
    select(inventories.c.provider_id, resource_classes.c.name, inventories.c.max_allocatable)
    .join(resource_classes, resource_classes.c.id == inventories.c.resource_class_id)
    .where(inventories.c.root_id == _ROOT_IDS, resource_classes.c.name == _any("summed_classes", String)),
    _ROOT_IDS_TYPE | {"summed_classes": "text[]"},
)

UNITS = FixedStatement(
    select(
        inventories.c.provider_id,
        resource_classes.c.name,
        inventories.c.min_unit,
        inventories.c.max_allocatable,
        inventories.c.step_size,
    )
    .join(resource_classes, resource_classes.c.id == inventories.c.resource_class_id)
    .where(inventories.c.root_id == _ROOT_IDS, resource_classes.c.name == _any("splittable_classes", String)),
    _ROOT_IDS_TYPE | {"splittable_classes": "text[]"},
)

_summary_class_ids = select(resource_classes.c.id).where(
    resource_classes.c.name == _any("summary_classes", String)
)

# One row for each resource class, with the numbers of all its inventories: it takes longer to sort the
# inventories by provider, and to send thousands of rows.
_inventories = (
    select(
        inventories.c.resource_class_id,
        select(resource_classes.c.name)
        .where(resource_classes.c.id == inventories.c.resource_class_id)
        .scalar_subquery(),
        func.array_agg(inventories.c.provider_id),
        func.string_agg(
            cast(inventories.c.capacity, Text).concat(" ").concat(cast(inventories.c.used, Text)), ","
        ),
        null(),
        null(),
    )
    .where(
        inventories.c.root_id == _ROOT_IDS,
        or_(bindparam("all_classes", type_=Boolean), inventories.c.resource_class_id.in_(_summary_class_ids)),
    )
    .group_by(inventories.c.resource_class_id)
)

# One row for each set of traits, with the providers that have exactly these: one row for each provider
# takes longer.
_trait_sets = (
    select(
        null(),
        null(),
        func.array_agg(resource_providers.c.id),
        null(),
        resource_providers.c.trait_ids,
        func.array(
            select(traits.c.name)
            .where(traits.c.id == any_(resource_providers.c.trait_ids))
            .order_by(traits.c.id)
            .scalar_subquery()
        ),
    )
    .where(resource_providers.c.root_id == _ROOT_IDS, resource_providers.c.trait_ids != [])
    .group_by(resource_providers.c.trait_ids)
)

_SUMMARY_TYPES = _ROOT_IDS_TYPE | {"all_classes": "boolean", "summary_classes": "text[]"}

INVENTORIES = FixedStatement(_inventories.order_by("resource_class_id"), _SUMMARY_TYPES)
TRAITS = FixedStatement(_trait_sets, _ROOT_IDS_TYPE)
INVENTORIES_AND_TRAITS = FixedStatement(
    union_all(_inventories, _trait_sets).order_by("resource_class_id"), _SUMMARY_TYPES
)

# One row for all providers, whose numbers and uuids are a text: for few trees, one statement takes less
# than two.
_all_providers = select(
    null(),
    null(),
    func.array_agg(resource_providers.c.id),
    func.string_agg(
        func.concat_ws(
            " ",
            resource_providers.c.uuid,
            resource_providers.c.root_id,
            resource_providers.c.parent_id,
        ),
        ",",
    ),
    null(),
    null(),
).where(resource_providers.c.root_id == _ROOT_IDS)

TREES = FixedStatement(
    union_all(_inventories, _trait_sets, _all_providers).order_by("resource_class_id"), _SUMMARY_TYPES
)
