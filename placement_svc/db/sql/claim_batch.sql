-- Grant the claims of several clients in one transaction: all of them, or none. `refusal` is as in
-- claim.sql.
--
-- Every claim names the same providers, and is for a consumer that it creates. Claims on one
-- provider would otherwise wait for each other, each until the one before it is on disk. The
-- generations of the providers increase by 1 for each claim, as they would if it were alone.
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
        allocation_consumers, allocation_providers, allocation_classes, allocation_amounts,
        cardinality(consumer_uuids)
    );
    IF refusal IS NOT NULL THEN
        ROLLBACK;
    END IF;
END
$$;
