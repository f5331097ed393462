-- Grant the claims of several clients in one transaction: all of them, or none. `refusal` is as in
-- claim.sql.
--
-- Every claim names the same providers, and is for a consumer that it creates. Claims on one
-- provider would otherwise wait for each other, each until the one before it is on disk. A claim
-- increments the generations of its providers as it would alone: apply_claims increments them once
-- for all, so the others are added here.
--
-- As in claim.sql, PostgreSQL commits when the CALL ends, and the procedure only rolls back. So it
-- must be called outside of a transaction block.
CREATE OR REPLACE PROCEDURE claim_batch(
    consumer_uuids text[],
    project_names text[],
    user_names text[],
    type_names text[],
    compare_generations boolean,
    known_generations numeric[],
    allocation_consumers text[],
    allocation_providers text[],
    allocation_classes text[],
    allocation_amounts numeric[],
    INOUT refusal json
)
LANGUAGE plpgsql
AS $$
BEGIN
    refusal := apply_claims(
        consumer_uuids, project_names, user_names, type_names, compare_generations, known_generations,
        allocation_consumers, allocation_providers, allocation_classes, allocation_amounts
    );
    IF refusal IS NULL THEN
        PERFORM increment_provider_generations(allocation_providers, cardinality(consumer_uuids) - 1);
    ELSE
        ROLLBACK;
    END IF;
END
$$;
