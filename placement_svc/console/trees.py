"""Provider trees as pages show them: from the roots down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement_svc.domain.providers import Provider, ProviderDetails


@dataclass(frozen=True)
class TreeNode:
    """A provider of a tree and its depth in it; `parts` are those that the caller may see."""

    provider: Provider
    depth: int
    parts: Mapping[str, Any]


def order_tree(details: Sequence[ProviderDetails]) -> list[TreeNode]:
    """Return the providers of one or more trees from the roots down, siblings by name.

    A provider whose parent is not among them is on the first level.
    """
    known = {each.provider.uuid for each in details}
    children: dict[str | None, list[ProviderDetails]] = {}
    for each in sorted(details, key=lambda each: each.provider.name, reverse=True):
        parent = each.provider.parent_uuid
        children.setdefault(parent if parent in known else None, []).append(each)
    nodes = []
    pending = [(each, 0) for each in children.get(None, [])]
    while pending:
        each, depth = pending.pop()
        nodes.append(TreeNode(each.provider, depth, each.parts))
        pending += [(child, depth + 1) for child in children.get(each.provider.uuid, [])]
    return nodes
