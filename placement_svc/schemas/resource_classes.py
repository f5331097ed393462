"""Schema of resource class bodies (`docs/spec/resources.md 8`)."""

from placement_svc.schemas.base import CUSTOM_NAME, Schema, String


class NamedResourceClass(Schema):
    """The body of POST /resource_classes, and of PUT /resource_classes/{name} before 1.7."""

    name = String(pattern=CUSTOM_NAME, max_length=255, required=True)
