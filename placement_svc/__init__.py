"""The OpenStack Placement API on PostgreSQL."""

from importlib.metadata import version

__version__ = version("placement-svc")
"""The version of the installed distribution; `pyproject.toml` states it."""
