"""The work for a request: its `deadline`, `memory`, turn by a `fair_semaphore`, and `request_stats`."""
