"""Index what searches with forbidden traits and with aggregates of roots read.

An index has the providers with a resource class in the order of their roots, so that a search excludes those
with a forbidden trait from the first ones, and stops. The one that begins with the root has the inventories
of all classes, so PostgreSQL read all inventories of the class from the table instead.

The index on the members of aggregates also has the provider: a search that needs the members that are roots
themselves does not read the table.

Revision: 0016, after 0015.
"""

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_index(
        "inventories_resource_class_id_root_id_provider_id_idx",
        "inventories",
        ["resource_class_id", "root_id", "provider_id"],
    )
    op.create_index(
        "provider_aggregates_aggregate_id_root_id_provider_id_idx",
        "provider_aggregates",
        ["aggregate_id", "root_id", "provider_id"],
    )
    op.drop_index("provider_aggregates_aggregate_id_root_id_idx", "provider_aggregates")


def downgrade() -> None:
    op.create_index(
        "provider_aggregates_aggregate_id_root_id_idx", "provider_aggregates", ["aggregate_id", "root_id"]
    )
    op.drop_index("provider_aggregates_aggregate_id_root_id_provider_id_idx", "provider_aggregates")
    op.drop_index("inventories_resource_class_id_root_id_provider_id_idx", "inventories")
