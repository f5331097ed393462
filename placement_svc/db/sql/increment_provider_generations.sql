-- Increment the generations of locked providers by a number.
--
-- It is a function and not a statement of claim_batch.sql because that is a procedure that can roll
-- back, and PostgreSQL allows no SET options on such a procedure. The options keep every lookup on
-- keys: see apply_claims.sql.
CREATE OR REPLACE FUNCTION increment_provider_generations(provider_uuids text[], by integer)
RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    UPDATE resource_providers
       SET generation = generation + by
     WHERE uuid = ANY (provider_uuids);
END
$$;
