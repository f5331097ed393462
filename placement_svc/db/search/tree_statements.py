"""The statements that fetch provider trees.

A row has inventories or providers. Lists are texts with commas between their members.

- `INVENTORIES`: a resource class: its id, its name, the ids of providers, and the "capacity used" of each;
- `PROVIDERS`: the providers that have exactly the same traits: their ids; their uuids, their parents (null:
  none) and their roots, with a semicolon between these three lists; the ids and the names of the traits.
"""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Text,
    any_,
    bindparam,
    cast,
    func,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Boolean, String

from placement_svc.db.filters import any_id
from placement_svc.db.prepared import FixedStatement
from placement_svc.db.search.list_texts import joined
from placement_svc.db.tables import inventories, resource_classes, resource_providers, traits


def _any(name: str, type_: Any) -> ColumnElement[Any]:
    return func.any(bindparam(name, type_=ARRAY(type_)))


_ROOT_IDS = any_id("root_ids")
_ROOT_IDS_TYPE = {"root_ids": "text"}

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
        joined(inventories.c.provider_id),
        joined(cast(inventories.c.capacity, Text).concat(" ").concat(cast(inventories.c.used, Text))),
        null(),
        null(),
    )
    .where(
        inventories.c.root_id == _ROOT_IDS,
        or_(bindparam("all_classes", type_=Boolean), inventories.c.resource_class_id.in_(_summary_class_ids)),
    )
    .group_by(inventories.c.resource_class_id)
)

# One row for each set of traits, as most providers are alike; thousands of rows take the driver three times
# as long.
_providers = (
    select(
        null(),
        null(),
        joined(resource_providers.c.id),
        func.concat_ws(
            ";",
            joined(resource_providers.c.uuid),
            joined(func.coalesce(cast(resource_providers.c.parent_id, Text), "null")),
            joined(resource_providers.c.root_id),
        ),
        resource_providers.c.trait_ids,
        func.array(
            select(traits.c.name)
            .where(traits.c.id == any_(resource_providers.c.trait_ids))
            .order_by(traits.c.id)
            .scalar_subquery()
        ),
    )
    .where(resource_providers.c.root_id == _ROOT_IDS)
    .group_by(resource_providers.c.trait_ids)
)

_INVENTORY_TYPES = _ROOT_IDS_TYPE | {"all_classes": "boolean", "summary_classes": "text[]"}

PROVIDERS = FixedStatement(_providers, _ROOT_IDS_TYPE)
INVENTORIES = FixedStatement(_inventories.order_by("resource_class_id"), _INVENTORY_TYPES)
TREES = FixedStatement(union_all(_inventories, _providers).order_by("resource_class_id"), _INVENTORY_TYPES)
"""The rows of both: for few trees, one statement takes less time than two."""
