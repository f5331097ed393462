"""The commands of `placement-svc`: one module for each command or group of commands."""

PORT = 8778
"""The default port of the API."""
