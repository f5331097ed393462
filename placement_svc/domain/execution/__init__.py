"""The bounds of the work for a request: its `deadline`, its `memory`, and its turn by a `fair_semaphore`."""
