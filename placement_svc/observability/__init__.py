"""What operators see of each request: the access log and the metrics."""
