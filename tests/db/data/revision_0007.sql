-- The schema at revision 0007 as commit c8c4448 created it, before its migrations became one baseline.
-- Made with `pg_dump --schema-only`, without settings, comments and names of schemas; the functions are as
-- they were. tests/db/test_baseline.py upgrades it.

CREATE FUNCTION allocations_keep_used() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        UPDATE inventories SET used = 0 WHERE used <> 0;
        RETURN NULL;
    END IF;
    IF TG_OP IN ('DELETE', 'UPDATE') THEN
        UPDATE inventories AS i
           SET used = i.used - gone.used
          FROM (SELECT provider_id, resource_class_id, sum(used)::bigint AS used
                  FROM old_allocations
                 GROUP BY provider_id, resource_class_id) AS gone
         WHERE (i.provider_id, i.resource_class_id) = (gone.provider_id, gone.resource_class_id);
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        UPDATE inventories AS i
           SET used = i.used + come.used
          FROM (SELECT provider_id, resource_class_id, sum(used)::bigint AS used
                  FROM new_allocations
                 GROUP BY provider_id, resource_class_id) AS come
         WHERE (i.provider_id, i.resource_class_id) = (come.provider_id, come.resource_class_id);
    END IF;
    RETURN NULL;
END
$$;

CREATE PROCEDURE claim(IN consumer_uuids text[], IN project_names text[], IN user_names text[], IN type_names text[], IN compares_generations boolean, IN known_generations numeric[], IN holders text[], IN provider_uuids text[], IN class_names text[], IN amounts numeric[], INOUT refused json)
    LANGUAGE plpgsql
    AS $$
BEGIN
    refused := try_claims(
        consumer_uuids, project_names, user_names, type_names, compares_generations, known_generations,
        holders, provider_uuids, class_names, amounts
    );
    IF refused IS NOT NULL THEN
        ROLLBACK;
    END IF;
END
$$;

CREATE FUNCTION claim_allocations(consumer_uuids text[], project_names text[], user_names text[], type_names text[], holders text[], provider_uuids text[], class_names text[], amounts numeric[]) RETURNS json
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    consumer_ids bigint[];
    emptied bigint[];
    generations json;
    provider_ids int[];
    providers json;
    stocks json;
BEGIN
    SELECT array_agg(consumer_id),
           coalesce(
               array_agg(consumer_id) FILTER (WHERE consumer_uuid NOT IN (SELECT unnest(holders))), '{}'
           ),
           json_object_agg(consumer_uuid, generation_before)
      INTO consumer_ids, emptied, generations
      FROM lock_and_raise_consumers(consumer_uuids, project_names, user_names, type_names);
    SELECT coalesce(array_agg(provider_id), '{}'),
           coalesce(json_object_agg(provider_uuid, provider_id), '{}')
      INTO provider_ids, providers
      FROM lock_providers(provider_uuids, emptied);
    SELECT coalesce(json_agg(json_build_array(
               stock_provider_id, stock_class, stock_total, stock_reserved, stock_min_unit,
               stock_max_unit, stock_step_size, stock_ratio, stock_used, replaced
           )), '[]')
      INTO stocks
      FROM take_back_allocations(consumer_ids, provider_ids);
    PERFORM give_allocations(holders, provider_uuids, class_names, amounts, emptied, provider_ids);
    RETURN json_build_object('generations', generations, 'providers', providers, 'stocks', stocks);
END
$$;

CREATE PROCEDURE claim_together(IN consumer_uuids text[], IN project_names text[], IN user_names text[], IN type_names text[], IN compares_generations boolean, IN known_generations numeric[], IN holders text[], IN provider_uuids text[], IN class_names text[], IN amounts numeric[], INOUT refused json)
    LANGUAGE plpgsql
    AS $$
BEGIN
    refused := try_claims(
        consumer_uuids, project_names, user_names, type_names, compares_generations, known_generations,
        holders, provider_uuids, class_names, amounts
    );
    IF refused IS NULL THEN
        PERFORM raise_providers(provider_uuids, cardinality(consumer_uuids) - 1);
    ELSE
        ROLLBACK;
    END IF;
END
$$;

CREATE FUNCTION give_allocations(consumer_uuids text[], provider_uuids text[], class_names text[], amounts numeric[], emptied bigint[], raised integer[]) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    IF emptied <> '{}' THEN
        DELETE FROM consumers WHERE id = ANY (emptied);
    END IF;
    UPDATE resource_providers
       SET generation = generation + 1, updated_at = now()
     WHERE id = ANY (raised);
    WITH wanted AS MATERIALIZED (
        SELECT (SELECT id FROM consumers WHERE uuid = claimed.consumer) AS consumer_id,
               (SELECT id FROM resource_providers WHERE uuid = claimed.provider AND id = ANY (raised))
                   AS provider_id,
               (SELECT id FROM resource_classes WHERE name = claimed.class) AS class_id,
               claimed.amount
          FROM unnest(consumer_uuids, provider_uuids, class_names, amounts)
            AS claimed (consumer, provider, class, amount)
    )
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT wanted.consumer_id, wanted.provider_id, wanted.class_id, wanted.amount
      FROM wanted
     WHERE wanted.amount <= (SELECT max_unit
                               FROM inventories
                              WHERE provider_id = wanted.provider_id
                                AND resource_class_id = wanted.class_id);
END
$$;

CREATE FUNCTION held_of(consumer_ids bigint[]) RETURNS jsonb
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    RETURN (
        SELECT jsonb_object_agg(held.provider_id || ' ' || held.resource_class_id, held.amount)
          FROM (SELECT allocation.provider_id, allocation.resource_class_id, sum(allocation.used) AS amount
                  FROM unnest(consumer_ids) AS consumer (id)
                 CROSS JOIN LATERAL (SELECT provider_id, resource_class_id, used
                                       FROM allocations
                                      WHERE consumer_id = consumer.id
                                     OFFSET 0) AS allocation
                 GROUP BY allocation.provider_id, allocation.resource_class_id) AS held
    );
END
$$;

CREATE FUNCTION lock_and_raise_consumers(uuids text[], project_names text[], user_names text[], type_names text[]) RETURNS TABLE(consumer_id bigint, consumer_uuid text, generation_before bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    -- The names that are not there yet come first, in one order; they are never deleted.
    IF EXISTS (
        SELECT
          FROM unnest(project_names, user_names, type_names) AS claimed (project, owner, type)
         WHERE (SELECT id FROM projects WHERE external_id = claimed.project) IS NULL
            OR (SELECT id FROM users WHERE external_id = claimed.owner) IS NULL
            OR claimed.type IS NOT NULL
               AND (SELECT id FROM consumer_types WHERE name = claimed.type) IS NULL
    ) THEN
        INSERT INTO projects (external_id)
        SELECT DISTINCT name COLLATE "C" AS name FROM unnest(project_names) AS name ORDER BY name
            ON CONFLICT DO NOTHING;
        INSERT INTO users (external_id)
        SELECT DISTINCT name COLLATE "C" AS name FROM unnest(user_names) AS name ORDER BY name
            ON CONFLICT DO NOTHING;
        INSERT INTO consumer_types (name)
        SELECT DISTINCT name COLLATE "C" AS name FROM unnest(type_names) AS name
         WHERE name IS NOT NULL
         ORDER BY name
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, generation)
    SELECT claimed.uuid,
           (SELECT id FROM projects WHERE external_id = claimed.project),
           (SELECT id FROM users WHERE external_id = claimed.owner),
           (SELECT id FROM consumer_types WHERE name = claimed.type),
           1
      FROM unnest(uuids, project_names, user_names, type_names) AS claimed (uuid, project, owner, type)
     ORDER BY claimed.uuid COLLATE "C"
        ON CONFLICT (uuid) DO UPDATE
       SET project_id = excluded.project_id,
           user_id = excluded.user_id,
           consumer_type_id = coalesce(excluded.consumer_type_id, consumers.consumer_type_id),
           generation = consumers.generation + 1
    -- A row that was there has been locked by the upsert; one that it has inserted never was.
    RETURNING id, uuid::text, CASE WHEN xmax <> 0 THEN generation - 1 END;
END
$$;

CREATE FUNCTION lock_providers(uuids text[], emptied bigint[]) RETURNS TABLE(provider_id integer, provider_uuid text)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    ids int[] := ARRAY(SELECT id FROM resource_providers WHERE uuid = ANY (uuids));
BEGIN
    IF emptied <> '{}' THEN
        ids := ids || ARRAY(
            SELECT allocations.provider_id FROM allocations WHERE consumer_id = ANY (emptied)
        );
    END IF;
    RETURN QUERY
    SELECT id, uuid::text
      FROM resource_providers
     WHERE id = ANY (ids)
     ORDER BY id
       FOR NO KEY UPDATE;
END
$$;

CREATE FUNCTION provider_traits_keep_ids() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        UPDATE resource_providers SET trait_ids = '{}' WHERE trait_ids <> '{}';
        RETURN NULL;
    END IF;
    IF TG_OP IN ('DELETE', 'UPDATE') THEN
        UPDATE resource_providers AS p
           SET trait_ids = ARRAY(SELECT trait_id
                                   FROM provider_traits
                                  WHERE provider_id = p.id
                                  ORDER BY trait_id)
         WHERE p.id IN (SELECT provider_id FROM old_traits);
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        UPDATE resource_providers AS p
           SET trait_ids = ARRAY(SELECT trait_id
                                   FROM provider_traits
                                  WHERE provider_id = p.id
                                  ORDER BY trait_id)
         WHERE p.id IN (SELECT provider_id FROM new_traits);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION raise_providers(provider_uuids text[], by integer) RETURNS void
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
BEGIN
    UPDATE resource_providers SET generation = generation + by WHERE uuid = ANY (provider_uuids);
END
$$;

CREATE FUNCTION remove_consumer(consumer_uuid text) RETURNS boolean
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT id FROM consumers WHERE uuid = consumer_uuid FOR UPDATE);
BEGIN
    PERFORM take_back_allocations(ids, '{}');
    DELETE FROM consumers WHERE id = ANY (ids);
    RETURN FOUND;
END
$$;

CREATE FUNCTION take_back_allocations(consumer_ids bigint[], provider_ids integer[]) RETURNS TABLE(stock_provider_id integer, stock_class text, stock_total integer, stock_reserved integer, stock_min_unit integer, stock_max_unit integer, stock_step_size integer, stock_ratio double precision, stock_used bigint, replaced bigint)
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    held jsonb := held_of(consumer_ids);
BEGIN
    RETURN QUERY
    SELECT inventory.provider_id,
           (SELECT name::text FROM resource_classes WHERE id = inventory.resource_class_id),
           inventory.total, inventory.reserved, inventory.min_unit, inventory.max_unit,
           inventory.step_size, inventory.allocation_ratio, inventory.used, coalesce((held ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
      FROM inventories AS inventory
     WHERE inventory.provider_id = ANY (provider_ids || ARRAY(SELECT split_part(key, ' ', 1)::int FROM jsonb_object_keys(held) AS key))
     ORDER BY inventory.provider_id, inventory.resource_class_id
       FOR NO KEY UPDATE;
    IF held IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
END
$$;

CREATE FUNCTION try_claims(consumer_uuids text[], project_names text[], user_names text[], type_names text[], compares_generations boolean, known_generations numeric[], holders text[], provider_uuids text[], class_names text[], amounts numeric[]) RETURNS json
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    consumer_ids bigint[];
    raised_uuids text[];
    generations_before bigint[];
    was_there boolean;
    is_known boolean;
    emptied bigint[];
    raised_providers text[];
    provider_ids int[];
    held jsonb;
    given jsonb;
    given_count int;
BEGIN
    IF EXISTS (
        SELECT
          FROM unnest(project_names, user_names, type_names) AS claimed (project, owner, type)
         WHERE (SELECT id FROM projects WHERE external_id = claimed.project) IS NULL
            OR (SELECT id FROM users WHERE external_id = claimed.owner) IS NULL
            OR claimed.type IS NOT NULL
               AND (SELECT id FROM consumer_types WHERE name = claimed.type) IS NULL
    ) THEN
        INSERT INTO projects (external_id)
        SELECT DISTINCT name COLLATE "C" AS name FROM unnest(project_names) AS name ORDER BY name
            ON CONFLICT DO NOTHING;
        INSERT INTO users (external_id)
        SELECT DISTINCT name COLLATE "C" AS name FROM unnest(user_names) AS name ORDER BY name
            ON CONFLICT DO NOTHING;
        INSERT INTO consumer_types (name)
        SELECT DISTINCT name COLLATE "C" AS name FROM unnest(type_names) AS name
         WHERE name IS NOT NULL
         ORDER BY name
            ON CONFLICT DO NOTHING;
    END IF;

    WITH raised AS (
        INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, generation)
        SELECT claimed.uuid,
               (SELECT id FROM projects WHERE external_id = claimed.project),
               (SELECT id FROM users WHERE external_id = claimed.owner),
               (SELECT id FROM consumer_types WHERE name = claimed.type),
               1
          FROM unnest(consumer_uuids, project_names, user_names, type_names)
            AS claimed (uuid, project, owner, type)
         ORDER BY claimed.uuid COLLATE "C"
            ON CONFLICT (uuid) DO UPDATE
           SET project_id = excluded.project_id,
               user_id = excluded.user_id,
               consumer_type_id = coalesce(excluded.consumer_type_id, consumers.consumer_type_id),
               generation = consumers.generation + 1
        -- A row that was there has been locked by the upsert; one that it has inserted never was.
        RETURNING id, uuid, CASE WHEN xmax <> 0 THEN generation - 1 END AS generation_before
    )
    SELECT array_agg(raised.id), array_agg(raised.uuid), array_agg(raised.generation_before),
           bool_or(raised.generation_before IS NOT NULL),
           bool_and(raised.generation_before IS NOT DISTINCT FROM known.generation),
           coalesce(array_agg(raised.id) FILTER (WHERE raised.uuid NOT IN (SELECT unnest(holders))), '{}')
      INTO consumer_ids, raised_uuids, generations_before, was_there, is_known, emptied
      FROM raised
      JOIN unnest(consumer_uuids, known_generations) AS known (uuid, generation)
        ON known.uuid = raised.uuid;
    IF compares_generations AND NOT is_known THEN
        RETURN json_build_object('generations', (
            SELECT json_object_agg(uuid, generation)
              FROM unnest(raised_uuids, generations_before) AS raised (uuid, generation)
        ));
    END IF;

    raised_providers := provider_uuids;
    IF emptied <> '{}' THEN
        raised_providers := raised_providers || ARRAY(
            SELECT (SELECT uuid FROM resource_providers WHERE id = provider_id)
              FROM allocations
             WHERE consumer_id = ANY (emptied)
        );
    END IF;
    provider_ids := ARRAY(
        -- By id, but not so that an index in that order seems to be of use.
        SELECT id
          FROM resource_providers
         WHERE uuid = ANY (raised_providers)
         ORDER BY id + 0
           FOR NO KEY UPDATE
    );

    IF was_there THEN
        held := held_of(consumer_ids);
    END IF;
    PERFORM
       FROM inventories
      WHERE provider_id = ANY (provider_ids || ARRAY(SELECT split_part(key, ' ', 1)::int FROM jsonb_object_keys(held) AS key))
      ORDER BY provider_id, resource_class_id
        FOR NO KEY UPDATE;
    IF held IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
    IF emptied <> '{}' THEN
        DELETE FROM consumers WHERE id = ANY (emptied);
    END IF;

    UPDATE resource_providers
       SET generation = generation + 1, updated_at = now()
     WHERE id = ANY (provider_ids);
    WITH wanted AS MATERIALIZED (
        SELECT (SELECT id FROM consumers WHERE uuid = claimed.consumer) AS consumer_id,
               (SELECT id FROM resource_providers WHERE uuid = claimed.provider AND id = ANY (provider_ids))
                   AS provider_id,
               (SELECT id FROM resource_classes WHERE name = claimed.class) AS class_id,
               claimed.amount
          FROM unnest(holders, provider_uuids, class_names, amounts)
            AS claimed (consumer, provider, class, amount)
    )
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT wanted.consumer_id, wanted.provider_id, wanted.class_id, wanted.amount
      FROM wanted
     WHERE (SELECT wanted.amount BETWEEN min_unit AND max_unit AND wanted.amount % step_size = 0
              FROM inventories
             WHERE provider_id = wanted.provider_id
               AND resource_class_id = wanted.class_id);
    GET DIAGNOSTICS given_count = ROW_COUNT;
    IF given_count = cardinality(amounts) AND NOT EXISTS (
        SELECT
          FROM inventories AS inventory
         WHERE provider_id = ANY (provider_ids)
           AND used > capacity
           AND coalesce(((SELECT held_of(consumer_ids)) ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0) > coalesce((held ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
    ) THEN
        RETURN NULL;
    END IF;

    given := held_of(consumer_ids);
    RETURN json_build_object(
        'generations', (
            SELECT json_object_agg(uuid, generation)
              FROM unnest(raised_uuids, generations_before) AS raised (uuid, generation)
        ),
        'providers', (
            SELECT coalesce(json_object_agg(uuid, id), '{}')
              FROM resource_providers
             WHERE id = ANY (provider_ids)
        ),
        'stocks', (
            SELECT coalesce(json_agg(json_build_array(
                       provider_id, (SELECT name FROM resource_classes WHERE id = resource_class_id),
                       total, reserved, min_unit, max_unit, step_size, allocation_ratio,
                       used - coalesce((given ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0) + coalesce((held ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0), coalesce((held ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
                   )), '[]')
              FROM inventories AS inventory
             WHERE provider_id = ANY (provider_ids)
        )
    );
END
$$;

CREATE TABLE aggregates (
    id integer NOT NULL,
    uuid character varying(50) NOT NULL COLLATE pg_catalog."C"
);

ALTER TABLE aggregates ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 1);

CREATE TABLE alembic_version (
    version_num character varying(32) NOT NULL
);

CREATE TABLE allocations (
    consumer_id bigint NOT NULL,
    provider_id integer NOT NULL,
    resource_class_id integer NOT NULL,
    used integer NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT allocations_used_check CHECK ((used > 0))
);

CREATE TABLE consumer_types (
    id integer NOT NULL,
    name character varying(255) NOT NULL COLLATE pg_catalog."C"
);

ALTER TABLE consumer_types ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 1);

CREATE TABLE consumers (
    id bigint NOT NULL,
    uuid character varying(36) NOT NULL COLLATE pg_catalog."C",
    project_id integer NOT NULL,
    user_id integer NOT NULL,
    consumer_type_id integer,
    generation bigint DEFAULT '0'::bigint NOT NULL
);

ALTER TABLE consumers ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 1);

CREATE TABLE inventories (
    provider_id integer NOT NULL,
    root_id integer NOT NULL,
    resource_class_id integer NOT NULL,
    total integer NOT NULL,
    reserved integer NOT NULL,
    min_unit integer NOT NULL,
    max_unit integer NOT NULL,
    step_size integer NOT NULL,
    allocation_ratio double precision NOT NULL,
    used bigint DEFAULT '0'::bigint NOT NULL,
    capacity bigint GENERATED ALWAYS AS ((trunc(LEAST(GREATEST((((total - reserved))::double precision * allocation_ratio), (- ('4000000000000000000'::numeric)::double precision)), ('4000000000000000000'::numeric)::double precision)))::bigint) STORED NOT NULL,
    room bigint GENERATED ALWAYS AS (LEAST(((trunc(LEAST(GREATEST((((total - reserved))::double precision * allocation_ratio), (- ('4000000000000000000'::numeric)::double precision)), ('4000000000000000000'::numeric)::double precision)))::bigint - used), (max_unit)::bigint)) STORED NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone,
    CONSTRAINT inventories_reserved_check CHECK ((reserved >= 0)),
    CONSTRAINT inventories_total_check CHECK ((total > 0)),
    CONSTRAINT inventories_units_check CHECK ((LEAST(min_unit, max_unit, step_size) > 0)),
    CONSTRAINT inventories_used_check CHECK ((used >= 0))
);

CREATE TABLE projects (
    id integer NOT NULL,
    external_id character varying(255) NOT NULL
);

ALTER TABLE projects ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 1);

CREATE TABLE provider_aggregates (
    provider_id integer NOT NULL,
    root_id integer NOT NULL,
    aggregate_id integer NOT NULL
);

CREATE TABLE provider_traits (
    provider_id integer NOT NULL,
    trait_id integer NOT NULL
);

CREATE TABLE resource_classes (
    id integer NOT NULL,
    name character varying(255) NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone
);

ALTER TABLE resource_classes ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 10000);

CREATE TABLE resource_providers (
    id integer NOT NULL,
    uuid character varying(36) NOT NULL COLLATE pg_catalog."C",
    name character varying(200) NOT NULL COLLATE pg_catalog."C",
    generation bigint DEFAULT '0'::bigint NOT NULL,
    parent_id integer,
    root_id integer NOT NULL,
    path integer[] NOT NULL,
    trait_ids integer[] DEFAULT '{}'::integer[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone,
    CONSTRAINT resource_providers_path_ends_check CHECK (((cardinality(path) > 0) AND (path[1] = root_id) AND (path[cardinality(path)] = id))),
    CONSTRAINT resource_providers_path_parent_check CHECK ((NOT (parent_id IS DISTINCT FROM path[(cardinality(path) - 1)])))
);
ALTER TABLE ONLY resource_providers ALTER COLUMN trait_ids SET STATISTICS 1000;
ALTER TABLE resource_providers ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 1);

CREATE TABLE traits (
    id integer NOT NULL,
    name character varying(255) NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone
);

ALTER TABLE traits ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 10000);

CREATE TABLE users (
    id integer NOT NULL,
    external_id character varying(255) NOT NULL
);

ALTER TABLE users ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH 1);
ALTER TABLE ONLY aggregates ADD CONSTRAINT aggregates_pkey PRIMARY KEY (id);
ALTER TABLE ONLY aggregates ADD CONSTRAINT aggregates_uuid_key UNIQUE (uuid);
ALTER TABLE ONLY alembic_version ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY allocations ADD CONSTRAINT allocations_pkey PRIMARY KEY (consumer_id, provider_id, resource_class_id);
ALTER TABLE ONLY consumer_types ADD CONSTRAINT consumer_types_name_key UNIQUE (name);
ALTER TABLE ONLY consumer_types ADD CONSTRAINT consumer_types_pkey PRIMARY KEY (id);
ALTER TABLE ONLY consumers ADD CONSTRAINT consumers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY consumers ADD CONSTRAINT consumers_uuid_key UNIQUE (uuid);
ALTER TABLE ONLY inventories ADD CONSTRAINT inventories_pkey PRIMARY KEY (provider_id, resource_class_id);
ALTER TABLE ONLY projects ADD CONSTRAINT projects_external_id_key UNIQUE (external_id);
ALTER TABLE ONLY projects ADD CONSTRAINT projects_pkey PRIMARY KEY (id);
ALTER TABLE ONLY provider_aggregates ADD CONSTRAINT provider_aggregates_pkey PRIMARY KEY (provider_id, aggregate_id);
ALTER TABLE ONLY provider_traits ADD CONSTRAINT provider_traits_pkey PRIMARY KEY (provider_id, trait_id);
ALTER TABLE ONLY resource_classes ADD CONSTRAINT resource_classes_name_key UNIQUE (name);
ALTER TABLE ONLY resource_classes ADD CONSTRAINT resource_classes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY resource_providers ADD CONSTRAINT resource_providers_id_root_id_key UNIQUE (id, root_id);
ALTER TABLE ONLY resource_providers ADD CONSTRAINT resource_providers_name_key UNIQUE (name);
ALTER TABLE ONLY resource_providers ADD CONSTRAINT resource_providers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY resource_providers ADD CONSTRAINT resource_providers_uuid_key UNIQUE (uuid);
ALTER TABLE ONLY traits ADD CONSTRAINT traits_name_key UNIQUE (name);
ALTER TABLE ONLY traits ADD CONSTRAINT traits_pkey PRIMARY KEY (id);
ALTER TABLE ONLY users ADD CONSTRAINT users_external_id_key UNIQUE (external_id);
ALTER TABLE ONLY users ADD CONSTRAINT users_pkey PRIMARY KEY (id);
CREATE INDEX allocations_provider_id_resource_class_id_idx ON allocations USING btree (provider_id, resource_class_id);
CREATE INDEX consumers_project_id_idx ON consumers USING btree (project_id);
CREATE INDEX inventories_resource_class_id_room_idx ON inventories USING btree (resource_class_id, room);
CREATE INDEX inventories_root_id_resource_class_id_idx ON inventories USING btree (root_id, resource_class_id);
CREATE INDEX provider_aggregates_aggregate_id_root_id_idx ON provider_aggregates USING btree (aggregate_id, root_id);
CREATE INDEX provider_aggregates_root_id_aggregate_id_idx ON provider_aggregates USING btree (root_id, aggregate_id);
CREATE INDEX provider_traits_trait_id_provider_id_idx ON provider_traits USING btree (trait_id, provider_id);
CREATE INDEX resource_providers_parent_id_idx ON resource_providers USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX resource_providers_root_id_idx ON resource_providers USING btree (root_id);
CREATE INDEX resource_providers_roots_idx ON resource_providers USING btree (id) WHERE (parent_id IS NULL);
CREATE INDEX resource_providers_roots_uuid_idx ON resource_providers USING btree (uuid) WHERE (parent_id IS NULL);
CREATE INDEX resource_providers_trait_ids_idx ON resource_providers USING gin (trait_ids);

CREATE STATISTICS inventories_room ON resource_class_id, room FROM inventories;

CREATE TRIGGER allocations_keep_used_on_delete AFTER DELETE ON allocations REFERENCING OLD TABLE AS old_allocations FOR EACH STATEMENT EXECUTE FUNCTION allocations_keep_used();
CREATE TRIGGER allocations_keep_used_on_insert AFTER INSERT ON allocations REFERENCING NEW TABLE AS new_allocations FOR EACH STATEMENT EXECUTE FUNCTION allocations_keep_used();
CREATE TRIGGER allocations_keep_used_on_truncate AFTER TRUNCATE ON allocations FOR EACH STATEMENT EXECUTE FUNCTION allocations_keep_used();
CREATE TRIGGER allocations_keep_used_on_update AFTER UPDATE ON allocations REFERENCING OLD TABLE AS old_allocations NEW TABLE AS new_allocations FOR EACH STATEMENT EXECUTE FUNCTION allocations_keep_used();
CREATE TRIGGER provider_traits_keep_ids_on_delete AFTER DELETE ON provider_traits REFERENCING OLD TABLE AS old_traits FOR EACH STATEMENT EXECUTE FUNCTION provider_traits_keep_ids();
CREATE TRIGGER provider_traits_keep_ids_on_insert AFTER INSERT ON provider_traits REFERENCING NEW TABLE AS new_traits FOR EACH STATEMENT EXECUTE FUNCTION provider_traits_keep_ids();
CREATE TRIGGER provider_traits_keep_ids_on_truncate AFTER TRUNCATE ON provider_traits FOR EACH STATEMENT EXECUTE FUNCTION provider_traits_keep_ids();
CREATE TRIGGER provider_traits_keep_ids_on_update AFTER UPDATE ON provider_traits REFERENCING OLD TABLE AS old_traits NEW TABLE AS new_traits FOR EACH STATEMENT EXECUTE FUNCTION provider_traits_keep_ids();
ALTER TABLE ONLY allocations ADD CONSTRAINT allocations_consumer_id_fkey FOREIGN KEY (consumer_id) REFERENCES consumers(id);
ALTER TABLE ONLY allocations ADD CONSTRAINT allocations_provider_id_resource_class_id_fkey FOREIGN KEY (provider_id, resource_class_id) REFERENCES inventories(provider_id, resource_class_id);
ALTER TABLE ONLY consumers ADD CONSTRAINT consumers_consumer_type_id_fkey FOREIGN KEY (consumer_type_id) REFERENCES consumer_types(id);
ALTER TABLE ONLY consumers ADD CONSTRAINT consumers_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id);
ALTER TABLE ONLY consumers ADD CONSTRAINT consumers_user_id_fkey FOREIGN KEY (user_id) REFERENCES users(id);
ALTER TABLE ONLY inventories ADD CONSTRAINT inventories_provider_id_root_id_fkey FOREIGN KEY (provider_id, root_id) REFERENCES resource_providers(id, root_id) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE ONLY inventories ADD CONSTRAINT inventories_resource_class_id_fkey FOREIGN KEY (resource_class_id) REFERENCES resource_classes(id);
ALTER TABLE ONLY provider_aggregates ADD CONSTRAINT provider_aggregates_aggregate_id_fkey FOREIGN KEY (aggregate_id) REFERENCES aggregates(id);
ALTER TABLE ONLY provider_aggregates ADD CONSTRAINT provider_aggregates_provider_id_root_id_fkey FOREIGN KEY (provider_id, root_id) REFERENCES resource_providers(id, root_id) ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE ONLY provider_traits ADD CONSTRAINT provider_traits_provider_id_fkey FOREIGN KEY (provider_id) REFERENCES resource_providers(id) ON DELETE CASCADE;
ALTER TABLE ONLY provider_traits ADD CONSTRAINT provider_traits_trait_id_fkey FOREIGN KEY (trait_id) REFERENCES traits(id);
ALTER TABLE ONLY resource_providers ADD CONSTRAINT resource_providers_parent_fkey FOREIGN KEY (parent_id, root_id) REFERENCES resource_providers(id, root_id);

INSERT INTO alembic_version VALUES ('0007');
