"""Increment a generation once per claim batch; look up the providers of claims in a hash table.

`apply_claims` gets a parameter. Only `claim` and `claim_batch` call it, and this migration replaces them with
it, so the former function is dropped at once. So is `increment_provider_generations`, which `claim_batch`
called.

Revision: 0009, after 0008.
"""

from alembic import op

from placement_svc.db import sql

revision = "0009"
down_revision = "0008"

FORMER_FUNCTIONS = (
    "apply_claims(text[], text[], text[], text[], boolean, numeric[], text[], text[], text[], numeric[])",
    "increment_provider_generations(text[], integer)",
)


def upgrade() -> None:
    sql.execute(op.get_bind(), "insert_allocations", "apply_claims", "claim", "claim_batch")
    for function in FORMER_FUNCTIONS:
        op.execute(f"DROP FUNCTION IF EXISTS {function}")


def downgrade() -> None:
    """Keep the functions: they work on the previous schema too."""
