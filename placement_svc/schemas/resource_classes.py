"""Schema of resource class bodies (`docs/spec/resources.md 8`)."""

from placement_svc.domain.limits import MAX_NAME_LENGTH
from placement_svc.schemas.base import Schema
from placement_svc.schemas.scalars import CUSTOM_NAME, String


class NamedResourceClass(Schema):
    """The body of POST /resource_classes, and of PUT /resource_classes/{name} before 1.7."""

    name = String(pattern=CUSTOM_NAME, max_length=MAX_NAME_LENGTH, required=True)
