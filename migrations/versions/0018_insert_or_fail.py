"""Fail instead of leaving out an allocation that no inventory can hold; correct a comment.

The callers of `insert_allocations` check the allocations before, so it has left out none so far.

Revision: 0018, after 0017.
"""

from alembic import op

from placement_svc.db import sql

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    sql.execute(op.get_bind(), "insert_allocations", "delete_consumer")


def downgrade() -> None:
    """Keep the functions: they work on the previous schema too."""
