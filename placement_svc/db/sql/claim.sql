-- Replace the allocations of consumers in one transaction. If all claims are granted, `refusal` is
-- NULL, and PostgreSQL commits when the CALL ends, as the client is in autocommit mode. If one is
-- refused, the procedure rolls back, and `refusal` is the JSON of apply_claims.sql.
--
-- So a claim is one round trip, and no lock is held while the client works. PostgreSQL allows a
-- procedure to roll back only if it is called outside of a transaction block, and only if it has no
-- SET options; they are on the function that it calls.
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
        allocation_consumers, allocation_providers, allocation_classes, allocation_amounts, 1
    );
    IF refusal IS NOT NULL THEN
        ROLLBACK;
    END IF;
END
$$;
