"""Create the whole schema: the baseline, which replaces the migrations 0001 to 0007 of the development.

A database that the former migrations have brought to 0007 has the same schema under older names; 0008 renames
those. The functions are created with their current text, which may be newer than this migration.

Revision: 0007, the first.
"""

import sqlalchemy as sa
from alembic import op

from placement_svc.db import sql
from placement_svc.db.tables import CAPACITY, MAX_ALLOCATABLE

revision = "0007"
down_revision = None

FUNCTIONS = (
    "allocations_update_used",
    "provider_traits_update_trait_ids",
    "fits_units",
    "sum_allocations",
    "lock_and_increment_consumers",
    "release_allocations",
    "insert_allocations",
    "apply_claims",
    "claim",
    "claim_batch",
    "delete_consumer",
)

FORMER_FUNCTIONS = (
    "allocations_keep_used",
    "provider_traits_keep_ids",
    "lock_and_raise_consumers",
    "lock_providers",
    "take_back_allocations",
    "give_allocations",
    "claim_allocations",
    "remove_consumer",
    "try_claims",
    "claim",
    "held_of",
    "raise_providers",
    "claim_together",
)
"""The functions and procedures of a database that the former migrations have brought to 0007."""

LATER_DROPPED_FUNCTIONS = ("increment_provider_generations",)
"""Functions of the baseline that a later migration drops."""


def upgrade() -> None:
    _create_names()
    _create_providers()
    _create_provider_sets()
    _create_inventories()
    _create_consumers()
    # How many inventories have a certain max_allocatable depends on the resource class. Without these
    # statistics the planner expects a few rows where there are thousands, and a search scans the whole cloud
    # for ten hosts.
    op.execute(
        "CREATE STATISTICS inventories_max_allocatable ON resource_class_id, max_allocatable FROM inventories"
    )
    # Some traits are on every host, others on a few. With a target of 1000 the planner knows the frequency of
    # each of them.
    op.execute("ALTER TABLE resource_providers ALTER COLUMN trait_ids SET STATISTICS 1000")
    sql.execute(op.get_bind(), *FUNCTIONS)


def _create_names() -> None:
    """Create the tables of names, which other tables refer to."""
    op.create_table(
        "aggregates",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("uuid", sa.String(length=50, collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="aggregates_pkey"),
        sa.UniqueConstraint("uuid", name="aggregates_uuid_key"),
    )
    op.create_table(
        "consumer_types",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("name", sa.String(length=255, collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="consumer_types_pkey"),
        sa.UniqueConstraint("name", name="consumer_types_name_key"),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("external_id", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="projects_pkey"),
        sa.UniqueConstraint("external_id", name="projects_external_id_key"),
    )
    op.create_table(
        "resource_classes",
        sa.Column("id", sa.Integer(), sa.Identity(start=10000), nullable=False),
        sa.Column("name", sa.String(length=255, collation="C"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="resource_classes_pkey"),
        sa.UniqueConstraint("name", name="resource_classes_name_key"),
    )
    op.create_table(
        "traits",
        sa.Column("id", sa.Integer(), sa.Identity(start=10000), nullable=False),
        sa.Column("name", sa.String(length=255, collation="C"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="traits_pkey"),
        sa.UniqueConstraint("name", name="traits_name_key"),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("external_id", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="users_pkey"),
        sa.UniqueConstraint("external_id", name="users_external_id_key"),
    )


def _create_providers() -> None:
    """Create the table of resource providers."""
    op.create_table(
        "resource_providers",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("uuid", sa.String(length=36, collation="C"), nullable=False),
        sa.Column("name", sa.String(length=200, collation="C"), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("parent_id", sa.Integer(), nullable=True),
        sa.Column("root_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("trait_ids", sa.ARRAY(sa.Integer()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "cardinality(path) > 0 AND path[1] = root_id AND path[cardinality(path)] = id",
            name=op.f("resource_providers_path_ends_check"),
        ),
        sa.CheckConstraint(
            "parent_id IS NOT DISTINCT FROM path[cardinality(path) - 1]",
            name=op.f("resource_providers_path_parent_check"),
        ),
        sa.ForeignKeyConstraint(
            ["parent_id", "root_id"],
            ["resource_providers.id", "resource_providers.root_id"],
            name="resource_providers_parent_fkey",
        ),
        sa.PrimaryKeyConstraint("id", name="resource_providers_pkey"),
        sa.UniqueConstraint("id", "root_id", name="resource_providers_id_root_id_key"),
        sa.UniqueConstraint("name", name="resource_providers_name_key"),
        sa.UniqueConstraint("uuid", name="resource_providers_uuid_key"),
    )
    _create_provider_indexes()


def _create_provider_indexes() -> None:
    """Create the indexes on resource providers."""
    op.create_index(
        "resource_providers_parent_id_idx",
        "resource_providers",
        ["parent_id"],
        postgresql_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_index(
        "resource_providers_trait_ids_idx", "resource_providers", ["trait_ids"], postgresql_using="gin"
    )
    op.create_index(
        "resource_providers_roots_idx",
        "resource_providers",
        ["id"],
        postgresql_where=sa.text("parent_id IS NULL"),
    )
    op.create_index(
        "resource_providers_roots_uuid_idx",
        "resource_providers",
        ["uuid"],
        postgresql_where=sa.text("parent_id IS NULL"),
    )
    op.create_index("resource_providers_root_id_idx", "resource_providers", ["root_id"])


def _create_provider_sets() -> None:
    """Create the tables of the traits and aggregates of providers."""
    op.create_table(
        "provider_aggregates",
        sa.Column("provider_id", sa.Integer(), nullable=False),
        sa.Column("root_id", sa.Integer(), nullable=False),
        sa.Column("aggregate_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["aggregate_id"], ["aggregates.id"], name="provider_aggregates_aggregate_id_fkey"
        ),
        sa.ForeignKeyConstraint(
            ["provider_id", "root_id"],
            ["resource_providers.id", "resource_providers.root_id"],
            name="provider_aggregates_provider_id_root_id_fkey",
            onupdate="CASCADE",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("provider_id", "aggregate_id", name="provider_aggregates_pkey"),
    )
    op.create_index(
        "provider_aggregates_aggregate_id_root_id_idx", "provider_aggregates", ["aggregate_id", "root_id"]
    )
    op.create_index(
        "provider_aggregates_root_id_aggregate_id_idx", "provider_aggregates", ["root_id", "aggregate_id"]
    )
    op.create_table(
        "provider_traits",
        sa.Column("provider_id", sa.Integer(), nullable=False),
        sa.Column("trait_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["resource_providers.id"],
            name="provider_traits_provider_id_fkey",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["trait_id"], ["traits.id"], name="provider_traits_trait_id_fkey"),
        sa.PrimaryKeyConstraint("provider_id", "trait_id", name="provider_traits_pkey"),
    )
    op.create_index(
        "provider_traits_trait_id_provider_id_idx", "provider_traits", ["trait_id", "provider_id"]
    )


def _create_inventories() -> None:
    """Create the table of inventories."""
    op.create_table(
        "inventories",
        sa.Column("provider_id", sa.Integer(), nullable=False),
        sa.Column("root_id", sa.Integer(), nullable=False),
        sa.Column("resource_class_id", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Integer(), nullable=False),
        sa.Column("min_unit", sa.Integer(), nullable=False),
        sa.Column("max_unit", sa.Integer(), nullable=False),
        sa.Column("step_size", sa.Integer(), nullable=False),
        sa.Column("allocation_ratio", sa.Double(), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("capacity", sa.BigInteger(), sa.Computed(CAPACITY, persisted=True), nullable=False),
        sa.Column(
            "max_allocatable",
            sa.BigInteger(),
            sa.Computed(MAX_ALLOCATABLE, persisted=True),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("least(min_unit, max_unit, step_size) > 0", name=op.f("inventories_units_check")),
        sa.CheckConstraint("reserved >= 0", name=op.f("inventories_reserved_check")),
        sa.CheckConstraint("total > 0", name=op.f("inventories_total_check")),
        sa.CheckConstraint("used >= 0", name=op.f("inventories_used_check")),
        sa.ForeignKeyConstraint(
            ["provider_id", "root_id"],
            ["resource_providers.id", "resource_providers.root_id"],
            name="inventories_provider_id_root_id_fkey",
            onupdate="CASCADE",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["resource_class_id"], ["resource_classes.id"], name="inventories_resource_class_id_fkey"
        ),
        sa.PrimaryKeyConstraint("provider_id", "resource_class_id", name="inventories_pkey"),
    )
    op.create_index(
        "inventories_resource_class_id_max_allocatable_idx",
        "inventories",
        ["resource_class_id", "max_allocatable"],
    )
    op.create_index(
        "inventories_root_id_resource_class_id_idx", "inventories", ["root_id", "resource_class_id"]
    )


def _create_consumers() -> None:
    """Create the tables of consumers and their allocations."""
    op.create_table(
        "consumers",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("uuid", sa.String(length=36, collation="C"), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("consumer_type_id", sa.Integer(), nullable=True),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["consumer_type_id"], ["consumer_types.id"], name="consumers_consumer_type_id_fkey"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="consumers_project_id_fkey"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="consumers_user_id_fkey"),
        sa.PrimaryKeyConstraint("id", name="consumers_pkey"),
        sa.UniqueConstraint("uuid", name="consumers_uuid_key"),
    )
    op.create_index("consumers_project_id_idx", "consumers", ["project_id"])
    op.create_table(
        "allocations",
        sa.Column("consumer_id", sa.BigInteger(), nullable=False),
        sa.Column("provider_id", sa.Integer(), nullable=False),
        sa.Column("resource_class_id", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("used > 0", name=op.f("allocations_used_check")),
        sa.ForeignKeyConstraint(["consumer_id"], ["consumers.id"], name="allocations_consumer_id_fkey"),
        sa.ForeignKeyConstraint(
            ["provider_id", "resource_class_id"],
            ["inventories.provider_id", "inventories.resource_class_id"],
            name="allocations_provider_id_resource_class_id_fkey",
        ),
        sa.PrimaryKeyConstraint("consumer_id", "provider_id", "resource_class_id", name="allocations_pkey"),
    )
    op.create_index(
        "allocations_provider_id_resource_class_id_idx", "allocations", ["provider_id", "resource_class_id"]
    )


def downgrade() -> None:
    op.drop_table("allocations")
    op.drop_table("provider_traits")
    op.drop_table("provider_aggregates")
    op.drop_table("inventories")
    op.drop_table("consumers")
    op.drop_table("users")
    op.drop_table("traits")
    op.drop_table("resource_providers")
    op.drop_table("resource_classes")
    op.drop_table("projects")
    op.drop_table("consumer_types")
    op.drop_table("aggregates")
    for name in {*FUNCTIONS, *FORMER_FUNCTIONS, *LATER_DROPPED_FUNCTIONS}:
        op.execute(f"DROP ROUTINE IF EXISTS {name}")
