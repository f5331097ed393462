-- Delete a consumer and its allocations. Return whether it existed.
--
-- It locks the consumer FOR UPDATE at once, so that no lock has to be strengthened. apply_claims.sql
-- strengthens one, for a reason: see docs/reliability.md, "Lock order".
--
-- One statement for the client, hence one round trip. It calls no other function, as a call costs as
-- much as a statement. The options keep every lookup on keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION delete_consumer(consumer_uuid text)
RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT id FROM consumers WHERE uuid = consumer_uuid FOR UPDATE);
BEGIN
    IF ids = '{}' THEN
        RETURN false;
    END IF;
    -- In the one order, before the trigger on allocations updates `used`. The consumer is locked, so
    -- no other transaction changes its allocations between the statements.
    PERFORM
       FROM inventories
      WHERE provider_id = ANY (ARRAY(SELECT provider_id FROM allocations WHERE consumer_id = ANY (ids)))
      ORDER BY provider_id, resource_class_id
        FOR NO KEY UPDATE;
    DELETE FROM allocations WHERE consumer_id = ANY (ids);
    DELETE FROM consumers WHERE id = ANY (ids);
    RETURN true;
END
$$;
