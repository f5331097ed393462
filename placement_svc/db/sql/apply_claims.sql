-- Replace the allocations of consumers as claims demand. Return NULL if all claims are granted. If
-- one is refused, return JSON with the state before, from which Python finds the reason for the
-- client (placement_svc/domain/allocations.py); the caller then rolls the transaction back. The
-- keys are:
--
--   generations  the generation of each consumer by uuid, null for one that did not exist
--   providers    the ids of the providers by uuid
--   inventories  [provider id, resource class, total, reserved, min_unit, max_unit, step_size,
--                allocation_ratio, used, replaced] for each inventory of these providers; `replaced` is the
--                part of `used` that the consumers had allocated
--
-- If `compare_generations` is true and a generation differs from the known one, only `generations` is
-- returned.
--
-- The generations of the providers increase by `provider_increment`.
--
-- The first four arrays and `known_generations` are parallel: one element per consumer. So are
-- the last four: one element per allocation. A consumer without an allocation there is deleted.
--
-- It is a function of several statements, and not one statement with many parts. A function is
-- VOLATILE by default, and the transaction is READ COMMITTED: so each statement in it has a new
-- snapshot, and sees what was committed while the statements before it waited for locks. It calls no
-- function that returns rows, as such a call costs as much as the statements in it; and what only a
-- refusal needs is computed only for a refusal.
--
-- Locks are taken in the order of docs/reliability.md, "Lock order". Step 1 is about the names of
-- projects, users and consumer types; resource classes and providers must exist. Step 2 locks a
-- consumer by the upsert, and step 4 may delete it, which needs a stronger lock. That cannot
-- deadlock: the same section says why.
--
-- Everything is found by keys, however many rows there are. So a plan that was made when the tables
-- were empty is right when they are full: force_generic_plan lets a session plan each statement
-- once, and enable_seqscan = off keeps a plan made for tables of one page from reading tables of
-- many. A scalar subquery per key leaves PostgreSQL no other plan than an index lookup.
CREATE OR REPLACE FUNCTION apply_claims(
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
    provider_increment integer
)
RETURNS json
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    consumer_ids bigint[];
    upserted_uuids text[];
    generations_before bigint[];
    any_existed boolean;
    generations_match boolean;
    consumers_to_delete bigint[];
    incremented_provider_uuids text[];
    provider_ids int[];
    allocated_before jsonb;
    allocated_after jsonb;
    inserted_count int;
BEGIN
    -- 1. Insert missing names first and in one order, so that two transactions cannot deadlock on
    -- them. Names are never deleted by requests.
    IF EXISTS (
        SELECT
          FROM unnest(project_names, user_names, type_names)
            AS claimed (project_name, user_name, type_name)
         WHERE (SELECT id FROM projects WHERE external_id = claimed.project_name) IS NULL
            OR (SELECT id FROM users WHERE external_id = claimed.user_name) IS NULL
            OR claimed.type_name IS NOT NULL
               AND (SELECT id FROM consumer_types WHERE name = claimed.type_name) IS NULL
    ) THEN
        INSERT INTO projects (external_id)
        SELECT DISTINCT name COLLATE "C" AS name
          FROM unnest(project_names) AS name
         ORDER BY name
            ON CONFLICT DO NOTHING;
        INSERT INTO users (external_id)
        SELECT DISTINCT name COLLATE "C" AS name
          FROM unnest(user_names) AS name
         ORDER BY name
            ON CONFLICT DO NOTHING;
        INSERT INTO consumer_types (name)
        SELECT DISTINCT name COLLATE "C" AS name
          FROM unnest(type_names) AS name
         WHERE name IS NOT NULL
         ORDER BY name
            ON CONFLICT DO NOTHING;
    END IF;

    -- 2. Lock the consumers and create the absent ones. Every transaction locks consumers in the
    -- order of their uuids, so two of them never deadlock. The upsert waits for any transaction
    -- that inserts or changes the same consumer, and then sees its result: two requests can never
    -- both find the consumer absent.
    WITH upserted AS (
        INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, generation)
        SELECT claimed.uuid,
               (SELECT id FROM projects WHERE external_id = claimed.project_name),
               (SELECT id FROM users WHERE external_id = claimed.user_name),
               (SELECT id FROM consumer_types WHERE name = claimed.type_name),
               1
          FROM unnest(consumer_uuids, project_names, user_names, type_names)
            AS claimed (uuid, project_name, user_name, type_name)
         ORDER BY claimed.uuid COLLATE "C"
            ON CONFLICT (uuid) DO UPDATE
           SET project_id = excluded.project_id,
               user_id = excluded.user_id,
               consumer_type_id = coalesce(excluded.consumer_type_id, consumers.consumer_type_id),
               generation = consumers.generation + 1
        -- The upsert has locked a row that existed before, so its xmax is set. That of an inserted
        -- row is 0.
        RETURNING id, uuid, CASE WHEN xmax <> 0 THEN generation - 1 END AS generation_before
    )
    SELECT array_agg(upserted.id),
           array_agg(upserted.uuid),
           array_agg(upserted.generation_before),
           bool_or(upserted.generation_before IS NOT NULL),
           bool_and(upserted.generation_before IS NOT DISTINCT FROM known.generation),
           coalesce(
               array_agg(upserted.id)
                   FILTER (WHERE upserted.uuid NOT IN (SELECT unnest(allocation_consumers))),
               '{}'
           )
      INTO consumer_ids,
           upserted_uuids,
           generations_before,
           any_existed,
           generations_match,
           consumers_to_delete
      FROM upserted
      JOIN unnest(consumer_uuids, known_generations) AS known (uuid, generation)
        ON known.uuid = upserted.uuid;
    IF compare_generations AND NOT generations_match THEN
        RETURN json_build_object(
            'generations', (
                SELECT json_object_agg(uuid, generation)
                  FROM unnest(upserted_uuids, generations_before) AS upserted (uuid, generation)
            )
        );
    END IF;

    -- 3. Lock the providers whose generations are incremented: those that the claims name, and
    -- those of which the consumers to delete have allocations.
    incremented_provider_uuids := allocation_providers;
    IF consumers_to_delete <> '{}' THEN
        incremented_provider_uuids := incremented_provider_uuids || ARRAY(
            SELECT (SELECT uuid FROM resource_providers WHERE id = provider_id)
              FROM allocations
             WHERE consumer_id = ANY (consumers_to_delete)
        );
    END IF;
    provider_ids := ARRAY(
        -- In the order of their ids; "+ 0" keeps the planner from reading the index on id for that
        -- order.
        SELECT id
          FROM resource_providers
         WHERE uuid = ANY (incremented_provider_uuids)
         ORDER BY id + 0
           FOR NO KEY UPDATE
    );

    -- 4. Lock the inventories of these providers and of those whose allocations are replaced,
    -- before the trigger on allocations updates `used` in them. Then release the allocations. The
    -- consumers are locked, so no other transaction changes their allocations between the
    -- statements.
    IF any_existed THEN
        allocated_before := sum_allocations(consumer_ids);
    END IF;
    PERFORM
       FROM inventories
      WHERE provider_id = ANY (
                provider_ids || ARRAY(SELECT split_part(key, ' ', 1)::int
                                        FROM jsonb_object_keys(allocated_before) AS key)
            )
      ORDER BY provider_id, resource_class_id
        FOR NO KEY UPDATE;
    IF allocated_before IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
    IF consumers_to_delete <> '{}' THEN
        DELETE FROM consumers WHERE id = ANY (consumers_to_delete);
    END IF;

    -- 5. Increment the generations of the providers, here and not by the statement that locks the
    -- rows. A statement that locks a row and updates it looks for it twice in its one snapshot; in
    -- between, a transaction that waits for the row can get it.
    --
    -- A row is updated only once. On a second update in one transaction, PostgreSQL checks the foreign
    -- key to the parent again, for which it locks the row of the parent: out of the lock order.
    UPDATE resource_providers
       SET generation = generation + provider_increment,
           updated_at = now()
     WHERE id = ANY (provider_ids);
    -- A provider that was created meanwhile is not locked, and counts as missing. The locked ones are
    -- looked up in a hash table, as an array would be searched anew for each allocation. In a WHERE
    -- clause, PostgreSQL would make a join of it and no hash table.
    WITH requested AS MATERIALIZED (
        SELECT (SELECT id FROM consumers WHERE uuid = claimed.consumer) AS consumer_id,
               (SELECT CASE WHEN id IN (SELECT unnest(provider_ids)) THEN id END
                  FROM resource_providers
                 WHERE uuid = claimed.provider) AS provider_id,
               (SELECT id FROM resource_classes WHERE name = claimed.class) AS class_id,
               claimed.amount
          FROM unnest(allocation_consumers, allocation_providers, allocation_classes, allocation_amounts)
            AS claimed (consumer, provider, class, amount)
    )
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT requested.consumer_id, requested.provider_id, requested.class_id, requested.amount
      FROM requested
    -- An amount that does not fit the units is omitted, and refused below: it must not be an SQL
    -- error. A client may send 1e300, so amounts beyond the range of max_unit are compared as the
    -- first one beyond it.
     WHERE (SELECT fits_units(least(requested.amount, 2147483648)::bigint, min_unit, max_unit, step_size)
              FROM inventories
             WHERE provider_id = requested.provider_id
               AND resource_class_id = requested.class_id);
    GET DIAGNOSTICS inserted_count = ROW_COUNT;

    -- 6. Grant the claims if every allocation was inserted, and none made an inventory exceed its
    -- capacity. An inventory that exceeded it before (its total was reduced) may be used as much
    -- again, but not more.
    IF inserted_count = cardinality(allocation_amounts) AND NOT EXISTS (
        SELECT
          FROM inventories AS inventory
         WHERE provider_id = ANY (provider_ids)
           AND used > capacity
           AND coalesce(((SELECT sum_allocations(consumer_ids))
                           ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
             > coalesce((allocated_before
                           ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
    ) THEN
        RETURN NULL;
    END IF;

    -- The claims are refused: return the state before this transaction.
    allocated_after := sum_allocations(consumer_ids);
    RETURN json_build_object(
        'generations', (
            SELECT json_object_agg(uuid, generation)
              FROM unnest(upserted_uuids, generations_before) AS upserted (uuid, generation)
        ),
        'providers', (
            SELECT coalesce(json_object_agg(uuid, id), '{}')
              FROM resource_providers
             WHERE id = ANY (provider_ids)
        ),
        'inventories', (
            SELECT coalesce(json_agg(json_build_array(
                       provider_id,
                       (SELECT name FROM resource_classes WHERE id = resource_class_id),
                       total,
                       reserved,
                       min_unit,
                       max_unit,
                       step_size,
                       allocation_ratio,
                       used
                         - coalesce((allocated_after
                             ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
                         + coalesce((allocated_before
                             ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0),
                       coalesce((allocated_before
                         ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
                   )), '[]')
              FROM inventories AS inventory
             WHERE provider_id = ANY (provider_ids)
        )
    );
END
$$;
