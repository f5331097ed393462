"""Let PostgreSQL decide on a claim too: one round trip in all, and no lock is held while a client thinks.

`claim_allocations` stays for services of the version before; nothing else uses it.

Revision: 0004, after 0003.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

# As in 0003: everything is found by keys, whatever there is.
OPTIONS = """
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
"""

# As in 0003, but what is held of each inventory is added up once and then looked up: a consumer may hold
# thousands. A join would do as well, if it were sure that PostgreSQL expects thousands.
TAKE_BACK_ALLOCATIONS = f"""
CREATE OR REPLACE FUNCTION take_back_allocations(consumer_ids bigint[], provider_ids int[])
RETURNS TABLE (
    stock_provider_id int, stock_class text, stock_total int, stock_reserved int, stock_min_unit int,
    stock_max_unit int, stock_step_size int, stock_ratio float8, stock_used bigint, replaced bigint
) {OPTIONS} AS $$
DECLARE
    held_providers int[];
    amounts jsonb;
BEGIN
    SELECT array_agg(DISTINCT held.provider_id),
           jsonb_object_agg(held.provider_id || ' ' || held.resource_class_id, held.amount)
      INTO held_providers, amounts
      FROM (SELECT provider_id, resource_class_id, sum(used) AS amount
              FROM allocations
             WHERE consumer_id = ANY (consumer_ids)
             GROUP BY provider_id, resource_class_id) AS held;
    RETURN QUERY
    SELECT inventory.provider_id,
           (SELECT name::text FROM resource_classes WHERE id = inventory.resource_class_id),
           inventory.total, inventory.reserved, inventory.min_unit, inventory.max_unit,
           inventory.step_size, inventory.allocation_ratio, inventory.used,
           coalesce((amounts ->> (inventory.provider_id || ' ' || inventory.resource_class_id))::bigint, 0)
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

# What is wanted of an inventory may not take more of it than there is; where more is used already, not more
# than that. It is asked when all is given, of the inventories as they are then.
TRY_CLAIMS = f"""
CREATE FUNCTION try_claims(
    consumer_uuids text[], project_names text[], user_names text[], type_names text[],
    compares_generations boolean, known_generations numeric[],
    holders text[], provider_uuids text[], class_names text[], amounts numeric[]
) RETURNS json {OPTIONS} AS $$
DECLARE
    consumer_ids bigint[];
    emptied bigint[];
    generations json;
    is_known boolean;
    provider_ids int[];
    providers json;
    stock_providers int[];
    stock_classes text[];
    stock_uses bigint[];
    stocks json;
    is_granted boolean;
BEGIN
    SELECT array_agg(consumer_id),
           coalesce(
               array_agg(consumer_id) FILTER (WHERE consumer_uuid NOT IN (SELECT unnest(holders))), '{{}}'
           ),
           json_object_agg(consumer_uuid, generation_before),
           bool_and(generation_before IS NOT DISTINCT FROM known.generation)
      INTO consumer_ids, emptied, generations, is_known
      FROM lock_and_raise_consumers(consumer_uuids, project_names, user_names, type_names)
      JOIN unnest(consumer_uuids, known_generations) AS known (uuid, generation)
        ON known.uuid = consumer_uuid;
    IF compares_generations AND NOT is_known THEN
        RETURN json_build_object('generations', generations);
    END IF;
    SELECT coalesce(array_agg(provider_id), '{{}}'),
           coalesce(json_object_agg(provider_uuid, provider_id), '{{}}')
      INTO provider_ids, providers
      FROM lock_providers(provider_uuids, emptied);
    SELECT array_agg(stock_provider_id), array_agg(stock_class), array_agg(stock_used),
           coalesce(json_agg(json_build_array(
               stock_provider_id, stock_class, stock_total, stock_reserved, stock_min_unit,
               stock_max_unit, stock_step_size, stock_ratio, stock_used, replaced
           )), '[]')
      INTO stock_providers, stock_classes, stock_uses, stocks
      FROM take_back_allocations(consumer_ids, provider_ids);
    PERFORM give_allocations(holders, provider_uuids, class_names, amounts, emptied, provider_ids);
    WITH wanted AS MATERIALIZED (
        SELECT (SELECT id FROM resource_providers WHERE uuid = claimed.provider) AS provider_id,
               (SELECT id FROM resource_classes WHERE name = claimed.class) AS class_id,
               claimed.class, claimed.amount
          FROM unnest(provider_uuids, class_names, amounts) AS claimed (provider, class, amount)
    )
    SELECT coalesce(bool_and(EXISTS (
               SELECT
                 FROM inventories AS inventory
                WHERE inventory.provider_id = wanted.provider_id
                  AND inventory.resource_class_id = wanted.class_id
                  AND wanted.amount BETWEEN inventory.min_unit AND inventory.max_unit
                  AND wanted.amount % inventory.step_size = 0
                  AND inventory.used <= greatest(inventory.capacity, stock.used)
           )), true)
      INTO is_granted
      FROM wanted
      LEFT JOIN unnest(stock_providers, stock_classes, stock_uses) AS stock (provider_id, class, used)
        ON (stock.provider_id, stock.class) = (wanted.provider_id, wanted.class);
    IF is_granted THEN
        RETURN NULL;
    END IF;
    RETURN json_build_object('generations', generations, 'providers', providers, 'stocks', stocks);
END
$$
"""

# To be called outside of a transaction, as it ends its own.
CLAIM = """
CREATE PROCEDURE claim(
    consumer_uuids text[], project_names text[], user_names text[], type_names text[],
    compares_generations boolean, known_generations numeric[],
    holders text[], provider_uuids text[], class_names text[], amounts numeric[],
    INOUT refused json
) LANGUAGE plpgsql AS $$
BEGIN
    refused := try_claims(
        consumer_uuids, project_names, user_names, type_names, compares_generations, known_generations,
        holders, provider_uuids, class_names, amounts
    );
    IF refused IS NOT NULL THEN
        ROLLBACK;
    END IF;
END
$$
"""


def upgrade() -> None:
    op.execute(TAKE_BACK_ALLOCATIONS)
    op.execute(TRY_CLAIMS)
    op.execute(CLAIM)


def downgrade() -> None:
    # `take_back_allocations` stays: it tells what it always did.
    op.execute("DROP PROCEDURE claim")
    op.execute("DROP FUNCTION try_claims")
