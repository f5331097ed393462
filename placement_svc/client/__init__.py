"""A client of a running Placement service."""
