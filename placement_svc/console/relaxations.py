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
    if (key, removed) in pairs:
        return [pair for pair in pairs if pair != (key, removed)]
    pieces = {piece.strip() for piece in removed.removeprefix("!in:").split(",")}
    is_forbidden_aggregate = key.startswith("member_of") and removed.startswith("!")
    changed = []
    for name, value in pairs:
        if name != key or value.startswith("in:"):
            changed.append((name, value))
        elif not (is_forbidden_aggregate and value.startswith("!")):
            kept = [piece for piece in map(str.strip, value.split(",")) if piece not in pieces]
            changed += [(name, ",".join(kept))] if kept else []
    return changed


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
