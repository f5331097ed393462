"""PostgreSQL: the tables, and the queries, with one module for each kind of object."""
