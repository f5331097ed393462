-- Delete all allocations of locked consumers. Lock and return the inventories of the providers
-- given and of the providers that had these allocations, as they were before; `replaced` is the
-- amount that the consumers had allocated of an inventory.
--
-- The cost is proportional to the allocations of the consumers and the inventories of the
-- providers. The consumers are locked, so no other transaction changes their allocations between
-- the statements.
--
-- A transaction of several statements calls this function: see README.md. The options keep every
-- lookup on keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION release_allocations(consumer_ids bigint[], provider_ids integer[])
RETURNS TABLE (
    inventory_provider_id integer,
    inventory_class text,
    inventory_total integer,
    inventory_reserved integer,
    inventory_min_unit integer,
    inventory_max_unit integer,
    inventory_step_size integer,
    inventory_allocation_ratio double precision,
    inventory_used bigint,
    replaced bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    allocated jsonb := sum_allocations(consumer_ids);
BEGIN
    -- Lock the inventories, in the one order, before the trigger on allocations updates `used` in
    -- them.
    RETURN QUERY
    SELECT inventory.provider_id,
           (SELECT name::text FROM resource_classes WHERE id = inventory.resource_class_id),
           inventory.total,
           inventory.reserved,
           inventory.min_unit,
           inventory.max_unit,
           inventory.step_size,
           inventory.allocation_ratio,
           inventory.used,
           coalesce((allocated ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
      FROM inventories AS inventory
     WHERE inventory.provider_id = ANY (
               provider_ids || ARRAY(SELECT split_part(key, ' ', 1)::int
                                       FROM jsonb_object_keys(allocated) AS key)
           )
     ORDER BY inventory.provider_id, inventory.resource_class_id
       FOR NO KEY UPDATE;
    IF allocated IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
END
$$;
