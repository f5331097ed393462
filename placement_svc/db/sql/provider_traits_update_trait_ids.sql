-- Keep resource_providers.trait_ids equal to the provider's rows of provider_traits, in ascending
-- order, whichever statement changes them.
CREATE OR REPLACE FUNCTION provider_traits_update_trait_ids()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        UPDATE resource_providers
           SET trait_ids = '{}'
         WHERE trait_ids <> '{}';
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        -- A move of a branch changes only the root_id: a foreign key cascades it.
        IF NOT EXISTS (SELECT provider_id, trait_id FROM old_traits
                       EXCEPT
                       SELECT provider_id, trait_id FROM new_traits) THEN
            RETURN NULL;
        END IF;
    END IF;
    IF TG_OP IN ('DELETE', 'UPDATE') THEN
        UPDATE resource_providers AS provider
           SET trait_ids = ARRAY(SELECT trait_id
                                   FROM provider_traits
                                  WHERE provider_id = provider.id
                                  ORDER BY trait_id)
         WHERE provider.id IN (SELECT provider_id FROM old_traits);
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        UPDATE resource_providers AS provider
           SET trait_ids = ARRAY(SELECT trait_id
                                   FROM provider_traits
                                  WHERE provider_id = provider.id
                                  ORDER BY trait_id)
         WHERE provider.id IN (SELECT provider_id FROM new_traits);
    END IF;
    RETURN NULL;
END
$$;

-- One trigger per event: a trigger with transition tables may name only one.
CREATE OR REPLACE TRIGGER provider_traits_update_trait_ids_on_insert
AFTER INSERT ON provider_traits
REFERENCING NEW TABLE AS new_traits
FOR EACH STATEMENT
EXECUTE FUNCTION provider_traits_update_trait_ids();

CREATE OR REPLACE TRIGGER provider_traits_update_trait_ids_on_delete
AFTER DELETE ON provider_traits
REFERENCING OLD TABLE AS old_traits
FOR EACH STATEMENT
EXECUTE FUNCTION provider_traits_update_trait_ids();

CREATE OR REPLACE TRIGGER provider_traits_update_trait_ids_on_update
AFTER UPDATE ON provider_traits
REFERENCING OLD TABLE AS old_traits NEW TABLE AS new_traits
FOR EACH STATEMENT
EXECUTE FUNCTION provider_traits_update_trait_ids();

CREATE OR REPLACE TRIGGER provider_traits_update_trait_ids_on_truncate
AFTER TRUNCATE ON provider_traits
FOR EACH STATEMENT
EXECUTE FUNCTION provider_traits_update_trait_ids();
