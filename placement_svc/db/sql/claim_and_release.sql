-- Grant claims and delete consumers for several clients in one transaction: all, or nothing. Return
-- in `is_done` which of both, and in `refusal` the JSON of apply_claims.sql if the claims are refused.
--
-- There may be no claims. Otherwise they are as in claim_batch.sql: every claim names
-- `provider_uuids`, and is for a consumer that it creates. The consumers to delete are others, and
-- have allocations on these providers only.
--
-- The claims come first, as they lock consumers in the order of their uuids, and the release waits
-- for no consumer. So the result is that of all claims, one after the other, and then all releases.
--
-- As in claim.sql, PostgreSQL commits when the CALL ends, and the procedure only rolls back. So it
-- must be called outside of a transaction block.
CREATE OR REPLACE PROCEDURE claim_and_release(
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
    released_uuids text[],
    provider_uuids text[],
    INOUT refusal json,
    INOUT is_done boolean
)
LANGUAGE plpgsql
AS $$
BEGIN
    IF consumer_uuids <> '{}' THEN
        refusal := apply_claims(
            consumer_uuids, project_names, user_names, type_names, compare_generations, known_generations,
            allocation_consumers, allocation_providers, allocation_classes, allocation_amounts,
            cardinality(consumer_uuids)
        );
    END IF;
    is_done := refusal IS NULL AND release_consumers(released_uuids, provider_uuids);
    IF NOT is_done THEN
        ROLLBACK;
    END IF;
END
$$;
