"""The query keys of a request for allocation candidates (`docs/spec/candidates.md 2`)."""

import re

from placement_svc.domain.groups import GroupPolicy
from placement_svc.schemas.base import Schema
from placement_svc.schemas.candidate_extensions import MAX_IGNORED_CONSUMERS, MAX_PREFERRED
from placement_svc.schemas.groups import IN_TREE, MEMBER_OF, REQUIRED, RESOURCES, ROOT_REQUIRED
from placement_svc.schemas.scalars import NAME_TEXT, SUFFIX, String, Version
from placement_svc.schemas.staleness import STALE_KEYS

NUMBERED_SUFFIX = "[1-9][0-9]*"
"""The pattern of a request group's suffix from 1.25 to 1.32."""


class GroupQuery(Schema):
    """The keys of a request group, each followed by the group's suffix.

    The names, `since` and `metadata` of these fields count at all microversions. From 1.25 on, no other
    argument (`pattern`, `min_length`, `choices`) is applied: the parsers in `GROUP_PARSERS` check the values.
    """

    resources = String(metadata=RESOURCES)
    required = String(since="1.17", metadata=REQUIRED)
    member_of = String(since="1.21", metadata=MEMBER_OF)
    in_tree = String(
        since="1.31",
        metadata={
            "description": (
                "A provider in the only tree whose providers may supply the group. Extensions add `!UUID` and"
                " `!in:UUID,UUID`, which exclude the trees of these providers. If the key is repeated, the"
                " last value without `!` counts, and all values with `!`."
            ),
            "pattern": IN_TREE,
            "repeats": True,
        },
    )


class WholeRequestQuery(Schema):
    """The keys that concern the whole request, since request groups have suffixes."""

    limit = String(
        pattern=r"^[1-9][0-9]*$",
        hint="The limit is a whole number of at least 1.",
        metadata={"description": "The largest number of candidates to return (since 1.16)."},
    )
    group_policy = String(
        choices=tuple(policy.value for policy in GroupPolicy),
        since="1.25",
        metadata={
            "description": (
                "Whether groups with a suffix must have different providers (`isolate`) or may share one"
                " (`none`); required if there is more than one such group."
            )
        },
    )
    root_required = String(
        since="1.35",
        metadata={
            "description": "Traits that the root of the tree must have; a trait with a `!` is forbidden.",
            "pattern": ROOT_REQUIRED,
        },
    )
    same_subtree = String(
        since="1.36",
        metadata={
            "description": (
                "Suffixes of groups whose providers must be in one subtree: one of them is an ancestor of all"
                " others, or all are the same provider. If the key is repeated, each value is a condition."
            ),
            "pattern": f"^{SUFFIX}(,{SUFFIX})*$",
            "repeats": True,
        },
    )


class ExtendedRequestQuery(WholeRequestQuery):
    """The keys that concern the whole request, with those of the extensions (`docs/spec/extensions.md 2`)."""

    same_subtree = String(
        since="1.36",
        metadata={
            "description": (
                "Suffixes of groups whose providers must be in one subtree: one of them is an ancestor of all"
                " others, or all are the same provider. No provider of that subtree supplies the groups with"
                " a `!`. If the key is repeated, each value is a condition."
            ),
            "pattern": f"^!?{SUFFIX}(,!?{SUFFIX})*$",
            "repeats": True,
        },
    )
    isolate = String(
        metadata={
            "description": (
                "Suffixes of groups whose providers supply no other group with a suffix; not together with"
                " `group_policy`. If the key is repeated, the suffixes of all values count."
            ),
            "pattern": f"^{SUFFIX}(,{SUFFIX})*$",
            "repeats": True,
        },
    )
    root_required = String(
        since="1.35",
        metadata={
            "description": (
                "Traits that the root of the tree must have; a trait with a `!` is forbidden. Extensions add"
                " sets with `in:`, of which one trait is sufficient, and repeating the key: each value is a"
                " condition."
            ),
            "pattern": REQUIRED["pattern"],
            "repeats": True,
        },
    )
    root_member_of = String(
        metadata={
            "description": (
                "An aggregate of the root of the tree, or with `in:` several, of which one is sufficient."
                " With a leading `!`, all of them are forbidden. If the key is repeated, each value is a"
                " condition."
            ),
            "pattern": MEMBER_OF["pattern"],
            "repeats": True,
        },
    )
    ignore_consumer = String(
        metadata={
            "description": (
                "A consumer whose allocations count as free, as for a move within a host (extension). If the"
                f" key is repeated, all these consumers count; at most {MAX_IGNORED_CONSUMERS:,}."
            ),
            "format": "uuid",
            "repeats": True,
        },
    )
    can_split = String(
        metadata={
            "description": (
                "Resource classes of the unsuffixed group of which several providers of one tree may supply"
                " parts, where no provider can supply the whole amount (extension). If the key is repeated,"
                " the classes of all values count."
            ),
            "pattern": f"^{NAME_TEXT}(,{NAME_TEXT})*$",
            "repeats": True,
        },
    )
    preferred = String(
        metadata={
            "description": (
                f"At most {MAX_PREFERRED} traits (extension): candidates come first whose providers of the"
                " unsuffixed group have more of them."
            ),
            "pattern": f"^{NAME_TEXT}(,{NAME_TEXT}){{0,{MAX_PREFERRED - 1}}}$",
            "repeats": True,
        },
    )
    order_by = String(
        metadata={
            "description": (
                "The order of the trees (extension): `spread:CLASS` puts those with most free of a requested"
                " resource class first, `pack:CLASS` those with least, and `random` is a random order."
            ),
            "pattern": f"^((spread|pack):{NAME_TEXT}|random)$",
        },
    )


GROUP_KEYS = tuple(GroupQuery().fields)
GROUP_KEY = re.compile(rf"({'|'.join(GROUP_KEYS)})(.*)")

EXTENSION_KEYS = STALE_KEYS.union(ExtendedRequestQuery().fields).difference(WholeRequestQuery().fields)
"""The keys that only a request which may use extensions has."""


class UnsuffixedQuery(GroupQuery):
    """All keys of the microversions in which request groups have no suffixes (1.10 to 1.24)."""

    extension_keys = EXTENSION_KEYS

    resources = String(required=True)
    limit = String(since="1.16")

    @classmethod
    def introduced(cls, key: str) -> Version | None:
        """Return the microversion that introduced a key, including the keys of newer microversions."""
        return super().introduced(key) or introduced(key)


def introduced(key: str) -> Version | None:
    """Return the microversion that introduced a key; None for a key of 1.10 and for an unknown key."""
    match = GROUP_KEY.fullmatch(key)
    if match is None:
        return WholeRequestQuery.introduced(key)
    field, suffix = match.groups()
    versions: list[Version | None] = [GroupQuery.introduced(field)]
    if suffix:
        if not re.fullmatch(SUFFIX, suffix):
            return None
        versions.append((1, 25) if re.fullmatch(NUMBERED_SUFFIX, suffix) else (1, 33))
    return max(filter(None, versions), default=None)
