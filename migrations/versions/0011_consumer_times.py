"""Store when consumers are created.

Consumers that exist already have no `created_at`: a claim replaces all allocations of a consumer, so nothing
says when it was created. New consumers get the default, also those that the previous release creates.

Revision: 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("consumers", sa.Column("created_at", sa.DateTime(timezone=True), nullable=True))
    # Set afterwards: a column that is added with this default would have it in the existing rows too.
    op.alter_column("consumers", "created_at", server_default=sa.text("now()"))


def downgrade() -> None:
    op.drop_column("consumers", "created_at")
