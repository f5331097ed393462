"""Let claims of several clients on the same providers go in one transaction.

Revision: 0006, after 0005.
"""

from alembic import op

revision = "0006"
down_revision = "0005"

# As in 0003: everything is found by keys, whatever there is.
RAISE_PROVIDERS = """
CREATE FUNCTION raise_providers(provider_uuids text[], by int) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
AS $$
BEGIN
    UPDATE resource_providers SET generation = generation + by WHERE uuid = ANY (provider_uuids);
END
$$
"""

# Every claim names the same providers, and is of a consumer that it makes. All are granted or none; a granted
# one raises the generations of its providers as it would have alone.
# To be called outside of a transaction, as it ends its own.
CLAIM_TOGETHER = """
CREATE PROCEDURE claim_together(
    consumer_uuids text[], project_names text[], user_names text[], type_names text[],
    compares_generations boolean, known_generations numeric[],
    holders text[], provider_uuids text[], class_names text[], amounts numeric[],
    INOUT refused json
) LANGUAGE plpgsql AS $$
BEGIN
    refused := try_claims(
        consumer_uuids, project_names, user_names, type_names, compares_generations, known_generations,
        holders, provider_uuids, class_names, amounts
    );
    IF refused IS NULL THEN
        PERFORM raise_providers(provider_uuids, cardinality(consumer_uuids) - 1);
    ELSE
        ROLLBACK;
    END IF;
END
$$
"""


def upgrade() -> None:
    op.execute(RAISE_PROVIDERS)
    op.execute(CLAIM_TOGETHER)


def downgrade() -> None:
    op.execute("DROP PROCEDURE claim_together")
    op.execute("DROP FUNCTION raise_providers")
