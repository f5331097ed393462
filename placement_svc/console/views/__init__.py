"""The pages of the console, one module for each."""

from placement_svc.console import login
from placement_svc.console.views import (
    ask,
    cloud_map,
    consumers,
    host,
    hosts,
    landing,
    names,
    overview,
    projects,
)

BLUEPRINTS = (
    landing.bp,
    login.bp,
    overview.bp,
    cloud_map.bp,
    hosts.bp,
    host.bp,
    ask.bp,
    consumers.bp,
    projects.bp,
    names.bp,
)
"""Every blueprint of the console."""
