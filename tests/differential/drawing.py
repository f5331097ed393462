"""Draw random requests of every operation; some are valid, and some are not."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from placement_svc.schemas.candidates_query import GROUP_KEYS
from tests.differential.services import Request, api_request
from tests.differential.values import CUSTOM_CLASSES, CUSTOM_TRAITS, NAMES, TYPES, VERSIONS, RandomValues

DrawFunction = Callable[[RandomValues], Request]


def list_providers(draw: RandomValues) -> Request:
    aggregate = [draw.uuid_text(draw.pick(*draw.aggregates), 8) for _ in range(2)]
    amount = draw.pick(
        "1", "2", "4", "5", "10", "0", "-1", " 3", "+3", "01", "1_0", "1.5", "a", "", str(2**63 - 1)
    )
    choices = {
        "name": [*NAMES, ""],
        "uuid": [draw.provider()],
        "in_tree": [draw.provider()],
        "member_of": [
            *(aggregate[0], f"in:{','.join(aggregate)}", f"!{aggregate[0]}", f"!in:{','.join(aggregate)}"),
            *(
                ",".join(aggregate),
                "in:",
                "!",
                f"!!{aggregate[0]}",
                f"in:in:{aggregate[0]}",
                f"in:{aggregate[0]},",
            ),
            *(f"in:{aggregate[0]},!{aggregate[1]}", f"IN:{aggregate[0]}", ""),
        ],
        "required": [
            *(
                draw.trait(),
                f"{draw.trait()},{draw.trait()}",
                f"!{draw.trait()}",
                f"in:{draw.trait()}",
            ),
            *(
                f"{draw.trait()},!{draw.trait()}",
                f"in:{draw.trait()},{draw.trait()}",
                f" {draw.trait()} ",
            ),
            *(
                f"!in:{draw.trait()}",
                f"in:{draw.trait()},!{draw.trait()}",
                f"{draw.trait()},",
                ",",
                "!",
                "",
            ),
            *(f"!!{draw.trait()}", "in:", f"{draw.trait()},in:{draw.trait()}", f"! {draw.trait()}"),
        ],
        "resources": [
            *(
                f"{draw.resource_class()}:{amount}",
                f"{draw.resource_class()}:1,{draw.resource_class()}:1",
            ),
            *("VCPU", "VCPU:1:2", "VCPU:1,", "", " ", ",VCPU:1", "VCPU:"),
        ],
        draw.pick("x", "limit", "Name", "resources1", ""): ["1"],
    }
    keys = draw.sample([*choices, "member_of", "required", "resources"][: draw.pick(6, 6, 9)])
    keys += draw.sample(["member_of", "required", "name", "resources"], 1) if draw.chance(20) else []
    return api_request(
        "GET", f"/resource_providers?{_query(draw, keys, choices)}", version=draw.version("1.3")
    )


def _query(draw: RandomValues, keys: list[str], choices: dict[str, list[str]]) -> str:
    pairs = [(key, draw.pick(*choices[key])) for key in keys]
    if draw.chance(50):
        return "&".join(f"{quote(key)}={quote(value, safe=':,!')}" for key, value in pairs)
    return draw.pick("&", ";").join(urlencode([pair]) for pair in pairs)


def create_provider(draw: RandomValues) -> Request:
    version = draw.version()
    name = draw.pick(*NAMES, *NAMES, "", f"n{draw.random.getrandbits(20)}")
    body = {"name": name, "uuid": draw.uuid_text(draw.pick(*draw.providers))}
    if version_number(version) >= 14 and draw.chance(50):
        body["parent_provider_uuid"] = draw.pick(None, draw.provider(), draw.provider(), body["uuid"])
    return draw.write_request("POST", "/resource_providers", body, version)


def version_number(version: str) -> int:
    return int(version.removeprefix("1."))


def show_provider(draw: RandomValues) -> Request:
    return api_request("GET", draw.path(), version=draw.version())


def change_provider(draw: RandomValues) -> Request:
    version = draw.version("1.14")
    body = {"name": draw.pick(*NAMES, "", f"n{draw.random.getrandbits(20)}")}
    if version_number(version) >= 14 and draw.chance(70):
        body["parent_provider_uuid"] = draw.pick(None, *[draw.provider() for _ in range(4)])
    return draw.write_request("PUT", draw.path(), body, version)


def delete_provider(draw: RandomValues) -> Request:
    return api_request("DELETE", draw.path(), version=draw.version())


def list_inventories(draw: RandomValues) -> Request:
    return api_request("GET", f"{draw.path()}/inventories", version=draw.version())


def create_inventory(draw: RandomValues) -> Request:
    body = draw.inventory() | {"resource_class": draw.resource_class()}
    if draw.chance(20):
        body["resource_provider_generation"] = draw.pick(0, 5, -1, "0", None)
    return draw.write_request("POST", f"{draw.path()}/inventories", body, draw.version())


def replace_inventories(draw: RandomValues) -> Request:
    path = f"{draw.path()}/inventories"
    existing = (draw.service.get(path) or {}).get("inventories", {}) if draw.chance(60) else {}
    inventories = existing | {draw.resource_class(): draw.inventory() for _ in range(draw.pick(0, 1, 2, 3))}
    if inventories and draw.chance(15):
        del inventories[draw.pick(*inventories)]
    for inventory in inventories.values():
        if draw.chance(10):
            inventory["resource_provider_generation"] = draw.pick(0, 7)
    body = {"resource_provider_generation": draw.generation(path), "inventories": inventories}
    return draw.write_request("PUT", path, body, draw.version())


def delete_inventories(draw: RandomValues) -> Request:
    return api_request("DELETE", f"{draw.path()}/inventories", version=draw.version("1.5"))


def _inventory_path(draw: RandomValues) -> str:
    return f"{draw.path()}/inventories/{quote(draw.resource_class() or 'VCPU')}"


def show_inventory(draw: RandomValues) -> Request:
    return api_request("GET", _inventory_path(draw), version=draw.version())


def replace_inventory(draw: RandomValues) -> Request:
    path = _inventory_path(draw)
    body = draw.inventory() | {"resource_provider_generation": draw.generation(path)}
    return draw.write_request("PUT", path, body, draw.version())


def delete_inventory(draw: RandomValues) -> Request:
    return api_request("DELETE", _inventory_path(draw), version=draw.version())


def show_provider_usages(draw: RandomValues) -> Request:
    return api_request("GET", f"{draw.path()}/usages", version=draw.version())


def list_provider_allocations(draw: RandomValues) -> Request:
    return api_request("GET", f"{draw.path()}/allocations", version=draw.version())


def list_provider_aggregates(draw: RandomValues) -> Request:
    return api_request("GET", f"{draw.path()}/aggregates", version=draw.version("1.1"))


def replace_provider_aggregates(draw: RandomValues) -> Request:
    path, version = f"{draw.path()}/aggregates", draw.version("1.1")
    uuids: Any = [draw.uuid_text(uuid, 5) for uuid in draw.sample(draw.aggregates)]
    uuids += uuids[:1] if draw.chance(5) else []
    if (version_number(version) >= 19) != draw.chance(5):
        uuids = {"aggregates": uuids, "resource_provider_generation": draw.generation(path)}
    return draw.write_request("PUT", path, uuids, version)


def list_provider_traits(draw: RandomValues) -> Request:
    return api_request("GET", f"{draw.path()}/traits", version=draw.version("1.6"))


def replace_provider_traits(draw: RandomValues) -> Request:
    path = f"{draw.path()}/traits"
    body = {
        "traits": [draw.trait() for _ in range(draw.pick(0, 1, 2, 3))],
        "resource_provider_generation": draw.generation(path),
    }
    return draw.write_request("PUT", path, body, draw.version("1.6"))


def delete_provider_traits(draw: RandomValues) -> Request:
    return api_request("DELETE", f"{draw.path()}/traits", version=draw.version("1.6"))


def list_traits(draw: RandomValues) -> Request:
    choices = {
        "name": [
            *(
                f"in:{draw.trait()},{draw.trait()}",
                "startswith:CUSTOM_",
                "startswith:HW_CPU",
                "in:",
                "startswith:",
            ),
            *("x", "", ":", "foo:x", "IN:CUSTOM_RED", "startswith:CUSTOM_R:", f"in: {draw.trait()}"),
        ],
        "associated": ["true", "false", "TRUE", "False", "", "1", "yes"],
        draw.pick("x", "Name"): ["1"],
    }
    keys = draw.sample([*choices][: draw.pick(2, 2, 2, 3)], 2)
    keys += keys[:1] if draw.chance(10) else []
    return api_request("GET", f"/traits?{_query(draw, keys, choices)}", version=draw.version("1.6"))


def _trait_path(draw: RandomValues) -> str:
    name = draw.pick(*CUSTOM_TRAITS) if draw.chance(70) else draw.trait()
    if draw.chance(5):
        name = draw.pick("CUSTOM_" + "X" * 248, "CUSTOM_" + "X" * 249, "CUSTOM_", "CUSTOM_é", "custom_x")
    return f"/traits/{quote(name)}"


def show_trait(draw: RandomValues) -> Request:
    return api_request("GET", _trait_path(draw), version=draw.version("1.6"))


def ensure_trait(draw: RandomValues) -> Request:
    return api_request("PUT", _trait_path(draw), version=draw.version("1.6"))


def delete_trait(draw: RandomValues) -> Request:
    return api_request("DELETE", _trait_path(draw), version=draw.version("1.6"))


def list_resource_classes(draw: RandomValues) -> Request:
    return api_request("GET", "/resource_classes", version=draw.version("1.2"))


def create_resource_class(draw: RandomValues) -> Request:
    name = draw.pick(*CUSTOM_CLASSES, *CUSTOM_CLASSES, draw.resource_class(), "CUSTOM_" + "X" * 249)
    return draw.write_request("POST", "/resource_classes", {"name": name}, draw.version("1.2"))


def _class_path(draw: RandomValues) -> str:
    name = draw.pick(*CUSTOM_CLASSES) if draw.chance(70) else draw.resource_class() or "VCPU"
    if draw.chance(5):
        name = draw.pick(
            "CUSTOM_" + "X" * 248, "CUSTOM_" + "X" * 249, "CUSTOM_é", 'CUSTOM_"', "CUSTOM_\\", "x y"
        )
    return f"/resource_classes/{quote(name)}"


def show_resource_class(draw: RandomValues) -> Request:
    return api_request("GET", _class_path(draw), version=draw.version("1.2"))


def put_resource_class(draw: RandomValues) -> Request:
    path = _class_path(draw)
    if draw.chance(50):
        return api_request("PUT", path, version=draw.pick("1.2", *VERSIONS[7:]))
    name = draw.pick(*CUSTOM_CLASSES, draw.resource_class())
    return draw.write_request("PUT", path, {"name": name}, draw.pick(*VERSIONS[2:7], draw.version("1.2")))


def delete_resource_class(draw: RandomValues) -> Request:
    return api_request("DELETE", _class_path(draw), version=draw.version("1.2"))


def _resources(draw: RandomValues) -> dict[str, int]:
    count = draw.pick(1, 1, 2, 3)
    return {draw.resource_class(): draw.pick(1, 1, 2, 2, 3, 4, 6, 100, 10**12) for _ in range(count)}


def _claim(draw: RandomValues, consumer: str, version: str, may_be_empty: bool) -> dict[str, Any]:
    number = version_number(version)
    allocations = {draw.provider(): {"resources": _resources(draw)} for _ in range(draw.pick(1, 1, 2))}
    if may_be_empty and draw.chance(20):
        allocations = {}
    for allocation in allocations.values():
        if draw.chance(10):
            allocation["generation"] = draw.pick(0, 3)
    claim: dict[str, Any] = {"allocations": allocations}
    if number >= 8:
        claim |= {"project_id": draw.pick(*draw.projects), "user_id": draw.pick("me", "you")}
    if number >= 28:
        claim["consumer_generation"] = draw.consumer_generation(consumer)
    if number >= 34 and draw.chance(20):
        claim["mappings"] = {draw.pick("", "1", "_NET", "é"): [draw.provider()]}
    if number >= 38:
        claim["consumer_type"] = draw.pick(*TYPES)
    return claim


def show_allocations(draw: RandomValues) -> Request:
    consumer = quote(draw.uuid_text(draw.pick(*draw.consumers), 8) or "x", safe="{}:-")
    return api_request("GET", f"/allocations/{consumer}", version=draw.version())


def replace_consumer_allocations(draw: RandomValues) -> Request:
    consumer, version = draw.pick(*draw.consumers), draw.version()
    claim = _claim(draw, consumer, version, version_number(version) >= 28)
    if version_number(version) < 12:
        claim["allocations"] = [
            {"resource_provider": {"uuid": uuid}, "resources": item["resources"]}
            for uuid, item in claim["allocations"].items()
        ]
    uuid_text = quote(draw.uuid_text(consumer, 8) or "x", safe="{}:-")
    return draw.write_request("PUT", f"/allocations/{uuid_text}", claim, version)


def delete_allocations(draw: RandomValues) -> Request:
    consumer = quote(draw.uuid_text(draw.pick(*draw.consumers), 8) or "x", safe="{}:-")
    return api_request("DELETE", f"/allocations/{consumer}", version=draw.version())


def replace_allocations(draw: RandomValues) -> Request:
    version = draw.version("1.13")
    consumers = draw.sample(draw.consumers) or draw.consumers[:1]
    claims = {draw.uuid_text(c, 2): _claim(draw, c, version, True) for c in consumers}
    return draw.write_request("POST", "/allocations", claims, version)


def show_usages(draw: RandomValues) -> Request:
    choices = {
        "project_id": [*draw.projects, *draw.projects, "", "x" * 256],
        "user_id": ["me", "you", "nobody", ""],
        "consumer_type": [*TYPES, "all", "unknown", "ALL", "UNKNOWN", "allfoo", "unknownx", "inst", ""],
        draw.pick("x", "Project_id"): ["1"],
    }
    keys = (
        ["project_id", *draw.sample(["user_id", "consumer_type"], 2)]
        if draw.chance(90)
        else draw.sample([*choices])
    )
    keys += keys[:1] if draw.chance(10) else []
    return api_request("GET", f"/usages?{_query(draw, keys, choices)}", version=draw.version("1.9"))


def reshape(draw: RandomValues) -> Request:
    version = draw.version("1.30")
    inventories = {}
    for uuid in draw.sample(draw.providers, 2) or draw.providers[:1]:
        path = f"/resource_providers/{uuid}"
        of_provider = (draw.service.get(f"{path}/inventories") or {}).get("inventories", {})
        if of_provider and draw.chance(20):
            del of_provider[draw.pick(*of_provider)]
        if draw.chance(40):
            of_provider[draw.resource_class()] = draw.inventory()
        if draw.chance(5):
            of_provider = {}
        uuid_text = draw.uuid_text(uuid, 2)
        inventories[uuid_text] = {
            "resource_provider_generation": draw.generation(path),
            "inventories": of_provider,
        }
    claims = {c: _claim(draw, c, version, True) for c in draw.sample(draw.consumers, 2)}
    return draw.write_request(
        "POST", "/reshaper", {"inventories": inventories, "allocations": claims}, version
    )


def list_candidates(draw: RandomValues) -> Request:
    suffixes = draw.sample(["1", "2", "_NET", "a-b", "0", "C" * 64, "C" * 65, "é"], 3)
    suffixes = suffixes if draw.chance(40) else draw.sample(["1", "2", "10"], 2)
    pairs: list[tuple[str, str]] = []
    for suffix in ["", *suffixes] if draw.chance(85) else suffixes:
        if draw.chance(90 if not suffix else 75):
            amounts = [
                f"{draw.resource_class()}:{draw.pick('1', '1', '2', '4')}" for _ in range(draw.pick(1, 1, 2))
            ]
            pairs.append((f"resources{suffix}", ",".join(amounts)))
        pairs += [
            (f"{key}{suffix}", _filter(draw, key)) for key in draw.sample([*FILTERS], 2) if draw.chance(35)
        ]
    if draw.chance(60):
        pairs.append(("group_policy", draw.pick("none", "none", "isolate", "bogus")))
    if draw.chance(25):
        pairs.append(("limit", draw.pick("1", "2", "1000", "0", "-1", "01", "", "1e3", "9" * 30)))
    if draw.chance(15):
        pairs.append(("root_required", _filter(draw, "required")))
    if draw.chance(30) and suffixes:
        listed = draw.sample([*suffixes, draw.pick("nobody", "", " 1")], 3)
        pairs.append(("same_subtree", draw.pick(",", ", ").join(listed)))
    if draw.chance(10):
        pairs.append(
            draw.pick(*pairs, ("x", "1"), ("resources1", "VCPU:1"), ("Resources", "VCPU:1"), ("limit1", "1"))
        )
    draw.random.shuffle(pairs)
    query = "&".join(f"{quote(key)}={quote(value, safe=':,!')}" for key, value in pairs)
    return api_request("GET", f"/allocation_candidates?{query}", version=draw.version("1.10"))


FILTERS = tuple(key for key in GROUP_KEYS if key != "resources")


def _filter(draw: RandomValues, key: str) -> str:
    aggregate = [draw.uuid_text(draw.pick(*draw.aggregates), 4) for _ in range(2)]
    traits = [draw.trait() for _ in range(2)]
    choices = {
        "required": [
            *(
                traits[0],
                f"!{traits[0]}",
                ",".join(traits),
                f"{traits[0]},!{traits[1]}",
                f"in:{','.join(traits)}",
            ),
            *(
                f" {traits[0]} , {traits[1]}",
                f"!!{traits[0]}",
                f"! {traits[0]}",
                f"in:{traits[0]},!{traits[1]}",
            ),
            *("", ",", "!", f"{traits[0]},", "in:", f"!in:{traits[0]}", f"{traits[0]},in:{traits[1]}"),
        ],
        "member_of": [
            *(aggregate[0], f"in:{','.join(aggregate)}", f"!{aggregate[0]}", f"!in:{','.join(aggregate)}"),
            *(",".join(aggregate), "in:", "!", "", f"in:{aggregate[0]},!{aggregate[1]}", f"!!{aggregate[0]}"),
        ],
        "in_tree": [draw.provider(), draw.provider(), f" {draw.provider()} ", "", draw.new_uuid()],
    }[key]
    return str(draw.pick(*choices[:4], *choices[:4], *choices))


DRAW_FUNCTIONS: list[DrawFunction] = [
    *(list_providers, create_provider, show_provider, change_provider, delete_provider),
    *(list_inventories, create_inventory, replace_inventories, delete_inventories),
    *(show_inventory, replace_inventory, delete_inventory, show_provider_usages, list_provider_allocations),
    *(list_provider_aggregates, replace_provider_aggregates),
    *(list_provider_traits, replace_provider_traits, delete_provider_traits),
    *(list_traits, show_trait, ensure_trait, delete_trait),
    *(list_resource_classes, create_resource_class, show_resource_class, put_resource_class),
    *(delete_resource_class, show_allocations, replace_consumer_allocations, delete_allocations),
    *(replace_allocations, show_usages, reshape, list_candidates),
]
"""A function for each operation of each path, which draws a request."""
