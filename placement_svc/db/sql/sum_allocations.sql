-- Return how much some consumers have allocated together of each inventory, as a JSON object. Its
-- keys are the ids of provider and resource class with a space between; it is NULL if the consumers
-- have nothing.
--
-- The sums are computed once and then looked up by key, as a consumer may have thousands of
-- allocations. A join would be as fast only if the planner were sure to expect thousands of rows.
--
-- The options keep every lookup on keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION sum_allocations(consumer_ids bigint[])
RETURNS jsonb
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    -- OFFSET 0 is an optimization fence: it makes PostgreSQL look up one consumer after the other.
    -- With consumer_id = ANY (consumer_ids), a plan that was made when the table was empty would
    -- read a whole index, the one that is in the order of the groups.
    RETURN (
        SELECT jsonb_object_agg(allocated.provider_id || ' ' || allocated.resource_class_id, allocated.amount)
          FROM (SELECT allocation.provider_id,
                       allocation.resource_class_id,
                       sum(allocation.used) AS amount
                  FROM unnest(consumer_ids) AS consumer (id)
                 CROSS JOIN LATERAL (SELECT provider_id, resource_class_id, used
                                       FROM allocations
                                      WHERE consumer_id = consumer.id
                                     OFFSET 0) AS allocation
                 GROUP BY allocation.provider_id, allocation.resource_class_id) AS allocated
    );
END
$$;
