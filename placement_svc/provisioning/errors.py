"""The error of the embedded PostgreSQL."""


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot be started or stopped; the message states what to correct."""
