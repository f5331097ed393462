-- Grant the claims of several clients in one transaction: all of them, or none. `refusal` is as in
-- claim.sql.
--
-- Every claim names the same providers, and is for a consumer that it creates. Claims on one
-- provider would otherwise wait for each other, each until the one before it is on disk. A claim
-- increments the generations of its providers as it would alone: apply_claims increments them once
-- for all, so the others are added here.
--
-- It must be called outside of a transaction, as it ends its own.
CREATE OR REPLACE PROCEDURE claim_batch(
    consumer_uuids text[],
    project_names text[],
    user_names text[],
    type_names text[],
    check_generations boolean,
    expected_generations numeric[],
    allocation_consumer_uuids text[],
    provider_uuids text[],
    class_names text[],
    amounts numeric[],
    INOUT refusal json
)
LANGUAGE plpgsql
AS $$
BEGIN
    refusal := apply_claims(
        consumer_uuids, project_names, user_names, type_names, check_generations, expected_generations,
        allocation_consumer_uuids, provider_uuids, class_names, amounts
    );
    IF refusal IS NULL THEN
        PERFORM increment_provider_generations(provider_uuids, cardinality(consumer_uuids) - 1);
    ELSE
        ROLLBACK;
    END IF;
END
$$;
