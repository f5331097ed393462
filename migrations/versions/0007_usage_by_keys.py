"""Keep usage by keys, whatever a session has written first.

Revision: 0007, after 0006.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

# A session keeps the plan that it has made for the first allocations it wrote: made for many, it would read
# all inventories for a few. By keys it suits both.
KEEP_USED_BY_KEYS = """
ALTER FUNCTION allocations_keep_used()
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_seqscan = off
"""


def upgrade() -> None:
    op.execute(KEEP_USED_BY_KEYS)


def downgrade() -> None:
    op.execute("ALTER FUNCTION allocations_keep_used() RESET ALL")
