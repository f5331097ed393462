"""The summary of an explanation in a few sentences for operators: numbers, names, and one next step."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from placement_svc.domain.wording import counted

Body = Mapping[str, Any]
"""The body of an explanation, and `can_split`: the classes that several providers of a host may supply."""

Reason = tuple[str, str]
"""Why there are no candidates, and what to do if no verified relaxation is known."""

WHERE_GROUPS_FIT = "where each group would fit by itself"

NOT_ON_SEVERAL_GROUPS = ("groups", "root_required", "root_member_of")
"""The codes in `tree` of the filters that do not test how groups combine."""

OF_ROOT_TOO = ("member_of", "forbidden_aggregate", "in_tree")
"""The codes of the filters of the unsuffixed group that test the root of a supplier, too."""

MAX_LACKS = 3
"""The number of things that the summary says the nearest root lacks."""


def summarize(body: Mapping[str, Any], can_split: Collection[str] = ()) -> str:
    """Return the summary of the body of an explanation of a request that can split these classes."""
    body = {**body, "can_split": can_split}
    total = body["roots"]["total"]
    covered = f"the first {_hosts(total)}" if body["roots"]["more"] else _hosts(total)
    if "root" in body:
        covered = f"{_hosts(total)} ({body['root']['name']})"
    if body["has_candidates"]:
        return " ".join(_with_candidates(body, covered))
    if not total:
        return "No candidates: there are no resource providers."
    reason, advice = _REASONS[body["kind"]](body)
    sentences = [f"No candidates among {covered}.", reason, *_closest(body), _next_step(body) or advice]
    return " ".join(filter(None, sentences))


def _with_candidates(body: Body, covered: str) -> Iterator[str]:
    roots = body["roots"]
    yield f"{roots['with_candidates']} of {covered} {_verb(roots['with_candidates'], 'have')} candidates."
    blocker = _greatest_blocker(body)
    if blocker:
        where = "" if _decides(body, blocker) else f", {WHERE_GROUPS_FIT}"
        yield f"{_name(blocker)} alone excludes {blocker['sole_blocker']} more{where}."
    if body.get("truncated_by"):
        returned = roots["returned"]
        yield f"The response has candidates on {_hosts(returned)} only, because of {body['truncated_by']}."
    if step := _next_step(body):
        yield step


def _next_step(body: Body) -> str:
    """Return the sentence about the relaxation that wins most hosts, "" if there is none."""
    relaxations = body.get("relaxations")
    if not relaxations:
        return ""
    best = relaxations[0]
    without, instead = best.get("without", []), best.get("instead")
    removed = " and ".join([without] if isinstance(without, str) else without)
    changes = [f"without {removed}" if removed else "", f"with {instead}" if instead else ""]
    change = " and ".join(filter(None, changes))
    roots = best["roots"]
    return f"{change[0].upper()}{change[1:]}, {_hosts(roots)} {_verb(roots, 'have')} candidates."


def _closest(body: Body) -> Iterator[str]:
    """Yield the sentence about the nearest root, if amounts are what the roots lack."""
    if body["kind"] in ("full", "fragmented") and body["nearest"]:
        nearest = body["nearest"][0]
        is_alone = body["roots"]["total"] == 1
        fails = [_of_whole_tree(body, each) if is_alone else each for each in nearest["fails"]]
        lacks = list(dict.fromkeys(_lack(each, nearest["root"]) for each in fails))
        more = f", and {len(lacks) - MAX_LACKS} more" if len(lacks) > MAX_LACKS else ""
        closest = "" if "root" in body else f"{nearest['root']['name']} comes closest: "
        sentence = f"{closest}{', '.join(lacks[:MAX_LACKS])}{more}."
        yield sentence if closest else f"{sentence[0].upper()}{sentence[1:]}"
        amounts = [each for each in fails if each["code"] in ("unit", "capacity", "free")]
        yield from dict.fromkeys(_not_together(body, each["suffix"], each) for each in amounts)


def _of_whole_tree(body: Body, failure: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first filter of a group that no provider of the only tree passes, instead of `inventory`.

    A provider without the class fails only `inventory`, so it can fail fewer filters than one that has it.
    """
    if failure["code"] != "inventory":
        return failure
    [filters] = (each["filters"] for each in body["groups"] if each["suffix"] == failure["suffix"])
    first = next(each for each in filters if not each["left"])
    return {"provider": None, **first, "suffix": failure["suffix"]}


def _lack(failure: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return what a root lacks at one filter, with the provider if others of its tree may have it."""
    name, provider = failure.get("resource_class"), failure["provider"]
    match failure["code"]:
        case "inventory":
            return f"the provider {provider['name']} has no {name}" if provider else f"there is no {name}"
        case "unit":
            return (
                f"{failure['wanted']} {name} {_verb(failure['wanted'], 'are')} not allowed in one allocation"
            )
        case "capacity":
            return f"the capacity is {failure['best']} of {failure['wanted']} {name}"
        case "free":
            return f"{failure['best']} of {failure['wanted']} {name} {_verb(failure['best'], 'are')} free"
    if failure["query"] is None:
        return f"{_name(failure)} fails"
    # `required` of the unsuffixed group concerns all of its suppliers.
    is_of_all = (failure["suffix"], failure["code"]) == ("", "required")
    if is_of_all or provider in (None, root):
        return f"it does not meet {failure['query']}"
    if not failure["suffix"] and failure["code"] in OF_ROOT_TOO:
        return f"there {failure['query']} is not met"
    return f"the provider {provider['name']} does not meet {failure['query']}"


def _not_together(body: Body, suffix: str, entry: Mapping[str, Any]) -> str:
    """Return the sentence about an amount that may be split and that a single provider lacks."""
    if suffix or entry["resource_class"] not in body["can_split"]:
        return ""
    return f"Several providers of a host cannot supply {entry['wanted']} {entry['resource_class']} together."


def _impossible(body: Body) -> Reason:
    for group in body["groups"]:
        possible = [each for each in group["filters"] if each["code"] in ("inventory", "unit", "capacity")]
        if possible and not possible[-1]["left"]:
            return _why_impossible(body, group, possible)
    return "Some group can never have a supplier.", ""


def _why_impossible(body: Body, group: Mapping[str, Any], possible: list[Mapping[str, Any]]) -> Reason:
    failing = next((each for each in possible if not each["alone"]), None)
    where = f" for the group {group['suffix']}" if group["suffix"] else ""
    if failing is None:
        wanted = ", ".join(dict.fromkeys(each["query"] for each in possible))
        # Several providers of a host may supply the unsuffixed group.
        supplier = "provider" if group["suffix"] else "host"
        return (
            f"No {supplier} has everything{where} at the same time ({wanted}), even if nothing were used.",
            "",
        )
    name = failing["resource_class"]
    if failing["code"] == "inventory":
        return f"None has an inventory of {name}{where}.", "Add one, or request another class."
    wanted, best = failing["wanted"], failing["best"]
    if failing["code"] == "unit":
        nearest = "" if best is None else f": the nearest allowed amount is {best}"
        reason = f"No inventory allows {wanted} {name} in one allocation{where}{nearest}."
    else:
        reason = f"No single provider has a capacity of {wanted} {name}{where}: the largest has {best}."
    return " ".join(filter(None, [reason, _not_together(body, group["suffix"], failing)])), ""


def _full(_: Body) -> Reason:
    return (
        "There would be candidates if nothing were used.",
        "Release allocations, add hosts, or request less.",
    )


def _fragmented(_: Body) -> Reason:
    return (
        "There would be candidates if nothing were used. Enough is free in all, but not together.",
        "Move consumers between hosts, or request less.",
    )


def _combination(body: Body) -> Reason:
    groups, *others = body["tree"]
    ends = next((each for each in others if not each["left"]), None)
    if groups["left"] and ends is not None:
        fit = f"Each group fits by itself on {_hosts(groups['left'])}"
        less = "Request less, or request" if ends["query"] is None else "Request"
        return f"{fit}, but {_name(ends)} leaves no combination.", f"{less} fewer groups."
    return "Each group would fit by itself if nothing were used, but the groups cannot be combined.", ""


def _filtered(body: Body) -> Reason:
    blocker = _greatest_blocker(body)
    if blocker:
        where = "that would have candidates" if _decides(body, blocker) else WHERE_GROUPS_FIT
        return f"{_name(blocker)} alone excludes {_hosts(blocker['sole_blocker'])} {where}.", ""
    ends = next((each for each in _entries(body) if not each["left"]), None)
    if ends is None:
        return "The groups do not fit on the same host.", ""
    return f"None is left after {_name(ends)}, which {_hosts(ends['alone'])} {_pass(ends)} by itself.", ""


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


def _decides(body: Body, blocker: Mapping[str, Any]) -> bool:
    """Return whether the hosts of the `sole_blocker` would have candidates without this filter.

    The number of a filter on one group or on the root ignores the filters on several groups.
    """
    on_several = [each for each in body["tree"] if each["code"] not in NOT_ON_SEVERAL_GROUPS]
    return not on_several or blocker in on_several


_NAMES = {
    "groups": "groups (all of them on one host)",
    "sum": "sum (several groups on one provider)",
}


def _name(entry: Mapping[str, Any]) -> str:
    """Return a name of an entry."""
    if entry["query"] is None:
        return _NAMES[entry["code"]]
    return f"{entry['code']} ({entry['query']})"


def _hosts(count: int) -> str:
    return counted(count, "host") if count else "no host"


def _verb(count: int, plural: str) -> str:
    return {"have": "has", "are": "is"}[plural] if count == 1 else plural
