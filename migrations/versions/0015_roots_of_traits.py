"""Store with each trait of a provider the root of its tree, as with aggregates and inventories.

An index then has the roots of the trees with a trait in their order, so that a search intersects traits of
child providers and aggregates of their hosts without reading the providers. The services of the release
before do not name the root: a trigger sets it.

The index on the roots of inventories also has the provider: then it has the providers with a resource class
in the same order, and a search excludes those with a forbidden trait.

Revision: 0015, after 0014.
"""

import sqlalchemy as sa
from alembic import op

from placement_svc.db import sql

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    # Searches, too, lock provider_traits before inventories.
    op.add_column("provider_traits", sa.Column("root_id", sa.Integer))
    # Replaced first: the trigger would write every provider again.
    sql.execute(op.get_bind(), "provider_traits_update_trait_ids", "provider_traits_set_root_id")
    op.execute("""
        UPDATE provider_traits AS held
           SET root_id = provider.root_id
          FROM resource_providers AS provider
         WHERE provider.id = held.provider_id
    """)
    op.alter_column("provider_traits", "root_id", nullable=False)
    op.drop_constraint("provider_traits_provider_id_fkey", "provider_traits")
    op.create_foreign_key(
        "provider_traits_provider_id_root_id_fkey",
        "provider_traits",
        "resource_providers",
        ["provider_id", "root_id"],
        ["id", "root_id"],
        ondelete="CASCADE",
        onupdate="CASCADE",
    )
    op.create_index(
        "provider_traits_trait_id_root_id_provider_id_idx",
        "provider_traits",
        ["trait_id", "root_id", "provider_id"],
    )
    op.drop_index("provider_traits_trait_id_provider_id_idx", "provider_traits")
    op.create_index(
        "inventories_root_id_resource_class_id_provider_id_idx",
        "inventories",
        ["root_id", "resource_class_id", "provider_id"],
    )
    op.drop_index("inventories_root_id_resource_class_id_idx", "inventories")


def downgrade() -> None:
    op.create_index(
        "inventories_root_id_resource_class_id_idx", "inventories", ["root_id", "resource_class_id"]
    )
    op.drop_index("inventories_root_id_resource_class_id_provider_id_idx", "inventories")
    op.create_index(
        "provider_traits_trait_id_provider_id_idx", "provider_traits", ["trait_id", "provider_id"]
    )
    op.drop_index("provider_traits_trait_id_root_id_provider_id_idx", "provider_traits")
    op.create_foreign_key(
        "provider_traits_provider_id_fkey",
        "provider_traits",
        "resource_providers",
        ["provider_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.drop_constraint("provider_traits_provider_id_root_id_fkey", "provider_traits")
    op.execute("DROP TRIGGER provider_traits_set_root_id_on_insert ON provider_traits")
    op.execute("DROP FUNCTION provider_traits_set_root_id")
    op.drop_column("provider_traits", "root_id")
