-- Keep inventories.used equal to the sum of the allocations, whichever statement changes them. A
-- statement that changes many allocations updates each inventory once.
--
-- A session keeps the plan that it has made for its first write of allocations. If that were a plan
-- for many rows, it would read all inventories for a few later. The options leave only lookups by
-- key, which suit both.
CREATE OR REPLACE FUNCTION allocations_update_used()
RETURNS trigger
LANGUAGE plpgsql
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_seqscan = off
AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        UPDATE inventories
           SET used = 0
         WHERE used <> 0;
        RETURN NULL;
    END IF;
    IF TG_OP IN ('DELETE', 'UPDATE') THEN
        UPDATE inventories AS inventory
           SET used = inventory.used - removed.used
          FROM (SELECT provider_id, resource_class_id, sum(used)::bigint AS used
                  FROM old_allocations
                 GROUP BY provider_id, resource_class_id) AS removed
         WHERE (inventory.provider_id, inventory.resource_class_id)
             = (removed.provider_id, removed.resource_class_id);
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        UPDATE inventories AS inventory
           SET used = inventory.used + added.used
          FROM (SELECT provider_id, resource_class_id, sum(used)::bigint AS used
                  FROM new_allocations
                 GROUP BY provider_id, resource_class_id) AS added
         WHERE (inventory.provider_id, inventory.resource_class_id)
             = (added.provider_id, added.resource_class_id);
    END IF;
    RETURN NULL;
END
$$;

-- One trigger per event: a trigger with transition tables may name only one.
CREATE OR REPLACE TRIGGER allocations_update_used_on_insert
AFTER INSERT ON allocations
REFERENCING NEW TABLE AS new_allocations
FOR EACH STATEMENT
EXECUTE FUNCTION allocations_update_used();

CREATE OR REPLACE TRIGGER allocations_update_used_on_delete
AFTER DELETE ON allocations
REFERENCING OLD TABLE AS old_allocations
FOR EACH STATEMENT
EXECUTE FUNCTION allocations_update_used();

CREATE OR REPLACE TRIGGER allocations_update_used_on_update
AFTER UPDATE ON allocations
REFERENCING OLD TABLE AS old_allocations NEW TABLE AS new_allocations
FOR EACH STATEMENT
EXECUTE FUNCTION allocations_update_used();

CREATE OR REPLACE TRIGGER allocations_update_used_on_truncate
AFTER TRUNCATE ON allocations
FOR EACH STATEMENT
EXECUTE FUNCTION allocations_update_used();
