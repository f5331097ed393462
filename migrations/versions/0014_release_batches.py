"""Commit releases with the claims that wait for the same providers; release with fewer statements.

Revision: 0014, after 0013.
"""

from alembic import op

from placement_svc.db import sql

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    sql.execute(op.get_bind(), "delete_consumer", "release_consumers", "claim_and_release")


def downgrade() -> None:
    op.execute("DROP ROUTINE IF EXISTS claim_and_release")
    op.execute("DROP ROUTINE IF EXISTS release_consumers")
