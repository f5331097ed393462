"""The database that the service uses: one named by URL, or the embedded PostgreSQL."""
