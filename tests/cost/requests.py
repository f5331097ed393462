"""Random requests that may be expensive. They are plain data, which a file can hold."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from tests.cost.clouds import Cloud
from tests.support.versions import EXTENDED

CURRENT = "$generation"
"""Stands in a body for the current generation of the provider or consumer that it concerns."""


MAX_LINE = 60_000
"""Bytes of the query string; the service refuses longer request lines."""

COUNTS = (1, 2, 3, 5, 10, 30, 100)

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Request:
    """A request with the JSON value `body`, or with `text` as its body, unchanged.

    The pairs are the query string. If there is a body, its key `request` has the query string, as in a claim.
    """

    method: str
    path: str
    pairs: Pairs = ()
    body: Any = None
    text: str | None = None
    version: str = "1.39"

    @property
    def operation(self) -> str:
        """The method, and the path without names."""
        if self.path.startswith("/allocation_candidates"):
            return f"{self.method} {self.path}"
        return f"{self.method} /{self.path.split('/')[1]}/{'/'.join(self.path.split('/')[3:])}".rstrip("/")

    @property
    def is_read(self) -> bool:
        """Whether the request changes nothing, apart from a dry run."""
        return self.method == "GET"

    @property
    def has_deadline(self) -> bool:
        """Whether the deadline of the settings concerns the request."""
        return self.is_read or self.path == "/claims"

    @property
    def query(self) -> str:
        """The pairs as a query string."""
        return urlencode(self.pairs, safe=":,!", quote_via=quote)

    @property
    def target(self) -> str:
        """The path, with the query string unless the body has it."""
        return f"{self.path}?{self.query}" if self.pairs and self.body is None else self.path

    def content(self, generations: dict[str, int]) -> bytes | None:
        """Return the body as bytes, with the generations of providers and consumers by uuid."""
        if self.text is not None:
            return self.text.encode()
        if self.body is None:
            return None
        uuid = next((part for part in self.path.split("/") if part in generations), "")
        body = _resolved(self.body, generations, uuid)
        if self.pairs and isinstance(body, dict):
            body = {"request": self.query, **body}
        return json.dumps(body).encode()


def _resolved(value: Any, generations: dict[str, int], uuid: str) -> Any:
    """Return a body in which generations replace `CURRENT`."""
    if value == CURRENT:
        return generations.get(uuid, 0)
    if isinstance(value, dict):
        return {
            key: _resolved(member, generations, key if key in generations else uuid)
            for key, member in value.items()
        }
    return [_resolved(member, generations, uuid) for member in value] if isinstance(value, list) else value


class Draw:
    """A source of random values with the names of a cloud."""

    def __init__(self, random: Random, cloud: Cloud) -> None:
        self.random = random
        self.cloud = cloud
        self.providers = [provider.uuid for provider in cloud.providers]
        self.classes_of = {provider.uuid: list(provider.inventories) for provider in cloud.providers}
        self.consumers = [consumer.consumer_uuid for consumer in cloud.consumers]
        self.groups = cloud.groups

    def pick(self, *members: Any) -> Any:
        """Draw one of the arguments."""
        return self.random.choice(members)

    def chance(self, percent: int) -> bool:
        """Draw True with this probability."""
        return self.random.randrange(100) < percent

    def count(self) -> int:
        """Draw the size of a list."""
        return int(self.random.choice(COUNTS))

    def some(self, members: Any, count: int) -> list[Any]:
        """Draw `count` members, repeated if there are fewer."""
        return (
            self.random.sample(members, count)
            if count <= len(members)
            else self.random.choices(members, k=count)
        )

    def uuid(self) -> str:
        """Draw a new uuid."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def provider(self) -> str:
        """Draw the uuid of a provider; early ones, such as roots, often."""
        return str(self.pick(self.providers[0], self.random.choice(self.providers)))

    def trait(self) -> str:
        """Draw a trait; common ones often."""
        return str(self.random.choice(self.cloud.traits[: self.pick(10, None)]))

    def resources(self) -> str:
        """Draw the value of a key `resources`."""
        classes = self.some(self.cloud.classes, self.pick(1, 1, 1, 2, 10))
        return ",".join(f"{name}:{self.pick(1, 1, 1, 1, 2, 8, 100)}" for name in classes)

    def required(self) -> str:
        """Draw the value of a key `required`; traits in `in:` or with `!` are rarely required elsewhere."""
        if self.chance(40):
            return "in:" + ",".join(self.trait() for _ in range(self.count()))
        if self.chance(60):
            return ",".join(f"!{self.pick(*self.cloud.traits[1::2])}" for _ in range(self.pick(1, 1, 2, 10)))
        return ",".join(self.pick(*self.cloud.traits[::2]) for _ in range(self.pick(1, 1, 2)))

    def member_of(self) -> str:
        """Draw the value of a key `member_of`."""
        if self.chance(60):
            return str(self.pick("", "in:", "!")) + str(self.pick(*self.cloud.aggregates))
        count = self.count()
        return str(self.pick("in:", "!in:")) + ",".join(
            self.pick(*self.cloud.aggregates, self.uuid()) for _ in range(count)
        )


def candidates(draw: Draw) -> Request:
    """GET /allocation_candidates, with up to a hundred groups."""
    pairs: list[tuple[str, str]] = []
    suffixes = [f"_{number}" for number in range(draw.pick(0, 2, 2, 3, 5, 8, 12, 20, 100))]
    kind = draw.random.random()
    template = _group(draw)
    for suffix in suffixes:
        group = template if draw.chance(int(100 * kind)) else _group(draw)
        pairs += [(key + suffix, value) for key, value in group]
    if not suffixes or draw.chance(30):
        pairs += _group(draw)
    pairs.append(("group_policy", draw.pick("none", "isolate")))
    pairs += subtree(draw, suffixes)
    if draw.chance(20):
        pairs.append(
            ("root_required", ",".join(draw.pick("", "!") + draw.trait() for _ in range(draw.pick(1, 5))))
        )
    if draw.chance(60):
        pairs.append(("limit", draw.pick("1", "1", "10", "1000", "9" * 18)))
    path = "/allocation_candidates"
    version = "1.39" if draw.chance(90) else draw.pick("1.25", "1.29", "1.33", "1.36")
    if draw.chance(30):
        version = EXTENDED
        pairs += _extensions(draw, suffixes)
        path += draw.pick("", "", "", "/explanation", "/capacity")
    return Request("GET", path, tuple(pairs), version=version)


def _extensions(draw: Draw, suffixes: list[str]) -> list[tuple[str, str]]:
    """Draw keys of the extensions."""
    some = draw.some(suffixes, draw.random.randint(1, len(suffixes))) if suffixes else []
    keys = [
        ("root_member_of", draw.member_of()),
        ("in_tree", f"!{draw.provider()}"),
        ("ignore_consumer", draw.pick(*draw.consumers, draw.uuid())),
        ("preferred", draw.trait()),
        ("order_by", f"{draw.pick('spread', 'pack')}:{draw.pick(*draw.cloud.classes)}"),
        ("order_by", "random"),
        ("can_split", ",".join(draw.some(draw.cloud.classes, draw.pick(1, 2, 5)))),
        *([("isolate", ",".join(some))] if some else []),
        *([("same_subtree", ",".join(draw.pick("", "!") + suffix for suffix in some))] if some else []),
    ]
    return [draw.pick(*keys) for _ in range(draw.pick(1, 1, 2, 3, 10))]


def _group(draw: Draw) -> list[tuple[str, str]]:
    pairs = [("resources", draw.resources())]
    pairs += [("required", draw.required()) for _ in range(draw.pick(0, 0, 1, 1, 2, 10))]
    pairs += [("member_of", draw.member_of()) for _ in range(draw.pick(0, 0, 0, 1, 3))]
    pairs += [("in_tree", draw.provider())] if draw.chance(10) else []
    return pairs


def subtree(draw: Draw, suffixes: list[str]) -> list[tuple[str, str]]:
    """Draw keys `same_subtree` over some of the suffixes, and groups without resources in them."""
    if not suffixes or draw.chance(50):
        return []
    pairs = []
    for number in range(draw.pick(1, 1, 2, 5, 30)):
        members = draw.random.sample(suffixes, draw.random.randint(1, len(suffixes)))
        if draw.chance(20):
            members.append(f"_R{number}")
            pairs.append((f"required_R{number}", draw.required()))
        pairs.append(("same_subtree", ",".join(members)))
    return pairs


def providers(draw: Draw) -> Request:
    """GET /resource_providers, with many filters."""
    pairs = [("required", draw.required()) for _ in range(draw.pick(0, 1, 1, 10, 50))]
    pairs += [("member_of", draw.member_of()) for _ in range(draw.pick(0, 1, 1, 10, 50))]
    pairs += [("resources", draw.resources())] if draw.chance(50) else []
    pairs += [("in_tree", draw.provider())] if draw.chance(20) else []
    return Request("GET", "/resource_providers", tuple(pairs))


def reads(draw: Draw) -> Request:
    """A GET request of another kind."""
    provider = f"/resource_providers/{draw.provider()}"
    traits = ",".join(draw.trait() for _ in range(draw.count()))
    path, pairs = draw.pick(
        ("/usages", (("project_id", f"project-{draw.pick(0, 1)}"),)),
        ("/usages", (("project_id", "project-0"), ("user_id", "user-0"), ("consumer_type", "all"))),
        ("/traits", (("name", f"in:{traits}"), ("associated", "true"))),
        ("/traits", ()),
        ("/resource_classes", ()),
        *(
            (f"{provider}/{name}", ())
            for name in ("usages", "allocations", "inventories", "traits", "aggregates")
        ),
        (f"/allocations/{draw.pick(*draw.consumers, draw.uuid())}", ()),
    )
    return Request("GET", path, pairs)


def change_provider(draw: Draw) -> Request:
    """PUT of the traits, aggregates or inventories of a provider."""
    count = draw.pick(1, 10, 100, 1000)
    name, value = draw.pick(
        ("traits", [draw.trait() for _ in range(count)]),
        ("aggregates", [draw.uuid() for _ in range(count)]),
        ("inventories", {name: {"total": draw.pick(1, 10**9)} for name in draw.cloud.classes}),
    )
    body = {"resource_provider_generation": CURRENT, name: value}
    return Request("PUT", f"/resource_providers/{draw.provider()}/{name}", body=body)


def claim_body(draw: Draw) -> Any:
    """Return the claim of a new consumer."""
    used = draw.some(draw.providers, draw.pick(1, 1, 2, 10, 100))
    classes = {uuid: draw.classes_of[uuid] or [draw.pick(*draw.cloud.classes)] for uuid in used}
    return {
        "allocations": {uuid: {"resources": {draw.pick(*names): 1}} for uuid, names in classes.items()},
        "project_id": draw.pick("project-0", draw.uuid()),
        "user_id": draw.pick("user-0", draw.uuid()),
        "consumer_generation": None,
        "consumer_type": draw.pick("INSTANCE", "MIGRATION"),
    }


def claims(draw: Draw) -> Request:
    """PUT or POST of allocations, or POST of a reshape."""
    if draw.chance(30):
        return Request("PUT", f"/allocations/{draw.uuid()}", body=claim_body(draw))
    body = {draw.uuid(): claim_body(draw) for _ in range(draw.pick(1, 5, 50))}
    if draw.chance(50):
        return Request("POST", "/allocations", body=body)
    inventories = {
        uuid: {
            "resource_provider_generation": CURRENT,
            "inventories": {name: {"total": 10**6} for name in [*draw.classes_of[uuid], "VCPU"]},
        }
        for uuid in draw.some(draw.providers, draw.count())
    }
    return Request("POST", "/reshaper", body={"inventories": inventories, "allocations": body})


def malformed(draw: Draw) -> Request:
    """A write with a body that is no JSON, or no valid one."""
    request = draw.pick(change_provider, claims)(draw)
    count = draw.pick(10, 1000, 100_000)
    text = draw.pick(
        "[" * count, "[" * count + "]" * count, '{"a":' * count, '"' + "x" * count, "9" * count,
        "[" + ",".join(map(str, range(count))) + "]", '["' + "\\u0000" * count + '"]',
        "{" + ",".join(f'"k{number}":0' for number in range(count)) + "}",
        '{"resource_provider_generation":0,"traits":[' + ",".join(f'"{n}"' for n in range(count)) + "]}",
        '{"allocations":{' + ",".join(f'"{number}":[]' for number in range(count)) + "}}",
    )  # fmt: skip
    return Request(request.method, request.path, text=text)
