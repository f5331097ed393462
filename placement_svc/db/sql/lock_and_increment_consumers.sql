-- Lock consumers, create those that do not exist, increment their generations, and set their
-- projects, users and types. Return for each consumer its id, its uuid and its generation before,
-- which is NULL for a new one.
--
-- The arrays are parallel: one element per consumer. A type that is NULL leaves the type unchanged.
--
-- A transaction of several statements calls this function: see README.md. apply_claims.sql has the
-- same statements, because calling a function that returns rows costs as much as they do.
--
-- The options keep every lookup on keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION lock_and_increment_consumers(
    uuids text[],
    project_names text[],
    user_names text[],
    type_names text[]
)
RETURNS TABLE (consumer_id bigint, consumer_uuid text, generation_before bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    -- Insert missing names first and in one order, so that two transactions cannot deadlock on
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
    -- Every transaction locks consumers in the order of their uuids, so two of them never deadlock.
    -- The upsert waits for any transaction that inserts or changes the same consumer, and then sees
    -- its result: two requests can never both find the consumer absent.
    RETURN QUERY
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, generation)
    SELECT claimed.uuid,
           (SELECT id FROM projects WHERE external_id = claimed.project_name),
           (SELECT id FROM users WHERE external_id = claimed.user_name),
           (SELECT id FROM consumer_types WHERE name = claimed.type_name),
           1
      FROM unnest(uuids, project_names, user_names, type_names)
        AS claimed (uuid, project_name, user_name, type_name)
     ORDER BY claimed.uuid COLLATE "C"
        ON CONFLICT (uuid) DO UPDATE
       SET project_id = excluded.project_id,
           user_id = excluded.user_id,
           consumer_type_id = coalesce(excluded.consumer_type_id, consumers.consumer_type_id),
           generation = consumers.generation + 1
    -- The upsert has locked a row that existed before, so its xmax is set. That of an inserted row
    -- is 0.
    RETURNING id, uuid::text, CASE WHEN xmax <> 0 THEN generation - 1 END;
END
$$;
