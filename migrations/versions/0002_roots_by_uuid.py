"""Find the roots of provider trees by their uuids, to look at them in no particular order.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

INDEX = "resource_providers_roots_uuid_idx"


def upgrade() -> None:
    op.create_index(INDEX, "resource_providers", ["uuid"], postgresql_where=sa.text("parent_id IS NULL"))


def downgrade() -> None:
    op.drop_index(INDEX, "resource_providers")
