"""Observability: the access log and the metrics."""
