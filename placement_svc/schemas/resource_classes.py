"""Resource classes: bodies (`docs/spec/resources.md 8`)."""

from placement_svc.domain.limits import MAX_NAME_LENGTH
from placement_svc.schemas.base import CUSTOM_NAME, Document, String


class NamedResourceClass(Document):
    """POST /resource_classes, and PUT /resource_classes/{name} before 1.7."""

    name = String(pattern=CUSTOM_NAME, max_length=MAX_NAME_LENGTH, required=True)
