"""Resource placement over the OpenStack Placement API, on PostgreSQL."""
