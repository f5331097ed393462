"""Let PostgreSQL make a whole claim: one round trip between BEGIN and COMMIT, and plans that are kept.

Each function is one step, and each statement of it sees what was committed while those before it waited:
that is why they are functions, and not one statement with many parts.

Revision: 0003, after 0002.
"""

from alembic import op

revision = "0003"
down_revision = "0002"

# Everything is found by keys, whatever there is: so a plan that was made when the tables were empty is
# the right one when they are full. To look a key up in a subquery leaves no other way; and nothing that
# was planned for tables of one page may read those of many.
OPTIONS = """
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
"""

# The rows are changed in the order of their uuids, whoever changes them, so that two requests never wait
# for each other. The upsert waits for whoever else inserts or changes the same consumer, and then sees
# their work: there is no moment at which two requests could both find the consumer absent.
LOCK_AND_RAISE_CONSUMERS = f"""
CREATE FUNCTION lock_and_raise_consumers(
    uuids text[], project_names text[], user_names text[], type_names text[]
) RETURNS TABLE (consumer_id bigint, consumer_uuid text, generation_before bigint) {OPTIONS} AS $$
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
$$
"""

# Those whose generations rise: all that are named, and all that emptied consumers hold.
LOCK_PROVIDERS = f"""
CREATE FUNCTION lock_providers(uuids text[], emptied bigint[])
RETURNS TABLE (provider_id int, provider_uuid text) {OPTIONS} AS $$
DECLARE
    ids int[] := ARRAY(SELECT id FROM resource_providers WHERE uuid = ANY (uuids));
BEGIN
    IF emptied <> '{{}}' THEN
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
$$
"""

# Proportional to what the consumers hold and the providers have. The inventories are locked before the
# trigger on allocations lowers what is used of them. What is held is the same in all statements, as nobody
# changes it who has not locked the consumers.
TAKE_BACK_ALLOCATIONS = f"""
CREATE FUNCTION take_back_allocations(consumer_ids bigint[], provider_ids int[])
RETURNS TABLE (
    stock_provider_id int, stock_class text, stock_total int, stock_reserved int, stock_min_unit int,
    stock_max_unit int, stock_step_size int, stock_ratio float8, stock_used bigint, replaced bigint
) {OPTIONS} AS $$
DECLARE
    held_providers int[];
    held_classes int[];
    held_amounts int[];
BEGIN
    SELECT array_agg(provider_id), array_agg(resource_class_id), array_agg(used)
      INTO held_providers, held_classes, held_amounts
      FROM allocations
     WHERE consumer_id = ANY (consumer_ids);
    RETURN QUERY
    SELECT inventory.provider_id,
           (SELECT name::text FROM resource_classes WHERE id = inventory.resource_class_id),
           inventory.total, inventory.reserved, inventory.min_unit, inventory.max_unit,
           inventory.step_size, inventory.allocation_ratio, inventory.used,
           (SELECT coalesce(sum(held.amount), 0)
              FROM unnest(held_providers, held_classes, held_amounts) AS held (provider_id, class_id, amount)
             WHERE held.provider_id = inventory.provider_id
               AND held.class_id = inventory.resource_class_id)
      FROM inventories AS inventory
     WHERE inventory.provider_id = ANY (provider_ids || held_providers)
     ORDER BY inventory.provider_id, inventory.resource_class_id
       FOR NO KEY UPDATE;
    IF held_providers IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
END
$$
"""

# Generations rise here, not where their rows are locked: a statement that locks a row and changes it looks
# for it twice from its one snapshot, and can meet somebody in between who waits for it.
# What the inventories never grant is left out, as the check refuses it: nothing of it may be an error of SQL.
GIVE_ALLOCATIONS = f"""
CREATE FUNCTION give_allocations(
    consumer_uuids text[], provider_uuids text[], class_names text[], amounts numeric[],
    emptied bigint[], raised int[]
) RETURNS void {OPTIONS} AS $$
BEGIN
    IF emptied <> '{{}}' THEN
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
$$
"""

CLAIM_ALLOCATIONS = f"""
CREATE FUNCTION claim_allocations(
    consumer_uuids text[], project_names text[], user_names text[], type_names text[],
    holders text[], provider_uuids text[], class_names text[], amounts numeric[]
) RETURNS json {OPTIONS} AS $$
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
               array_agg(consumer_id) FILTER (WHERE consumer_uuid NOT IN (SELECT unnest(holders))), '{{}}'
           ),
           json_object_agg(consumer_uuid, generation_before)
      INTO consumer_ids, emptied, generations
      FROM lock_and_raise_consumers(consumer_uuids, project_names, user_names, type_names);
    SELECT coalesce(array_agg(provider_id), '{{}}'),
           coalesce(json_object_agg(provider_uuid, provider_id), '{{}}')
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
$$
"""

REMOVE_CONSUMER = f"""
CREATE FUNCTION remove_consumer(consumer_uuid text) RETURNS boolean {OPTIONS} AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT id FROM consumers WHERE uuid = consumer_uuid FOR UPDATE);
BEGIN
    PERFORM take_back_allocations(ids, '{{}}');
    DELETE FROM consumers WHERE id = ANY (ids);
    RETURN FOUND;
END
$$
"""

FUNCTIONS = {
    "lock_and_raise_consumers": LOCK_AND_RAISE_CONSUMERS,
    "lock_providers": LOCK_PROVIDERS,
    "take_back_allocations": TAKE_BACK_ALLOCATIONS,
    "give_allocations": GIVE_ALLOCATIONS,
    "claim_allocations": CLAIM_ALLOCATIONS,
    "remove_consumer": REMOVE_CONSUMER,
}


def upgrade() -> None:
    for statement in FUNCTIONS.values():
        op.execute(statement)


def downgrade() -> None:
    for function in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {function}")
