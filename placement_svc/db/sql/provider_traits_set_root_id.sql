-- Set the root_id of new provider_traits to that of the provider, unless the INSERT names it.
CREATE OR REPLACE FUNCTION provider_traits_set_root_id()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    SELECT root_id
      INTO NEW.root_id
      FROM resource_providers
     WHERE id = NEW.provider_id;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER provider_traits_set_root_id_on_insert
BEFORE INSERT ON provider_traits
FOR EACH ROW
WHEN (NEW.root_id IS NULL)
EXECUTE FUNCTION provider_traits_set_root_id();
