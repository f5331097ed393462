"""Schemas of request bodies, query strings and responses, for each microversion."""
