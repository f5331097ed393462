"""Change an expensive request so that it may become more expensive."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.cost.drawing import draw_request
from tests.cost.extensions import GROUPINGS, include
from tests.cost.requests import MAX_LINE, Draw, Pairs, Request, subtree

MAX_MEMBERS = 5000
"""Members of the largest list or object in a body."""

FACTORS = (1, 1, 2, 2, 5, 10)

_KEY = re.compile(r"(resources|required|member_of|in_tree)(_\w+)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def mutated(request: Request, other: Request, draw: Draw) -> Request:
    """Return a request of the same operation with one to four changes; `other` may lend parts of it."""
    for _ in range(draw.pick(1, 1, 2, 4)):
        if request.body is not None and not (request.pairs and draw.chance(50)):
            request = replace(request, body=_mutated_body(request.body, other.body, draw))
        elif request.text is not None:
            half = request.text[: len(request.text) // 2]
            request = replace(request, text=(half + request.text) if len(request.text) < 300_000 else half)
        elif request.pairs:
            change = draw.pick(*PAIR_CHANGES)
            pairs = change(request.pairs, other.pairs if other.path == request.path else (), draw)
            changed = replace(request, pairs=pairs)
            request = changed if len(changed.query) < MAX_LINE else request
        else:
            return draw_request(draw)
    return request


def _suffixes(pairs: Pairs) -> list[str]:
    found = (_KEY.fullmatch(key) for key, _ in pairs)
    return list(dict.fromkeys(match[2] for match in found if match and match[2]))


def _copy_groups(pairs: Pairs, _other: Pairs, draw: Draw) -> Pairs:
    """Copy a group under new suffixes."""
    suffixes = _suffixes(pairs)
    if not suffixes:
        return pairs
    suffix, count = draw.pick(*suffixes), draw.pick(1, 1, 2, 5, 30)
    group = [pair for pair in pairs if pair[0].endswith(suffix) and _suffixes((pair,)) == [suffix]]
    first = draw.random.randrange(10_000)
    copies = [
        (key.removesuffix(suffix) + f"_{first + number}", value)
        for number in range(count)
        for key, value in group
    ]
    return (*pairs, *copies)


def _drop(pairs: Pairs, _other: Pairs, draw: Draw) -> Pairs:
    """Remove a pair."""
    gone = draw.random.randrange(len(pairs))
    return pairs[:gone] + pairs[gone + 1 :]


def _splice(pairs: Pairs, other: Pairs, draw: Draw) -> Pairs:
    """Add pairs of another request."""
    return (*pairs, *draw.some(other, draw.random.randint(1, len(other)))) if other else pairs


def _change_value(pairs: Pairs, _other: Pairs, draw: Draw) -> Pairs:
    """Replace a value, or make its list longer."""
    chosen = draw.random.randrange(len(pairs))
    key, value = pairs[chosen]
    match = _KEY.fullmatch(key)
    if match is None:
        uuids = draw.consumers if key == "consumer_uuid" and draw.consumers else draw.providers
        longer = ",".join([value, *draw.some(uuids, 10 * draw.pick(*FACTORS))])
        amount = draw.pick("used", "free", "ratio")
        value = {
            "limit": draw.pick("1", "2", "50", "10000", "100000"),
            "group_policy": draw.pick("isolate", "none"),
            "root_required": f"!{draw.trait()}",
            "include": include(draw),
            "group_by": draw.pick(*GROUPINGS),
            "sort_by": f"{draw.pick('', '-')}{amount}:{draw.pick(*draw.cloud.classes)}",
            **dict.fromkeys(("uuid", "rp_uuid", "consumer_uuid"), longer),
        }.get(key, value)
    else:
        functions: dict[str, Callable[[], str]] = {
            "resources": draw.resources,
            "required": draw.required,
            "member_of": draw.member_of,
            "in_tree": draw.provider,
        }
        if draw.chance(50) and match[1] in ("required", "member_of") and "in:" in value:
            more = draw.trait if match[1] == "required" else draw.uuid
            value += "".join(f",{more()}" for _ in range(10 * draw.pick(*FACTORS)))
        else:
            value = functions[match[1]]()
    return (*pairs[:chosen], (key, value), *pairs[chosen + 1 :])


def _repeat_filters(pairs: Pairs, _other: Pairs, draw: Draw) -> Pairs:
    """Add conditions to a group."""
    key = draw.pick(*pairs)[0]
    match = _KEY.fullmatch(key)
    suffix = (match[2] or "") if match else ""
    values = {"required": draw.required, "member_of": draw.member_of}
    name = draw.pick(*values)
    return (*pairs, *((name + suffix, values[name]()) for _ in range(draw.pick(*FACTORS))))


def _add_subtrees(pairs: Pairs, _other: Pairs, draw: Draw) -> Pairs:
    """Add keys `same_subtree`."""
    return (*pairs, *subtree(draw, _suffixes(pairs)))


def _one_class(pairs: Pairs, _other: Pairs, draw: Draw) -> Pairs:
    """Let all groups request the same amount of the same class."""
    value = draw.resources()
    return tuple((key, value if key.startswith("resources") else old) for key, old in pairs)


PAIR_CHANGES = (
    _copy_groups,
    _copy_groups,
    _change_value,
    _repeat_filters,
    _add_subtrees,
    _splice,
    _one_class,
    _drop,
)


def _mutated_body(body: Any, other: Any, draw: Draw) -> Any:
    """Return a body in which one list or object has more or other members."""
    nodes: list[list[Any]] = []
    _collect(body, [], nodes)
    # There are far more deep nodes than those whose growth makes the body large.
    depth = draw.pick(*{len(path) for path in nodes} or {0})
    chosen = draw.pick(*(path for path in nodes if len(path) == depth)) if nodes else []
    return _replaced(body, chosen, lambda value: _grown(value, other, draw))


def _collect(value: Any, path: list[Any], nodes: list[list[Any]]) -> None:
    """Add the paths of all lists and objects, but of no more than 100 of each level."""
    members = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    if members:
        nodes.append(path)
    for key, member in members[:100]:
        _collect(member, [*path, key], nodes)


def _replaced(value: Any, path: list[Any], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], change)
    return copy


def _grown(value: Any, other: Any, draw: Draw) -> Any:
    """Return a list or object with more members, or something else in its place."""
    if draw.chance(3):
        return draw.pick(other, None, [], {}, 10**20, "x" * 10_000, [value] * 3)
    if isinstance(value, dict) and all(map(_is_field, value)) and draw.chance(90):
        return _with_grown_field(value, other, draw)
    count = (
        min(len(value) * draw.pick(*FACTORS), MAX_MEMBERS - len(value))
        if isinstance(value, dict | list)
        else 0
    )
    if isinstance(value, list):
        return [*value, *(_like(draw.pick(*value), draw) for _ in range(count))] if value else value
    if isinstance(value, dict) and value:
        keys = [draw.pick(*value) for _ in range(count)]
        return {**value, **{str(_like(key, draw)): value[key] for key in keys}}
    return value


def _is_field(key: str) -> bool:
    """Return whether a key is a fixed field, and not the name of an object of the cloud."""
    return key.isidentifier() and key.islower()


def _with_grown_field(value: dict[str, Any], other: Any, draw: Draw) -> dict[str, Any]:
    """Return an object with a longer list, or with a field of another; unknown fields would be refused."""
    if isinstance(other, dict) and not other.keys().isdisjoint(value) and draw.chance(40):
        name = draw.pick(*other)
        return {**value, name: other[name]}
    longer = [name for name, member in value.items() if isinstance(member, dict | list)]
    if not longer:
        return value
    name = draw.pick(*longer)
    return {**value, name: _grown(value[name], other, draw)}


def _like(value: Any, draw: Draw) -> Any:
    """Return another name of the same kind, or an object with another uuid."""
    if isinstance(value, dict):
        return {key: draw.uuid() if key == "uuid" else member for key, member in value.items()}
    if not isinstance(value, str):
        return value
    if _UUID.fullmatch(value):
        return draw.pick(draw.uuid(), draw.provider())
    if value in draw.cloud.classes:
        return draw.pick(*draw.cloud.classes, f"CUSTOM_N{draw.random.randrange(10**6)}")
    return draw.pick(draw.trait(), draw.trait(), f"{value}{draw.random.randrange(10**6)}")
