"""The service's database: the one that a URL names, or the embedded PostgreSQL."""
