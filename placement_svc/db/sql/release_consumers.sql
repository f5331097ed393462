-- Delete consumers that have allocations on these providers only, with their allocations. Return
-- whether all of them were deleted; otherwise the caller rolls the transaction back.
--
-- A consumer that another transaction has locked is not waited for. Therefore this function may be
-- called after apply_claims in the same transaction, which locks consumers in the order of their
-- uuids and then the inventories of these providers. Consumers are locked FOR UPDATE at once: see
-- delete_consumer.sql.
--
-- The options keep every lookup on keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION release_consumers(consumer_uuids text[], provider_uuids text[])
RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT id FROM consumers WHERE uuid = ANY (consumer_uuids) FOR UPDATE SKIP LOCKED);
    provider_ids int[];
BEGIN
    IF cardinality(ids) < cardinality(consumer_uuids) THEN
        RETURN false;
    END IF;
    provider_ids := ARRAY(SELECT id FROM resource_providers WHERE uuid = ANY (provider_uuids));
    -- The consumers are locked, so no other transaction changes their allocations between the
    -- statements.
    IF EXISTS (
        SELECT
          FROM unnest(ids) AS consumer (id)
         CROSS JOIN LATERAL (SELECT provider_id
                               FROM allocations
                              WHERE consumer_id = consumer.id
                             OFFSET 0) AS allocation
         WHERE allocation.provider_id <> ALL (provider_ids)
    ) THEN
        RETURN false;
    END IF;
    -- In the one order, before the trigger on allocations updates `used`.
    PERFORM
       FROM inventories
      WHERE provider_id = ANY (provider_ids)
      ORDER BY provider_id, resource_class_id
        FOR NO KEY UPDATE;
    DELETE FROM allocations WHERE consumer_id = ANY (ids);
    DELETE FROM consumers WHERE id = ANY (ids);
    RETURN true;
END
$$;
