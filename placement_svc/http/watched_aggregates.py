"""The file of aggregates that the metrics watch: a YAML mapping of names to uuids."""

from pathlib import Path

from placement_svc.domain.errors import Invalid
from placement_svc.http.watched_names import WatchedNames
from placement_svc.schemas.scalars import ANY_UUID

_AGGREGATES = WatchedNames("aggregate", "a uuid", "zone-a: b0000000-0000-4000-8000-000000000000")


def read(path: Path) -> dict[str, str]:
    """Return the uuids of a file by name; raise `SetupError` if the file or a uuid is not valid.

    A uuid keeps its spelling: the spellings of a uuid are different aggregates.
    """
    return _AGGREGATES.read(path, _parse)


def _parse(text: str) -> str:
    if not ANY_UUID.fullmatch(text):
        raise Invalid(f"expected the uuid of an aggregate, got: {text}")
    return text
