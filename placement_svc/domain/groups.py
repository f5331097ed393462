"""What a client asks of providers: traits, aggregates, amounts (`docs/spec/candidates.md 2 and 3`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Membership:
    """What a provider must have and must not have, of traits or of aggregates, by name or by id.

    Each clause of `required` is met by any one of its members; all clauses must be met.
    """

    any_of: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Tell whether anything is asked at all."""
        return bool(self.any_of or self.forbidden)

    @property
    def names(self) -> list[str]:
        """All names, those of `required` first, each once and in a fixed order."""
        clauses = [sorted(clause) for clause in (*self.any_of, self.forbidden)]
        return list(dict.fromkeys(name for clause in clauses for name in clause))

    @property
    def contradictions(self) -> list[frozenset[str]]:
        """The clauses that nothing can meet because all they name is forbidden."""
        return [clause for clause in self.any_of if clause <= self.forbidden]


NO_CONDITION = Membership()
"""Nothing is asked."""


@dataclass(frozen=True)
class RequestGroup:
    """A request group: amounts of resource classes, and what their providers must be like.

    The unsuffixed group has the suffix ``""``.
    """

    suffix: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    required: Membership = NO_CONDITION
    member_of: Membership = NO_CONDITION
    in_tree: str | None = None


NO_REQUIREMENTS = RequestGroup()
"""Every provider satisfies this."""


@dataclass(frozen=True)
class CandidatesRequest:
    """A whole request for allocation candidates (`docs/spec/candidates.md 2`).

    `groups` have different suffixes. `root_required` is asked of the anchor, each member of
    `same_subtree` is a set of suffixes, `isolate` keeps suffixed groups apart, and `limit` is how
    many candidates are wanted at most (None: all).
    """

    groups: tuple[RequestGroup, ...]
    root_required: Membership = NO_CONDITION
    same_subtree: tuple[frozenset[str], ...] = ()
    isolate: bool = False
    limit: int | None = None
