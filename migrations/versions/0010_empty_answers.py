"""Add the table of searches that found no candidate.

Revision: 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "empty_answers",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("uuid", sa.String(36, collation="C"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("global_request_id", sa.Text),
        sa.Column("user_id", sa.Text),
        sa.Column("project_id", sa.Text),
    )


def downgrade() -> None:
    op.drop_table("empty_answers")
