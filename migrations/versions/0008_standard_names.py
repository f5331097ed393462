"""Give the objects of the schema standard names, where a database has the former ones.

The baseline creates the new names, so this changes only a database that the migrations before the baseline
have brought to 0007. It renames and never rewrites: no row is touched. Code from before this migration cannot
use the new names, so all services are stopped during this one upgrade.

Revision: 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

from placement_svc.db import sql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    columns = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("inventories")}
    if "room" not in columns:
        return
    op.execute("ALTER TABLE inventories RENAME COLUMN room TO max_allocatable")
    _rename_not_null_constraint()
    op.execute(
        "ALTER INDEX inventories_resource_class_id_room_idx"
        " RENAME TO inventories_resource_class_id_max_allocatable_idx"
    )
    op.execute("ALTER STATISTICS inventories_room RENAME TO inventories_max_allocatable")
    baseline = op.get_context().script.get_revision("0007").module
    for name in baseline.FORMER_FUNCTIONS:
        # CASCADE drops the triggers of a trigger function.
        op.execute(f"DROP ROUTINE {name} CASCADE")
    sql.execute(op.get_bind(), *baseline.FUNCTIONS)


def _rename_not_null_constraint() -> None:
    """Rename the NOT NULL constraint after its column; it has a name from PostgreSQL 18 on."""
    name = "inventories_room_not_null"
    if op.get_bind().scalar(sa.text("SELECT true FROM pg_constraint WHERE conname = :name"), {"name": name}):
        op.execute(
            f"ALTER TABLE inventories RENAME CONSTRAINT {name} TO inventories_max_allocatable_not_null"
        )


def downgrade() -> None:
    """Keep the names: they are those of the baseline, which is revision 0007."""
