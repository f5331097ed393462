"""Schemas of trait bodies, trait names and the trait query (`docs/spec/resources.md 6 and 7`)."""

from typing import Any

from placement_svc.domain.errors import Invalid
from placement_svc.domain.limits import MAX_NAME_LENGTH
from placement_svc.domain.traits import TraitFilter
from placement_svc.schemas.base import Array, Schema
from placement_svc.schemas.patches import EXPECTED_GENERATION
from placement_svc.schemas.scalars import CUSTOM_NAME, Integer, String, matches
from placement_svc.schemas.staleness import STALE_KEYS


class TraitNames(Array):
    """Names of traits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(String(min_length=1, max_length=MAX_NAME_LENGTH), **options)


class ChangedTraits(Schema):
    """The body of PUT /resource_providers/{uuid}/traits."""

    traits = TraitNames(required=True)
    resource_provider_generation = Integer(required=True)


class PatchedTraits(Schema):
    """The body of PATCH /resource_providers/{uuid}/traits."""

    add = TraitNames()
    remove = TraitNames()
    resource_provider_generation = Integer(metadata=EXPECTED_GENERATION)


class TraitQuery(Schema):
    """The query parameters of GET /traits."""

    extension_keys = STALE_KEYS

    name = String(
        metadata={
            "description": "Names with `in:`, or a prefix of names with `startswith:`.",
            "pattern": "^(in|startswith):.*$",
        }
    )
    associated = String(
        metadata={
            "description": "`true`: traits that a provider has; `false`: the others. Case is ignored.",
            "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$",
        }
    )


def to_filter(query: dict[str, str]) -> TraitFilter:
    """Return the filter that a loaded `TraitQuery` describes; raise `Invalid`."""
    names, prefix = None, ""
    if "name" in query:
        operator, colon, operand = query["name"].partition(":")
        if not colon:
            raise Invalid(
                "Badly formatted name parameter. Expected name query string parameter in form: "
                f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{query["name"]}"'
            )
        if operator == "in":
            names = frozenset(operand.split(","))
        elif operator == "startswith":
            prefix = operand
    return TraitFilter(names=names, prefix=prefix, associated=_parse_associated(query.get("associated")))


def _parse_associated(text: str | None) -> bool | None:
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise Invalid('The query parameter "associated" only accepts "true" or "false"')
    return text.lower() == "true"


def check_custom_name(name: str) -> None:
    """Raise `Invalid` if `name` is not a valid name of a custom trait."""
    if len(name) > MAX_NAME_LENGTH or not matches(CUSTOM_NAME, name):
        raise Invalid(
            f"The trait is invalid. A valid trait must be no longer than {MAX_NAME_LENGTH} characters, start "
            'with the prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
        )
