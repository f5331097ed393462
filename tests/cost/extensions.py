"""Random requests of the extensions: searches with a claim, placement groups, PATCH, bulk reads."""

from typing import Any

from placement_svc.domain.placement_groups import POLICIES
from tests.cost.requests import CURRENT, Draw, Pairs, Request, candidates
from tests.support.versions import EXTENDED

SIZES = (1, 1, 2, 10, 100, 1000)
"""Numbers of consumers, of uuids and of names."""

PARTS = ("inventories", "usages", "traits", "aggregates", "allocations")
GROUPINGS = ("root", "aggregate", "trait", "consumer_type", "project_id")


def placements(draw: Draw) -> Request:
    """POST /claims for new consumers or for existing ones, with or without a placement group."""
    pairs = _few_groups(draw) if draw.chance(60) else candidates(draw).pairs
    count, moves = draw.pick(*SIZES), bool(draw.consumers) and draw.chance(30)
    uuids = (
        draw.random.sample(draw.consumers, min(count, len(draw.consumers)))
        if moves
        else [draw.uuid() for _ in range(count)]
    )
    body: dict[str, Any] = {
        "consumers": [
            {
                "uuid": uuid,
                "project_id": f"project-{draw.pick(0, 1, 2)}",
                "user_id": "user-0",
                "consumer_type": "INSTANCE",
                "consumer_generation": 1 if moves else None,
            }
            for uuid in uuids
        ],
        "dry_run": draw.chance(60),
    }
    if draw.chance(60):
        body["placement_group"] = draw.pick(*draw.groups)
    if not moves and draw.chance(50):
        body["min_count"] = draw.random.randint(1, count)
    return Request("POST", "/claims", tuple(pair for pair in pairs if pair[0] != "ignore_consumer"), body)


def _few_groups(draw: Draw) -> Pairs:
    """Draw one to three groups that many providers can supply."""
    suffixes = draw.pick(("",), ("_A",), ("_A", "_B"), ("", "_A", "_B"))
    pairs = [("resources" + suffix, f"{draw.pick(*draw.cloud.classes[:5])}:1") for suffix in suffixes]
    pairs += [("group_policy", "isolate")] if draw.chance(30) else []
    if draw.chance(50):
        name = pairs[0][1].split(":")[0]
        pairs.append(("order_by", draw.pick(f"spread:{name}", f"pack:{name}", "random")))
    return tuple(pairs)


def placement_groups(draw: Draw) -> Request:
    """GET of one or all placement groups; PUT or DELETE of one."""
    path = f"/placement_groups/{draw.pick(*draw.groups, draw.uuid())}"
    policy = draw.pick(*POLICIES)
    body: dict[str, Any] = {"policy": policy}
    if draw.chance(70):
        unknown = [draw.uuid() for _ in range(draw.pick(0, 1, 900))]
        body["across"] = [*draw.cloud.aggregates[: draw.pick(1, 20, 100)], *unknown]
    if policy.endswith("anti-affinity") and draw.chance(50):
        body["max_per_domain"] = draw.pick(1, 3, 1000)
    request: Request = draw.pick(
        Request("GET", path),
        Request("GET", "/placement_groups", _page(draw)),
        Request("PUT", path, body=body),
        Request("DELETE", path),
    )
    return request


def patches(draw: Draw) -> Request:
    """PATCH of the traits, aggregates or inventories of a provider."""
    name = draw.pick("traits", "aggregates", "inventories")
    if name == "inventories":
        body: dict[str, Any] = {
            each: draw.pick({"total": 10**6}, {"total": 10**6}, {"reserved": 1}, None)
            for each in draw.some(draw.cloud.classes, draw.pick(1, 3, len(draw.cloud.classes)))
        }
    else:
        new = draw.trait if name == "traits" else draw.uuid
        added = {new() for _ in range(draw.pick(*SIZES))}
        removed = {new() for _ in range(draw.pick(*SIZES))} - added
        body = {"add": sorted(added), "remove": sorted(removed)}
    if draw.chance(30):
        body["resource_provider_generation"] = CURRENT
    return Request("PATCH", f"/resource_providers/{draw.provider()}/{name}", body=body, version=EXTENDED)


def bulk_reads(draw: Draw) -> Request:
    """GET of many providers, allocations, consumers, projects, or of the capacity."""
    draw_pairs = {
        "/resource_providers": _many_providers,
        "/allocations": _many_allocations,
        "/consumers": _many_consumers,
        "/projects": _many_projects,
        "/capacity": _capacity,
    }
    path = draw.pick(*draw_pairs)
    return Request("GET", path, draw_pairs[path](draw), version=EXTENDED)


def _page(draw: Draw, *orders: str) -> Pairs:
    """Draw the keys of a page, in one of these orders."""
    pairs = [("limit", str(draw.pick(1, 100, 10_000)))] if draw.chance(50) else []
    if orders and draw.chance(50):
        pairs.append(("sort_by", draw.pick("", "-") + draw.pick(*orders)))
    elif draw.chance(20):
        pairs.append(("marker", draw.uuid()))
    return tuple(pairs)


def _list_of(uuids: list[str], draw: Draw) -> str:
    """Draw `in:` with uuids, which may be unknown."""
    return "in:" + ",".join(draw.some(uuids or [draw.uuid()], draw.pick(*SIZES)))


def include(draw: Draw) -> str:
    """Draw the value of a key `include` of providers."""
    return ",".join(draw.random.sample(PARTS, draw.random.randint(1, len(PARTS))))


def _filters(draw: Draw) -> Pairs:
    """Draw filters of the list of providers."""
    pairs = [("uuid", _list_of(draw.providers, draw))] if draw.chance(30) else []
    pairs += [("name", f"contains:{draw.pick('-', '9', '-1', 'x')}")] if draw.chance(30) else []
    pairs += [("required", draw.required())] if draw.chance(20) else []
    pairs += [("member_of", draw.member_of())] if draw.chance(20) else []
    pairs += [("resources", draw.resources())] if draw.chance(20) else []
    return tuple(pairs)


def _many_providers(draw: Draw) -> Pairs:
    name = draw.pick(*draw.cloud.classes)
    included = (("include", include(draw)),) if draw.chance(80) else ()
    return (*_filters(draw), *included, *_page(draw, "name", f"used:{name}", f"free:{name}"))


def _many_allocations(draw: Draw) -> Pairs:
    if draw.chance(50):
        return (("rp_uuid", _list_of(draw.providers, draw)),)
    return (("consumer_uuid", _list_of(draw.consumers, draw)),)


def _many_consumers(draw: Draw) -> Pairs:
    filters = [
        ("project_id", "project-0"),
        ("user_id", "user-0"),
        ("consumer_type", draw.pick("INSTANCE", "unknown")),
        ("resource_provider", draw.provider()),
        ("in_tree", draw.provider()),
        ("resource_class", draw.pick(*draw.cloud.classes)),
        ("include", "allocations"),
    ]
    return (*draw.random.sample(filters, draw.pick(0, 1, 2, 4)), *_page(draw, "created_at"))


def _many_projects(draw: Draw) -> Pairs:
    return _page(draw, *draw.cloud.classes)


def _capacity(draw: Draw) -> Pairs:
    name = draw.pick(*draw.cloud.classes)
    if draw.chance(20):
        return _filters(draw)
    grouped = (("group_by", draw.pick(*GROUPINGS)),)
    return (*_filters(draw), *grouped, *_page(draw, f"used:{name}", f"free:{name}", f"ratio:{name}"))
