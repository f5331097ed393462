"""Resource classes: what inventories are amounts of."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class ResourceClass:
    """A resource class, standard or custom."""

    name: str
    modified: datetime
