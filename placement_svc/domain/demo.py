"""The uuids of the cloud of `placement-svc demo`, which the examples in the OpenAPI document name."""

from uuid import NAMESPACE_URL, uuid5


def demo_uuid(name: str) -> str:
    """Return the uuid of the provider or aggregate with this name, the same in every demo."""
    return str(uuid5(NAMESPACE_URL, f"placement-svc:demo:{name}"))
