-- Replace the allocations of consumers in one transaction: commit if all claims are granted, roll
-- back if one is refused. `refusal` is NULL if they are granted; otherwise it is the JSON of
-- apply_claims.sql.
--
-- A procedure that ends its own transaction makes a claim one round trip, and no lock is held while
-- the client works. For the same reason it must be called outside of a transaction. PostgreSQL
-- allows no SET options on such a procedure; they are on the function that it calls.
CREATE OR REPLACE PROCEDURE claim(
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
    IF refusal IS NOT NULL THEN
        ROLLBACK;
    END IF;
END
$$;
