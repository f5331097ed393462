"""Observability: the access log, the metrics, and the statistics of a request."""
