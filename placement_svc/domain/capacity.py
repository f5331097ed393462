"""Amounts and what an inventory can give of them (`spec/candidates.md 3.1`)."""

MAX_INTEGER = 2**31 - 1
"""The largest amount there is; more than that no inventory has in one piece."""
