"""Requests that an explanation proposes instead (`docs/spec/extensions.md 3`)."""

from collections.abc import Mapping
from typing import Any

from placement_svc.console.request_form import Pairs

_WHOLE_KEYS = ("in_tree", "isolate", "root_member_of", "root_required")
"""The keys whose values are one filter together; `in_tree` has the suffix of its group."""


def relaxed(pairs: Pairs, relaxation: Mapping[str, Any]) -> Pairs:
    """Return the request after a relaxation.

    `without` names one filter or several, as the explanation writes them, and `instead` an amount.
    """
    without = relaxation.get("without", [])
    for text in [without] if isinstance(without, str) else without:
        pairs = _without(pairs, text)
    if instead := relaxation.get("instead"):
        pairs = _instead(pairs, instead)
    return pairs


def _without(pairs: Pairs, text: str) -> Pairs:
    """Return the request without the filter that is `text`."""
    key, _, removed = text.partition("=")
    if key == "group_policy":
        return [(name, "none" if name == key else value) for name, value in pairs]
    if key.startswith(_WHOLE_KEYS):
        return [pair for pair in pairs if pair[0] != key]
    if key.startswith("member_of"):
        return [pair for pair in pairs if pair[0] != key or not _are_same_filter(pair[1], removed)]
    if key.startswith("required"):
        kept = ((name, _without_traits(value, removed) if name == key else value) for name, value in pairs)
        return [pair for pair in kept if pair[1]]
    return [pair for pair in pairs if pair != (key, removed)]


def _are_same_filter(value: str, other: str) -> bool:
    """Return whether two values of `member_of` are one filter: all that forbid, or the same aggregates."""
    if value.startswith("!") or other.startswith("!"):
        return value.startswith("!") and other.startswith("!")
    return _pieces(value.removeprefix("in:")) == _pieces(other.removeprefix("in:"))


def _without_traits(value: str, removed: str) -> str:
    """Return a value of `required` without the traits that one filter requires or forbids."""
    pieces = _pieces(removed.removeprefix("in:"))
    if value.startswith("in:"):
        return "" if _pieces(value.removeprefix("in:")) == pieces else value
    is_set = removed.startswith("in:") and len(pieces) > 1
    return (
        value if is_set else ",".join(each for each in map(str.strip, value.split(",")) if each not in pieces)
    )


def _pieces(value: str) -> set[str]:
    return {piece.strip() for piece in value.split(",")}


def _instead(pairs: Pairs, text: str) -> Pairs:
    """Return the request with the amount that is `text`, such as ``resources_A=VCPU:4``."""
    key, _, amount = text.partition("=")
    resource_class, _, _ = amount.partition(":")
    changed = []
    for name, value in pairs:
        pieces = value.split(",")
        if name == key:
            pieces = [amount if piece.split(":")[0].strip() == resource_class else piece for piece in pieces]
        changed.append((name, ",".join(pieces)))
    return changed
