"""The work for a request: its `deadline`, `memory`, slot by a `fair_semaphore`, and `request_stats`."""
