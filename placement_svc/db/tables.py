"""The tables (`docs/architecture.md`, Data).

Keys and checks enforce the rules of Placement for the data. Two columns repeat what other tables say,
`inventories.used` and `resource_providers.trait_ids`; triggers on those tables update them
(`placement_svc/db/sql/allocations_update_used.sql`, `provider_traits_update_trait_ids.sql`). Foreign keys
cascade `root_id` to the tables that repeat it.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.domain.limits import (
    MAX_AGGREGATE_UUID_LENGTH,
    MAX_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_PROVIDER_NAME_LENGTH,
    UUID_LENGTH,
)
from placement_svc.domain.placement_groups import POLICIES

FIRST_CUSTOM_ID = 10_000
"""The first id of custom traits and resource classes; the ids of standard ones are below it."""

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

log_metadata = MetaData(naming_convention=metadata.naming_convention)
"""Tables that record requests: no rule of Placement concerns them, and an export omits them."""

# Collation C compares and sorts bytes: it is faster, and the same under every locale.
Uuid = String(UUID_LENGTH, collation="C")
Name = String(MAX_NAME_LENGTH, collation="C")
AggregateUuid = String(MAX_AGGREGATE_UUID_LENGTH, collation="C")


def _id() -> Column[int]:
    return Column("id", Integer, Identity(), primary_key=True)


def _generation() -> Column[int]:
    return Column("generation", BigInteger, nullable=False, server_default="0")


def _created_at() -> Column[Any]:
    return Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now())


def _updated_at() -> Column[Any]:
    return Column("updated_at", DateTime(timezone=True))


def _names(table: str) -> Table:
    """Return a table of standard and custom names."""
    return Table(
        table,
        metadata,
        Column("id", Integer, Identity(start=FIRST_CUSTOM_ID), primary_key=True),
        Column("name", Name, nullable=False, unique=True),
        _created_at(),
        _updated_at(),
    )


traits = _names("traits")
resource_classes = _names("resource_classes")

resource_providers = Table(
    "resource_providers",
    metadata,
    _id(),
    Column("uuid", Uuid, nullable=False, unique=True),
    Column("name", String(MAX_PROVIDER_NAME_LENGTH, collation="C"), nullable=False, unique=True),
    _generation(),
    Column("parent_id", Integer),
    Column("root_id", Integer, nullable=False),
    # The ids from the root down to the provider itself: a provider is below each provider in its path.
    Column("path", ARRAY(Integer), nullable=False),
    # The trait ids of `provider_traits` in ascending order; a trigger updates them. A host has a hundred
    # traits, and the summaries of a thousand hosts show all of them.
    Column("trait_ids", ARRAY(Integer), nullable=False, server_default="{}"),
    _created_at(),
    _updated_at(),
    UniqueConstraint("id", "root_id"),
    # The parent exists and is in the same tree.
    ForeignKeyConstraint(
        ["parent_id", "root_id"],
        ["resource_providers.id", "resource_providers.root_id"],
        name="resource_providers_parent_fkey",
    ),
    CheckConstraint(
        "cardinality(path) > 0 AND path[1] = root_id AND path[cardinality(path)] = id", name="path_ends"
    ),
    CheckConstraint("parent_id IS NOT DISTINCT FROM path[cardinality(path) - 1]", name="path_parent"),
    Index(None, "root_id"),
    Index(None, "trait_ids", postgresql_using="gin"),
    # A search scans the roots by id (the order of creation), or by uuid (an arbitrary order).
    Index("resource_providers_roots_idx", "id", postgresql_where=text("parent_id IS NULL")),
    Index("resource_providers_roots_uuid_idx", "uuid", postgresql_where=text("parent_id IS NULL")),
    Index(None, "parent_id", postgresql_where=text("parent_id IS NOT NULL")),
)

provider_traits = Table(
    "provider_traits",
    metadata,
    Column("provider_id", Integer, nullable=False),
    # A trigger sets it for an INSERT without it.
    Column("root_id", Integer, nullable=False),
    Column("trait_id", ForeignKey("traits.id"), nullable=False),
    PrimaryKeyConstraint("provider_id", "trait_id"),
    ForeignKeyConstraint(
        ["provider_id", "root_id"],
        ["resource_providers.id", "resource_providers.root_id"],
        ondelete="CASCADE",
        onupdate="CASCADE",
    ),
    Index(None, "trait_id", "root_id", "provider_id"),
)

aggregates = Table(
    "aggregates",
    metadata,
    _id(),
    # As sent: each spelling of a UUID is a different aggregate (`docs/spec/resources.md 5`).
    Column("uuid", AggregateUuid, nullable=False, unique=True),
)

provider_aggregates = Table(
    "provider_aggregates",
    metadata,
    Column("provider_id", Integer, nullable=False),
    Column("root_id", Integer, nullable=False),
    Column("aggregate_id", ForeignKey("aggregates.id"), nullable=False),
    PrimaryKeyConstraint("provider_id", "aggregate_id"),
    ForeignKeyConstraint(
        ["provider_id", "root_id"],
        ["resource_providers.id", "resource_providers.root_id"],
        ondelete="CASCADE",
        onupdate="CASCADE",
    ),
    # With the provider, it shows which members are roots themselves.
    Index(None, "aggregate_id", "root_id", "provider_id"),
    Index(None, "root_id", "aggregate_id"),
)

CAPACITY = (
    "trunc(least(greatest((total - reserved) * allocation_ratio, -4e18::float8), 4e18::float8))::bigint"
)
"""The capacity of an inventory in SQL; the bounds keep it within a bigint whatever the ratio.

`Inventory.capacity` is the same formula in Python. SQL statements read the column `capacity`.
"""

MAX_ALLOCATABLE = f"least({CAPACITY} - used, max_unit)"
"""The largest amount that one new allocation can get of an inventory in SQL, apart from its step_size."""

inventories = Table(
    "inventories",
    metadata,
    Column("provider_id", Integer, nullable=False),
    Column("root_id", Integer, nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("reserved", Integer, nullable=False),
    Column("min_unit", Integer, nullable=False),
    Column("max_unit", Integer, nullable=False),
    Column("step_size", Integer, nullable=False),
    Column("allocation_ratio", Double, nullable=False),
    # The sum of the allocations; a trigger on them updates it.
    Column("used", BigInteger, nullable=False, server_default="0"),
    Column("capacity", BigInteger, Computed(CAPACITY, persisted=True), nullable=False),
    Column("max_allocatable", BigInteger, Computed(MAX_ALLOCATABLE, persisted=True), nullable=False),
    _created_at(),
    _updated_at(),
    PrimaryKeyConstraint("provider_id", "resource_class_id"),
    ForeignKeyConstraint(
        ["provider_id", "root_id"],
        ["resource_providers.id", "resource_providers.root_id"],
        ondelete="CASCADE",
        onupdate="CASCADE",
    ),
    ForeignKeyConstraint(["resource_class_id"], ["resource_classes.id"]),
    CheckConstraint("used >= 0", name="used"),
    CheckConstraint("total > 0", name="total"),
    CheckConstraint("reserved >= 0", name="reserved"),
    CheckConstraint("least(min_unit, max_unit, step_size) > 0", name="units"),
    Index(None, "root_id", "resource_class_id", "provider_id"),
    # It has the providers with a class in the order of their roots, and what they can give (`root_sets`).
    Index(None, "resource_class_id", "root_id", "provider_id", postgresql_include=["max_allocatable"]),
    Index(None, "resource_class_id", "max_allocatable"),
    # An ordered search reads the hosts with the most or the least free amounts first.
    Index("inventories_free_idx", "resource_class_id", text("(capacity - used)"), "root_id"),
)

projects = Table(
    "projects", metadata, _id(), Column("external_id", String(MAX_ID_LENGTH), nullable=False, unique=True)
)
users = Table(
    "users", metadata, _id(), Column("external_id", String(MAX_ID_LENGTH), nullable=False, unique=True)
)
consumer_types = Table("consumer_types", metadata, _id(), Column("name", Name, nullable=False, unique=True))

consumers = Table(
    "consumers",
    metadata,
    # A bigint: consumers are created and deleted for years, and would use up the range of an integer.
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False, index=True),
    Column("user_id", ForeignKey("users.id"), nullable=False),
    Column("consumer_type_id", ForeignKey("consumer_types.id")),
    _generation(),
    # NULL for a consumer that is older than this column.
    Column("created_at", DateTime(timezone=True), server_default=func.now()),
)

placement_groups = Table(
    "placement_groups",
    metadata,
    _id(),
    Column("uuid", Uuid, nullable=False, unique=True),
    Column("policy", String(20, collation="C"), nullable=False),
    # NULL for the affinity policies.
    Column("max_per_domain", Integer),
    _created_at(),
    _updated_at(),
    CheckConstraint(f"policy IN ({', '.join(map(repr, POLICIES))})", name="policy"),
    CheckConstraint(
        "(policy LIKE '%anti-affinity') = (max_per_domain IS NOT NULL) AND coalesce(max_per_domain, 1) > 0",
        name="max_per_domain",
    ),
)

# The domains of a group, in their order. A group without any has each root as a domain.
placement_group_aggregates = Table(
    "placement_group_aggregates",
    metadata,
    Column("group_id", ForeignKey("placement_groups.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    # As sent. The aggregate need not exist yet.
    Column("aggregate_uuid", AggregateUuid, nullable=False),
    PrimaryKeyConstraint("group_id", "position"),
    UniqueConstraint("group_id", "aggregate_uuid"),
)

placement_group_members = Table(
    "placement_group_members",
    metadata,
    # A consumer is in at most one group, as long as it exists.
    Column("consumer_id", ForeignKey("consumers.id", ondelete="CASCADE"), primary_key=True),
    Column("group_id", ForeignKey("placement_groups.id"), nullable=False),
    Index(None, "group_id", "consumer_id"),
)

empty_answers = Table(
    "empty_answers",
    log_metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("uuid", Uuid, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("query", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("global_request_id", Text),
    Column("user_id", Text),
    Column("project_id", Text),
)

allocations = Table(
    "allocations",
    metadata,
    Column("consumer_id", ForeignKey("consumers.id"), nullable=False),
    Column("provider_id", Integer, nullable=False),
    Column("resource_class_id", Integer, nullable=False),
    Column("used", Integer, nullable=False),
    _created_at(),
    PrimaryKeyConstraint("consumer_id", "provider_id", "resource_class_id"),
    # Each allocation refers to an inventory, so an inventory in use cannot be deleted.
    ForeignKeyConstraint(
        ["provider_id", "resource_class_id"],
        ["inventories.provider_id", "inventories.resource_class_id"],
    ),
    CheckConstraint("used > 0", name="used"),
    Index(None, "provider_id", "resource_class_id"),
)
