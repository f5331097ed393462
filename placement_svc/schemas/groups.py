"""The values of the query keys `resources`, `required`, `root_required` and `member_of`.

Their grammar is in `docs/spec/resources.md 3.1` and `docs/spec/candidates.md 2.2`.
"""

from collections.abc import Sequence

from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import Membership
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.scalars import ANY_UUID, DASHED_UUID_TEXT, NAME_TEXT, Version

ROOT_REQUIRED = f"^!*{NAME_TEXT}(,!*{NAME_TEXT})*$"
RESOURCES = {
    "description": "Amounts by resource class.",
    "pattern": f"^{NAME_TEXT}:[1-9][0-9]*(,{NAME_TEXT}:[1-9][0-9]*)*$",
}
REQUIRED = {
    "description": (
        "Traits, all of which are required; a trait with a `!` is forbidden (since 1.22). With `in:`, one of"
        " them is sufficient (since 1.39). If the key is repeated (since 1.39), each value is a condition."
    ),
    "pattern": f"{ROOT_REQUIRED}|^in:{NAME_TEXT}(,{NAME_TEXT})*$",
    "repeats": True,
}
MEMBER_OF = {
    "description": (
        "An aggregate, or with `in:` several, of which one is sufficient. With a leading `!`, all of them are"
        " forbidden (since 1.32). If the key is repeated (since 1.24), each value is a condition."
    ),
    "pattern": f"^!?({DASHED_UUID_TEXT}|in:{DASHED_UUID_TEXT}(,{DASHED_UUID_TEXT})*)$",
    "repeats": True,
}
IN_TREE = f"^{DASHED_UUID_TEXT}$|^!({DASHED_UUID_TEXT}|in:{DASHED_UUID_TEXT}(,{DASHED_UUID_TEXT})*)$"
"""What OpenAPI documents of these keys.

The patterns show the usual forms. The parsers accept more, such as other spellings of a uuid.
"""

BAD_RESOURCES = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:1,MEMORY_MB:512."
)
ANY_FORM = "in:HW_CPU_X86_VMX,CUSTOM_MAGIC"


def parse_resources(value: str) -> dict[str, int]:
    """Return the amounts by resource class in ``CLASS:AMOUNT[,CLASS:AMOUNT...]``; raises `Invalid`."""
    if not value.strip():
        raise _bad_resources("empty string")
    amounts = {}
    for piece in value.split(","):
        resource_class, colon, amount = piece.partition(":")
        if not colon or ":" in amount:
            raise _bad_resources(piece)
        amounts[resource_class] = _parse_amount(resource_class, amount)
    return amounts


def _bad_resources(got: str) -> Invalid:
    return Invalid(f"{BAD_RESOURCES} Got: {got}.")


def _parse_amount(resource_class: str, text: str) -> int:
    try:
        amount = int(text)
    except ValueError:
        raise Invalid(
            f"Requested resource {resource_class} expected positive integer amount. Got: {text}."
        ) from None
    if amount < 1:
        raise Invalid(f"Requested resource {resource_class} requires amount >= 1. Got: {amount}.")
    return amount


def parse_required(values: Sequence[str], version: Version) -> Membership:
    """Return the condition on traits in the values of one `required` key; raises `Invalid`.

    Before 1.39, only the last value of a repeated key counts.
    """
    parts = [
        _parse_any_trait(value, version) if value.startswith("in:") else _parse_traits(value, version)
        for value in (values if version >= (1, 39) else values[-1:])
    ]
    return Membership(
        any_of=tuple(names for part in parts for names in part.any_of),
        forbidden=frozenset(name for part in parts for name in part.forbidden),
    )


def parse_root_required(value: str, version: Version) -> Membership:
    """Return the condition on traits in a `root_required`, which has no ``in:``; raises `Invalid`."""
    if value.startswith("in:"):
        raise _no_any_form()
    return _parse_traits(value, version)


def _parse_traits(value: str, version: Version) -> Membership:
    any_of: list[frozenset[str]] = []
    forbidden: set[str] = set()
    form = _required_form(version)
    pieces = [piece.strip() for piece in value.split(",")]
    if not all(piece.lstrip("!") for piece in pieces):
        raise Invalid(f"{QUERY_ERROR}{form} Got an empty trait in: {value}")
    for piece in pieces:
        name = piece.lstrip("!")
        if name == piece:
            any_of.append(frozenset({name}))
        elif version >= (1, 22):
            forbidden.add(name)
        else:
            raise Invalid(f"{QUERY_ERROR}{form} Got: {value}")
    return Membership(tuple(any_of), frozenset(forbidden))


def _required_form(version: Version) -> str:
    example = "!CUSTOM_MAGIC" if version >= (1, 22) else "CUSTOM_MAGIC"
    return f"Expected 'required' parameter value of the form: HW_CPU_X86_VMX,{example}."


def _no_any_form() -> Invalid:
    return Invalid(f"{QUERY_ERROR}The format '{ANY_FORM}' only supported since microversion 1.39.")


def _parse_any_trait(value: str, version: Version) -> Membership:
    if version < (1, 39):
        raise _no_any_form()
    names = [piece.strip() for piece in value.removeprefix("in:").split(",")]
    if not all(names):
        raise Invalid(
            f"{QUERY_ERROR}Expected 'required' parameter value of the form: {ANY_FORM}."
            f" Got an empty trait in: {value}"
        )
    if any(name.startswith("!") for name in names):
        raise Invalid(f"{QUERY_ERROR}The format '{ANY_FORM}' does not support forbidden traits.")
    return Membership((frozenset(names),))


def parse_member_of(key: str, values: Sequence[str], version: Version) -> Membership:
    """Return the condition on aggregates in the values of `key`, a `member_of`; raises `Invalid`."""
    if len(values) > 1 and version < (1, 24):
        raise Invalid(f"Multiple {key} parameters are not supported")
    any_of: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        aggregates = _parse_aggregates(value.removeprefix("!"))
        if not value.startswith("!"):
            any_of.append(aggregates)
        elif version >= (1, 32):
            forbidden |= aggregates
        else:
            raise Invalid(f"Forbidden {key} parameters are not supported in the specified microversion")
    return Membership(tuple(any_of), frozenset(forbidden))


def _parse_aggregates(value: str) -> frozenset[str]:
    has_in = value.startswith("in:")
    pieces = value.removeprefix("in:").split(",")
    if len(pieces) > 1 and not has_in:
        raise Invalid(
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword"
            " using the valid microversion."
        )
    for piece in pieces:
        if not ANY_UUID.fullmatch(piece):
            raise Invalid(
                f"{QUERY_ERROR}Expected 'member_of' parameter to contain valid UUID(s). Got: {piece}"
            )
    return frozenset(pieces)
