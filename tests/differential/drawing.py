"""Random requests about a small world of names, some of which exist and some of which do not."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

from tests.differential.services import Request, Service, ask

VERSIONS = [f"1.{minor}" for minor in range(40)]
TRAITS = ["HW_CPU_X86_AVX", "HW_NUMA_ROOT", "STORAGE_DISK_SSD", "MISC_SHARES_VIA_AGGREGATE"]
CUSTOM_TRAITS = ["CUSTOM_RED", "CUSTOM_GREEN", "CUSTOM_BLUE"]
CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB"]
CUSTOM_CLASSES = ["CUSTOM_GOLD", "CUSTOM_IRON"]
TYPES = ["INSTANCE", "MIGRATION", "VOLUME"]
NAMES = ["host", "Host", "numa 0", "☃", "a<b>c", "name, with comma"]
M = 2147483647

JUNK: list[Any] = [
    *(None, True, False, 0, 1, -1, 5.0, 1.5, M, M + 1, 10**25, 1e300),
    *("", "x", "VCPU", "vcpu", "CUSTOM_GOLD", "CUSTOM_", "1", "a\nb", "é☃", "x" * 201, "C" * 256),
    *([], [1], ["x"], ["x", "x"], {}, {"a": 1}, {"VCPU": 1}, [None], [[]]),
    *("00000000-0000-4000-8000-00000000000", "{0000000000004000800000000000000}", "urn:uuid:x"),
]
KEYS = [
    *("x", "", "name", "uuid", "generation", "total", "reserved", "resource_class", "consumer_generation"),
    *("project_id", "mappings", "consumer_type", "resources", "VCPU", "vcpu", "root_provider_uuid", "é"),
    *("parent_provider_uuid", "resource_provider_generation", "allocations", "36" * 18, "-" * 36, "a\n"),
]


class World:
    """What random requests are about: `random` draws them, generations are looked up at `service`."""

    def __init__(self, random: Random, service: Service) -> None:
        self.random = random
        self.service = service
        self.providers = [self.new_uuid() for _ in range(6)]
        self.consumers = [self.new_uuid() for _ in range(5)]
        self.aggregates = [self.new_uuid() for _ in range(3)]
        self.projects = [f"project-{self.new_uuid()}" for _ in range(2)]

    def retire(self, request: Request) -> None:
        """Forget the consumers of a request that hold nothing, since nobody can tell what is left of them."""
        text = f"{request.path} {request.body!r}".lower().replace("-", "")
        for index, consumer in enumerate(self.consumers):
            held = self.service.get(f"/allocations/{consumer}")["allocations"]
            if consumer.replace("-", "") in text and not held:
                self.consumers[index] = self.new_uuid()

    def new_uuid(self) -> str:
        """Return a uuid that nobody ever had: the reference keeps what is left of consumers for good."""
        return str(uuid4())

    def chance(self, percent: int) -> bool:
        """Draw True as often as that."""
        return self.random.randrange(100) < percent

    def pick(self, *members: Any) -> Any:
        """Draw one of the members."""
        return self.random.choice(members)

    def some(self, members: list[Any], most: int = 3) -> list[Any]:
        """Draw a few different members."""
        return self.random.sample(members, self.random.randint(0, min(most, len(members))))

    def version(self, least: str = "1.0") -> str:
        """Draw a microversion, mostly one that is not older than `least`."""
        known = VERSIONS if self.chance(8) else VERSIONS[int(least.removeprefix("1.")) :]
        return "1.39" if self.chance(30) else str(self.pick(*known))

    def spell(self, uuid: str, percent: int = 12) -> str:
        """Write a uuid now and then in another way."""
        if not self.chance(percent):
            return uuid
        bare = uuid.replace("-", "")
        return str(
            self.pick(
                *(uuid.upper(), bare, f"{{{uuid}}}", f"urn:uuid:{uuid}", f"{{{bare}}}", f"urn:uuid:{bare}"),
                *(f" {uuid}", f"{{{uuid}", f"{uuid}}}", f"{bare[:7]}-{bare[7:]}", f"-{uuid}", f"{uuid}-"),
                *(f"URN:UUID:{uuid}", uuid[:-1], uuid + "0", f"{{urn:uuid:{uuid}}}", "x", ""),
                *(bare[:16] + "--" + bare[16:], f"urn:{uuid}", f"{{{{{uuid}}}}}", "g" + uuid[1:]),
            )
        )

    def provider(self) -> str:
        """Draw the uuid of a provider."""
        return self.spell(self.pick(*self.providers), 4)

    def path(self) -> str:
        """Draw the path of a provider."""
        return f"/resource_providers/{quote(self.provider(), safe='{}:-')}"

    def generation(self, path: str) -> Any:
        """Return the generation of the provider that a path names; now and then another one."""
        if self.chance(8):
            return self.pick(0, 1, 2, 100, -1, None, "0", 1.0, 10**20)
        found = self.service.get("/".join(path.split("/")[:3]))
        return found["generation"] if found else 0

    def consumer_generation(self, uuid: str) -> Any:
        """Return the generation of a consumer; now and then another one."""
        if self.chance(6):
            return self.pick(None, 0, 1, 2, 100, -1)
        return self.service.get(f"/allocations/{uuid}").get("consumer_generation")

    def trait(self) -> str:
        """Draw the name of a trait."""
        if self.chance(5):
            return str(
                self.pick("NOPE", "CUSTOM_NOPE", "custom_red", "HW_CPU_X86_AVX ", "MISC", "CUSTOM_RED ")
            )
        return str(self.pick(*TRAITS, *CUSTOM_TRAITS))

    def resource_class(self) -> str:
        """Draw the name of a resource class."""
        if self.chance(5):
            return str(self.pick("NOPE", "CUSTOM_NOPE", "vcpu", "VCPU ", "", "FPGA", "CUSTOM_", "A.B"))
        return str(self.pick(*CLASSES, *CLASSES, *CUSTOM_CLASSES))

    def record(self) -> dict[str, Any]:
        """Draw an inventory."""
        record: dict[str, Any] = {"total": self.pick(1, 5, 10, 100, 10.0, M)}
        for key, values in {
            "reserved": (0, 1, 5, 10, 11, 100),
            "min_unit": (1, 2, 4),
            "max_unit": (1, 5, 100, M),
            "step_size": (1, 2, 3),
            "allocation_ratio": (1.0, 1, 0.5, 1.5, 0, -1.0, 16.0, 0.29, 3.40282e38, 1e39),
        }.items():
            if self.chance(20):
                record[key] = self.pick(*values)
        return record

    def junk(self) -> Any:
        """Draw a value that is seldom right; it belongs to nobody else."""
        return copy.deepcopy(self.pick(*JUNK))

    def spoil(self, body: Any, percent: int = 25) -> Any:
        """Return a body that is right, or one of which a member or two are not."""
        if not self.chance(percent):
            return body
        body = copy.deepcopy(body)
        for _ in range(self.pick(1, 1, 2, 3)):
            places = _places(body)
            if not places or self.chance(3):
                return self.junk()
            holder, key = self.pick(*places)
            change = self.pick("replace", "replace", "remove", "add")
            if change == "replace":
                holder[key] = self.junk()
            elif change == "remove":
                del holder[key]
            elif isinstance(holder, list):
                holder.append(copy.deepcopy(self.pick(*JUNK, *holder)))
            else:
                holder[self.pick(*KEYS)] = self.junk()
        return body

    def write(self, method: str, path: str, body: Any, version: str) -> Request:
        """Return a request with a JSON body that may be spoilt."""
        request = ask(method, path, self.spoil(body), version)
        if self.chance(2):
            text = self.pick(
                *(b"", b"{", b"nonsense", b"\xff", b"[]]", b'{"a": NaN}', b"\xef\xbb\xbf{}", b"'x'", b"{} x"),
                *(b'{"name": "x", "name": 3}', b"\x00", b"nul", b"1e999", b"[1,]", b"-", b'"\\ud800"'),
            )
            request = Request(request.method, request.target, request.headers, text)
        return request


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each member of a JSON value, at whatever depth, as its holder and its key."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    else:
        keys = list(range(len(value))) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


Draw = Callable[[World], Request]


def list_providers(world: World) -> Request:
    aggregate = [world.spell(world.pick(*world.aggregates), 8) for _ in range(2)]
    amount = world.pick(
        "1", "2", "4", "5", "10", "0", "-1", " 3", "+3", "01", "1_0", "1.5", "a", "", str(2**63 - 1)
    )
    values = {
        "name": [*NAMES, ""],
        "uuid": [world.provider()],
        "in_tree": [world.provider()],
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
            *(world.trait(), f"{world.trait()},{world.trait()}", f"!{world.trait()}", f"in:{world.trait()}"),
            *(
                f"{world.trait()},!{world.trait()}",
                f"in:{world.trait()},{world.trait()}",
                f" {world.trait()} ",
            ),
            *(
                f"!in:{world.trait()}",
                f"in:{world.trait()},!{world.trait()}",
                f"{world.trait()},",
                ",",
                "!",
                "",
            ),
            *(f"!!{world.trait()}", "in:", f"{world.trait()},in:{world.trait()}", f"! {world.trait()}"),
        ],
        "resources": [
            *(f"{world.resource_class()}:{amount}", f"{world.resource_class()}:1,{world.resource_class()}:1"),
            *("VCPU", "VCPU:1:2", "VCPU:1,", "", " ", ",VCPU:1", "VCPU:"),
        ],
        world.pick("x", "limit", "Name", "resources1", ""): ["1"],
    }
    keys = world.some([*values, "member_of", "required", "resources"][: world.pick(6, 6, 9)])
    keys += world.some(["member_of", "required", "name", "resources"], 1) if world.chance(20) else []
    return ask("GET", f"/resource_providers?{_query(world, keys, values)}", version=world.version("1.3"))


def _query(world: World, keys: list[str], values: dict[str, list[str]]) -> str:
    pairs = [(key, world.pick(*values[key])) for key in keys]
    if world.chance(50):
        return "&".join(f"{quote(key)}={quote(value, safe=':,!')}" for key, value in pairs)
    return world.pick("&", ";").join(urlencode([pair]) for pair in pairs)


def create_provider(world: World) -> Request:
    version = world.version()
    name = world.pick(*NAMES, *NAMES, "", f"n{world.random.getrandbits(20)}")
    body = {"name": name, "uuid": world.spell(world.pick(*world.providers))}
    if version_number(version) >= 14 and world.chance(50):
        body["parent_provider_uuid"] = world.pick(None, world.provider(), world.provider(), body["uuid"])
    return world.write("POST", "/resource_providers", body, version)


def version_number(version: str) -> int:
    return int(version.removeprefix("1."))


def show_provider(world: World) -> Request:
    return ask("GET", world.path(), version=world.version())


def change_provider(world: World) -> Request:
    version = world.version("1.14")
    body = {"name": world.pick(*NAMES, "", f"n{world.random.getrandbits(20)}")}
    if version_number(version) >= 14 and world.chance(70):
        body["parent_provider_uuid"] = world.pick(None, *[world.provider() for _ in range(4)])
    return world.write("PUT", world.path(), body, version)


def delete_provider(world: World) -> Request:
    return ask("DELETE", world.path(), version=world.version())


def list_inventories(world: World) -> Request:
    return ask("GET", f"{world.path()}/inventories", version=world.version())


def create_inventory(world: World) -> Request:
    body = world.record() | {"resource_class": world.resource_class()}
    if world.chance(20):
        body["resource_provider_generation"] = world.pick(0, 5, -1, "0", None)
    return world.write("POST", f"{world.path()}/inventories", body, world.version())


def replace_inventories(world: World) -> Request:
    path = f"{world.path()}/inventories"
    held = (world.service.get(path) or {}).get("inventories", {}) if world.chance(60) else {}
    records = held | {world.resource_class(): world.record() for _ in range(world.pick(0, 1, 2, 3))}
    if records and world.chance(15):
        del records[world.pick(*records)]
    for record in records.values():
        if world.chance(10):
            record["resource_provider_generation"] = world.pick(0, 7)
    body = {"resource_provider_generation": world.generation(path), "inventories": records}
    return world.write("PUT", path, body, world.version())


def delete_inventories(world: World) -> Request:
    return ask("DELETE", f"{world.path()}/inventories", version=world.version("1.5"))


def _inventory_path(world: World) -> str:
    return f"{world.path()}/inventories/{quote(world.resource_class() or 'VCPU')}"


def show_inventory(world: World) -> Request:
    return ask("GET", _inventory_path(world), version=world.version())


def replace_inventory(world: World) -> Request:
    path = _inventory_path(world)
    body = world.record() | {"resource_provider_generation": world.generation(path)}
    return world.write("PUT", path, body, world.version())


def delete_inventory(world: World) -> Request:
    return ask("DELETE", _inventory_path(world), version=world.version())


def show_provider_usages(world: World) -> Request:
    return ask("GET", f"{world.path()}/usages", version=world.version())


def list_provider_allocations(world: World) -> Request:
    return ask("GET", f"{world.path()}/allocations", version=world.version())


def list_provider_aggregates(world: World) -> Request:
    return ask("GET", f"{world.path()}/aggregates", version=world.version("1.1"))


def replace_provider_aggregates(world: World) -> Request:
    path, version = f"{world.path()}/aggregates", world.version("1.1")
    uuids: Any = [world.spell(uuid, 5) for uuid in world.some(world.aggregates)]
    uuids += uuids[:1] if world.chance(5) else []
    if (version_number(version) >= 19) != world.chance(5):
        uuids = {"aggregates": uuids, "resource_provider_generation": world.generation(path)}
    return world.write("PUT", path, uuids, version)


def list_provider_traits(world: World) -> Request:
    return ask("GET", f"{world.path()}/traits", version=world.version("1.6"))


def replace_provider_traits(world: World) -> Request:
    path = f"{world.path()}/traits"
    body = {
        "traits": [world.trait() for _ in range(world.pick(0, 1, 2, 3))],
        "resource_provider_generation": world.generation(path),
    }
    return world.write("PUT", path, body, world.version("1.6"))


def delete_provider_traits(world: World) -> Request:
    return ask("DELETE", f"{world.path()}/traits", version=world.version("1.6"))


def list_traits(world: World) -> Request:
    values = {
        "name": [
            *(
                f"in:{world.trait()},{world.trait()}",
                "startswith:CUSTOM_",
                "startswith:HW_CPU",
                "in:",
                "startswith:",
            ),
            *("x", "", ":", "foo:x", "IN:CUSTOM_RED", "startswith:CUSTOM_R:", f"in: {world.trait()}"),
        ],
        "associated": ["true", "false", "TRUE", "False", "", "1", "yes"],
        world.pick("x", "Name"): ["1"],
    }
    keys = world.some([*values][: world.pick(2, 2, 2, 3)], 2)
    keys += keys[:1] if world.chance(10) else []
    return ask("GET", f"/traits?{_query(world, keys, values)}", version=world.version("1.6"))


def _trait_path(world: World) -> str:
    name = world.pick(*CUSTOM_TRAITS) if world.chance(70) else world.trait()
    if world.chance(5):
        name = world.pick("CUSTOM_" + "X" * 248, "CUSTOM_" + "X" * 249, "CUSTOM_", "CUSTOM_é", "custom_x")
    return f"/traits/{quote(name)}"


def show_trait(world: World) -> Request:
    return ask("GET", _trait_path(world), version=world.version("1.6"))


def ensure_trait(world: World) -> Request:
    return ask("PUT", _trait_path(world), version=world.version("1.6"))


def delete_trait(world: World) -> Request:
    return ask("DELETE", _trait_path(world), version=world.version("1.6"))


def list_resource_classes(world: World) -> Request:
    return ask("GET", "/resource_classes", version=world.version("1.2"))


def create_resource_class(world: World) -> Request:
    name = world.pick(*CUSTOM_CLASSES, *CUSTOM_CLASSES, world.resource_class(), "CUSTOM_" + "X" * 249)
    return world.write("POST", "/resource_classes", {"name": name}, world.version("1.2"))


def _class_path(world: World) -> str:
    name = world.pick(*CUSTOM_CLASSES) if world.chance(70) else world.resource_class() or "VCPU"
    if world.chance(5):
        name = world.pick(
            "CUSTOM_" + "X" * 248, "CUSTOM_" + "X" * 249, "CUSTOM_é", 'CUSTOM_"', "CUSTOM_\\", "x y"
        )
    return f"/resource_classes/{quote(name)}"


def show_resource_class(world: World) -> Request:
    return ask("GET", _class_path(world), version=world.version("1.2"))


def put_resource_class(world: World) -> Request:
    path = _class_path(world)
    if world.chance(50):
        return ask("PUT", path, version=world.pick("1.2", *VERSIONS[7:]))
    name = world.pick(*CUSTOM_CLASSES, world.resource_class())
    return world.write("PUT", path, {"name": name}, world.pick(*VERSIONS[2:7], world.version("1.2")))


def delete_resource_class(world: World) -> Request:
    return ask("DELETE", _class_path(world), version=world.version("1.2"))


def _resources(world: World) -> dict[str, int]:
    count = world.pick(1, 1, 2, 3)
    return {world.resource_class(): world.pick(1, 1, 2, 2, 3, 4, 6, 100, 10**12) for _ in range(count)}


def _claim(world: World, consumer: str, version: str, may_be_empty: bool) -> dict[str, Any]:
    number = version_number(version)
    held = {world.provider(): {"resources": _resources(world)} for _ in range(world.pick(1, 1, 2))}
    if may_be_empty and world.chance(20):
        held = {}
    for item in held.values():
        if world.chance(10):
            item["generation"] = world.pick(0, 3)
    claim: dict[str, Any] = {"allocations": held}
    if number >= 8:
        claim |= {"project_id": world.pick(*world.projects), "user_id": world.pick("me", "you")}
    if number >= 28:
        claim["consumer_generation"] = world.consumer_generation(consumer)
    if number >= 34 and world.chance(20):
        claim["mappings"] = {world.pick("", "1", "_NET", "é"): [world.provider()]}
    if number >= 38:
        claim["consumer_type"] = world.pick(*TYPES)
    return claim


def show_allocations(world: World) -> Request:
    consumer = quote(world.spell(world.pick(*world.consumers), 8) or "x", safe="{}:-")
    return ask("GET", f"/allocations/{consumer}", version=world.version())


def replace_consumer_allocations(world: World) -> Request:
    consumer, version = world.pick(*world.consumers), world.version()
    claim = _claim(world, consumer, version, version_number(version) >= 28)
    if version_number(version) < 12:
        claim["allocations"] = [
            {"resource_provider": {"uuid": uuid}, "resources": item["resources"]}
            for uuid, item in claim["allocations"].items()
        ]
    spelled = quote(world.spell(consumer, 8) or "x", safe="{}:-")
    return world.write("PUT", f"/allocations/{spelled}", claim, version)


def delete_allocations(world: World) -> Request:
    consumer = quote(world.spell(world.pick(*world.consumers), 8) or "x", safe="{}:-")
    return ask("DELETE", f"/allocations/{consumer}", version=world.version())


def replace_allocations(world: World) -> Request:
    version = world.version("1.13")
    consumers = world.some(world.consumers) or world.consumers[:1]
    claims = {world.spell(c, 2): _claim(world, c, version, True) for c in consumers}
    return world.write("POST", "/allocations", claims, version)


def show_usages(world: World) -> Request:
    values = {
        "project_id": [*world.projects, *world.projects, "", "x" * 256],
        "user_id": ["me", "you", "nobody", ""],
        "consumer_type": [*TYPES, "all", "unknown", "ALL", "UNKNOWN", "allfoo", "unknownx", "inst", ""],
        world.pick("x", "Project_id"): ["1"],
    }
    keys = (
        ["project_id", *world.some(["user_id", "consumer_type"], 2)]
        if world.chance(90)
        else world.some([*values])
    )
    keys += keys[:1] if world.chance(10) else []
    return ask("GET", f"/usages?{_query(world, keys, values)}", version=world.version("1.9"))


def reshape(world: World) -> Request:
    version = world.version("1.30")
    inventories = {}
    for uuid in world.some(world.providers, 2) or world.providers[:1]:
        path = f"/resource_providers/{uuid}"
        held = (world.service.get(f"{path}/inventories") or {}).get("inventories", {})
        if held and world.chance(20):
            del held[world.pick(*held)]
        if world.chance(40):
            held[world.resource_class()] = world.record()
        if world.chance(5):
            held = {}
        spelled = world.spell(uuid, 2)
        inventories[spelled] = {"resource_provider_generation": world.generation(path), "inventories": held}
    claims = {c: _claim(world, c, version, True) for c in world.some(world.consumers, 2)}
    return world.write("POST", "/reshaper", {"inventories": inventories, "allocations": claims}, version)


def list_candidates(world: World) -> Request:
    suffixes = world.some(["1", "2", "_NET", "a-b", "0", "C" * 64, "C" * 65, "é"], 3)
    suffixes = suffixes if world.chance(40) else world.some(["1", "2", "10"], 2)
    pairs: list[tuple[str, str]] = []
    for suffix in ["", *suffixes] if world.chance(85) else suffixes:
        if world.chance(90 if not suffix else 75):
            amounts = [
                f"{world.resource_class()}:{world.pick('1', '1', '2', '4')}"
                for _ in range(world.pick(1, 1, 2))
            ]
            pairs.append((f"resources{suffix}", ",".join(amounts)))
        pairs += [
            (f"{key}{suffix}", _filter(world, key)) for key in world.some([*FILTERS], 2) if world.chance(35)
        ]
    if world.chance(60):
        pairs.append(("group_policy", world.pick("none", "none", "isolate", "bogus")))
    if world.chance(25):
        pairs.append(("limit", world.pick("1", "2", "1000", "0", "-1", "01", "", "1e3", "9" * 30)))
    if world.chance(15):
        pairs.append(("root_required", _filter(world, "required")))
    if world.chance(30) and suffixes:
        named = world.some([*suffixes, world.pick("nobody", "", " 1")], 3)
        pairs.append(("same_subtree", world.pick(",", ", ").join(named)))
    if world.chance(10):
        pairs.append(
            world.pick(*pairs, ("x", "1"), ("resources1", "VCPU:1"), ("Resources", "VCPU:1"), ("limit1", "1"))
        )
    world.random.shuffle(pairs)
    query = "&".join(f"{quote(key)}={quote(value, safe=':,!')}" for key, value in pairs)
    return ask("GET", f"/allocation_candidates?{query}", version=world.version("1.10"))


FILTERS = ("required", "member_of", "in_tree")


def _filter(world: World, key: str) -> str:
    aggregate = [world.spell(world.pick(*world.aggregates), 4) for _ in range(2)]
    traits = [world.trait() for _ in range(2)]
    values = {
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
        "in_tree": [world.provider(), world.provider(), f" {world.provider()} ", "", world.new_uuid()],
    }[key]
    return str(world.pick(*values[:4], *values[:4], *values))


DRAWS: list[Draw] = [
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
"""A way to draw a request for each operation of each path."""
