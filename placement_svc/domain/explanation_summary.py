"""The summary of an explanation in one or two sentences for operators."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Body = Mapping[str, Any]


def summarize(body: Body) -> str:
    """Return the summary of the body of an explanation."""
    total = body["roots"]["total"]
    covered = f"the first {_hosts(total)}" if body["roots"]["more"] else _hosts(total)
    if "root" in body:
        covered = f"{_hosts(total)} ({body['root']['name']})"
    if body["has_candidates"]:
        return " ".join(_with_candidates(body, covered))
    if not total:
        return "No candidates: there are no resource providers."
    return f"No candidates among {covered}. {_REASONS[body['kind']](body)}"


def _with_candidates(body: Body, covered: str) -> Iterator[str]:
    roots = body["roots"]
    yield f"{roots['with_candidates']} of {covered} {_verb(roots['with_candidates'], 'have')} candidates."
    blocker = _greatest_blocker(body)
    if blocker:
        yield f"{_name(blocker)} alone excludes {blocker['sole_blocker']} more."
    if body.get("truncated_by"):
        returned = roots["returned"]
        yield f"The response has candidates on {_hosts(returned)} only, because of {body['truncated_by']}."


def _impossible(body: Body) -> str:
    for group in body["groups"]:
        possible = [each for each in group["filters"] if each["code"] in ("inventory", "unit", "capacity")]
        if possible and not possible[-1]["left"]:
            return f"{_why_impossible(group, possible)}"
    return "Some group can never have a supplier."


def _why_impossible(group: Mapping[str, Any], possible: list[Mapping[str, Any]]) -> str:
    failing = next((each for each in possible if not each["alone"]), None)
    where = f" for the group {group['suffix']}" if group["suffix"] else ""
    if failing is None:
        wanted = ", ".join(dict.fromkeys(each["query"] for each in possible))
        return f"No provider has everything{where} at the same time ({wanted}), even if nothing were used."
    name = failing["resource_class"]
    if failing["code"] == "inventory":
        return f"None has an inventory of {name}{where}: add one, or request another class."
    wanted, best = failing["wanted"], failing["best"]
    if failing["code"] == "unit":
        nearest = "" if best is None else f": the nearest allowed amount is {best}"
        return f"No inventory allows {wanted} {name} in one allocation{where}{nearest}."
    return f"None has {wanted} {name} in all{where}: the largest has {best}."


def _full(body: Body) -> str:
    return f"{_used_up(body)} Release allocations, add hosts, or request less."


def _fragmented(body: Body) -> str:
    return (
        f"{_used_up(body)} Enough is free in all, but not together: move consumers between hosts,"
        " or request less."
    )


def _used_up(body: Body) -> str:
    """Return the sentence about the amounts that are used up."""
    parts = [
        f"of {each['resource_class']}, {each['wanted']} {_verb(each['wanted'], 'are')} requested{_of(group)}"
        f" and at most {each['best']} {_verb(each['best'], 'are')} free where it is too little"
        for group in body["groups"]
        for each in group["filters"]
        if each["code"] == "free" and each["best"] is not None
    ]
    amounts = f": {'; '.join(parts)}" if parts else ""
    return f"There would be candidates if nothing were used{amounts}."


def _combination(body: Body) -> str:
    groups, *others = body["tree"]
    ends = next((each for each in others if not each["left"]), None)
    if groups["left"] and ends is not None:
        fit = f"Each group fits by itself on {_hosts(groups['left'])}"
        return f"{fit}, but {_name(ends)} leaves no combination: relax it, or request fewer groups."
    return "Each group would fit by itself if nothing were used, but the groups cannot be combined."


def _filtered(body: Body) -> str:
    blocker = _greatest_blocker(body)
    if blocker:
        count = _hosts(blocker["sole_blocker"])
        return f"{_name(blocker)} alone excludes {count} that would have candidates: drop or change it."
    ends = next((each for each in _entries(body) if not each["left"]), None)
    if ends is None:
        return "The groups do not fit on the same host."
    return f"None is left after {_name(ends)}, which {_hosts(ends['alone'])} {_pass(ends)} by itself."


_REASONS = {
    "impossible": _impossible,
    "full": _full,
    "fragmented": _fragmented,
    "combination": _combination,
    "filtered": _filtered,
}


def _pass(entry: Mapping[str, Any]) -> str:
    return "passes" if entry["alone"] < 2 else "pass"


def _entries(body: Body) -> Iterable[Mapping[str, Any]]:
    """Yield all entries in their order."""
    for group in body["groups"]:
        yield from group["filters"]
    yield from body["tree"]


def _greatest_blocker(body: Body) -> Mapping[str, Any] | None:
    """Return the entry with the greatest `sole_blocker`, None if all are 0."""
    entry = max(_entries(body), key=lambda each: each["sole_blocker"])
    return entry if entry["sole_blocker"] else None


_NAMES = {
    "groups": "groups (all of them on one host)",
    "sum": "sum (several groups on one provider)",
}


def _name(entry: Mapping[str, Any]) -> str:
    """Return a name of an entry."""
    if entry["query"] is None:
        return _NAMES[entry["code"]]
    return f"{entry['code']} ({entry['query']})"


def _of(group: Mapping[str, Any]) -> str:
    return f" by the group {group['suffix']}" if group["suffix"] else ""


def _hosts(count: int) -> str:
    return f"{count or 'no'} host{'s' if count > 1 else ''}"


def _verb(count: int, plural: str) -> str:
    return {"have": "has", "are": "is"}[plural] if count == 1 else plural
