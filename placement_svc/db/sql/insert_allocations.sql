-- Insert the allocations of locked consumers whose former allocations have been released. Delete
-- the consumers that get none, and increment the generations of providers.
--
-- The text and numeric arrays are parallel: one element per allocation. A provider must be one of
-- `providers_to_increment`, which are locked. The caller has checked the allocations: one without
-- an inventory, or with an amount that is no integer, is an SQL error.
--
-- A transaction of several statements calls this function: see README.md. The options keep every
-- lookup on keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION insert_allocations(
    allocation_consumers text[],
    allocation_providers text[],
    allocation_classes text[],
    allocation_amounts numeric[],
    consumers_to_delete bigint[],
    providers_to_increment integer[]
)
RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    IF consumers_to_delete <> '{}' THEN
        DELETE FROM consumers WHERE id = ANY (consumers_to_delete);
    END IF;
    -- Generations are incremented here and not by the statement that locks the rows. A statement
    -- that locks a row and updates it looks for it twice in its one snapshot; in between, a
    -- transaction that waits for the row can get it.
    UPDATE resource_providers
       SET generation = generation + 1,
           updated_at = now()
     WHERE id = ANY (providers_to_increment);
    -- MATERIALIZED with one scalar subquery per name leaves PostgreSQL no other plan than to look
    -- up keys. The locked providers are looked up in a hash table: see apply_claims.sql.
    WITH requested AS MATERIALIZED (
        SELECT (SELECT id FROM consumers WHERE uuid = claimed.consumer) AS consumer_id,
               (SELECT CASE WHEN id IN (SELECT unnest(providers_to_increment)) THEN id END
                  FROM resource_providers
                 WHERE uuid = claimed.provider) AS provider_id,
               (SELECT id FROM resource_classes WHERE name = claimed.class) AS class_id,
               claimed.amount
          FROM unnest(allocation_consumers, allocation_providers, allocation_classes, allocation_amounts)
            AS claimed (consumer, provider, class, amount)
    )
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT requested.consumer_id, requested.provider_id, requested.class_id, requested.amount
      FROM requested;
END
$$;
