"""Resource classes: the kinds of resources that inventories are of."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class ResourceClass:
    """A resource class, standard or custom, and the time of its last change."""

    name: str
    modified: datetime
