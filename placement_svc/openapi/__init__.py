"""The API, described for machines (OpenAPI 3.1)."""
