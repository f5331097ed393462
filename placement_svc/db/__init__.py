"""PostgreSQL: the tables, and one module for each aggregate of data that lives in them."""
