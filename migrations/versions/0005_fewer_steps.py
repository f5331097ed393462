"""Make a claim in fewer steps, and look up what consumers hold by their keys whatever there is.

Services of the version before call what has changed here as well: it takes and tells the same.

Revision: 0005, after 0004.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

# As in 0003: everything is found by keys, whatever there is.
OPTIONS = """
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
"""

# How much consumers hold together of each inventory, by the ids of provider and class with a space between;
# NULL if that is nothing. One consumer is looked up after the other, behind OFFSET 0: to group all that is
# found by ANY, a plan for a table that was empty when it was vacuumed would read all of the index that is in
# the order of the groups.
HELD_OF = f"""
CREATE FUNCTION held_of(consumer_ids bigint[]) RETURNS jsonb {OPTIONS} AS $$
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
$$
"""

HELD_PROVIDERS = "ARRAY(SELECT split_part(key, ' ', 1)::int FROM jsonb_object_keys(held) AS key)"


def amount(amounts: str) -> str:
    """Return SQL for how much of an `inventory` is in `amounts`, which are as `held_of` tells them."""
    key = "inventory.provider_id || ' ' || inventory.resource_class_id"
    return f"coalesce(({amounts} ->> ({key}))::bigint, 0)"


GENERATIONS = """(
            SELECT json_object_agg(uuid, generation)
              FROM unnest(raised_uuids, generations_before) AS raised (uuid, generation)
        )"""

# As in 0004, but for how it finds what is held.
TAKE_BACK_ALLOCATIONS = f"""
CREATE OR REPLACE FUNCTION take_back_allocations(consumer_ids bigint[], provider_ids int[])
RETURNS TABLE (
    stock_provider_id int, stock_class text, stock_total int, stock_reserved int, stock_min_unit int,
    stock_max_unit int, stock_step_size int, stock_ratio float8, stock_used bigint, replaced bigint
) {OPTIONS} AS $$
DECLARE
    held jsonb := held_of(consumer_ids);
BEGIN
    RETURN QUERY
    SELECT inventory.provider_id,
           (SELECT name::text FROM resource_classes WHERE id = inventory.resource_class_id),
           inventory.total, inventory.reserved, inventory.min_unit, inventory.max_unit,
           inventory.step_size, inventory.allocation_ratio, inventory.used, {amount("held")}
      FROM inventories AS inventory
     WHERE inventory.provider_id = ANY (provider_ids || {HELD_PROVIDERS})
     ORDER BY inventory.provider_id, inventory.resource_class_id
       FOR NO KEY UPDATE;
    IF held IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
END
$$
"""

# What each statement is for, and why it is one of its own, stands in 0003. Functions that return rows cost
# as much as what they do, so there are none here; and what only a refusal needs, only a refusal finds out.
# An inventory may not be given beyond its capacity; where more is used already, not beyond that.
TRY_CLAIMS = f"""
CREATE OR REPLACE FUNCTION try_claims(
    consumer_uuids text[], project_names text[], user_names text[], type_names text[],
    compares_generations boolean, known_generations numeric[],
    holders text[], provider_uuids text[], class_names text[], amounts numeric[]
) RETURNS json {OPTIONS} AS $$
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
           coalesce(array_agg(raised.id) FILTER (WHERE raised.uuid NOT IN (SELECT unnest(holders))), '{{}}')
      INTO consumer_ids, raised_uuids, generations_before, was_there, is_known, emptied
      FROM raised
      JOIN unnest(consumer_uuids, known_generations) AS known (uuid, generation)
        ON known.uuid = raised.uuid;
    IF compares_generations AND NOT is_known THEN
        RETURN json_build_object('generations', {GENERATIONS});
    END IF;

    raised_providers := provider_uuids;
    IF emptied <> '{{}}' THEN
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
      WHERE provider_id = ANY (provider_ids || {HELD_PROVIDERS})
      ORDER BY provider_id, resource_class_id
        FOR NO KEY UPDATE;
    IF held IS NOT NULL THEN
        DELETE FROM allocations WHERE consumer_id = ANY (consumer_ids);
    END IF;
    IF emptied <> '{{}}' THEN
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
           AND {amount("(SELECT held_of(consumer_ids))")} > {amount("held")}
    ) THEN
        RETURN NULL;
    END IF;

    given := held_of(consumer_ids);
    RETURN json_build_object(
        'generations', {GENERATIONS},
        'providers', (
            SELECT coalesce(json_object_agg(uuid, id), '{{}}')
              FROM resource_providers
             WHERE id = ANY (provider_ids)
        ),
        'stocks', (
            SELECT coalesce(json_agg(json_build_array(
                       provider_id, (SELECT name FROM resource_classes WHERE id = resource_class_id),
                       total, reserved, min_unit, max_unit, step_size, allocation_ratio,
                       used - {amount("given")} + {amount("held")}, {amount("held")}
                   )), '[]')
              FROM inventories AS inventory
             WHERE provider_id = ANY (provider_ids)
        )
    );
END
$$
"""


def upgrade() -> None:
    op.execute(HELD_OF)
    op.execute(TAKE_BACK_ALLOCATIONS)
    op.execute(TRY_CLAIMS)


def downgrade() -> None:
    before = op.get_context().script.get_revision("0004").module
    op.execute(before.TAKE_BACK_ALLOCATIONS)
    op.execute("DROP FUNCTION try_claims")
    op.execute(before.TRY_CLAIMS)
    op.execute("DROP FUNCTION held_of")
