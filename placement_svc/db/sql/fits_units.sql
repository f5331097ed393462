-- Return whether an amount keeps to the units of an inventory: it is between min_unit and max_unit
-- and a multiple of step_size (docs/spec/allocations.md 6). The same rule in Python is
-- `Inventory.fits_units`.
--
-- PostgreSQL inlines this function into the statements that call it, so it costs nothing at run
-- time, and conditions on columns can use their indexes. It is inlined only while it has no SET
-- clause, is not STRICT and stays one expression.
CREATE OR REPLACE FUNCTION fits_units(
    amount bigint,
    min_unit integer,
    max_unit bigint,
    step_size integer
)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
-- The statistics show that nearly every step_size is 1. For the remainder alone the planner would
-- assume that almost no row matches.
RETURN amount >= min_unit
   AND amount <= max_unit
   AND (step_size = 1 OR amount % step_size = 0);
