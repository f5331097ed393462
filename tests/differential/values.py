"""Random values for requests: uuids, names, generations and bodies, of which some exist and are valid."""

import copy
from random import Random
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from tests.differential.services import Request, Service, api_request

VERSIONS = [f"1.{minor}" for minor in range(40)]
TRAITS = ["HW_CPU_X86_AVX", "HW_NUMA_ROOT", "STORAGE_DISK_SSD", "MISC_SHARES_VIA_AGGREGATE"]
CUSTOM_TRAITS = ["CUSTOM_RED", "CUSTOM_GREEN", "CUSTOM_BLUE"]
CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB"]
CUSTOM_CLASSES = ["CUSTOM_GOLD", "CUSTOM_IRON"]
TYPES = ["INSTANCE", "MIGRATION", "VOLUME"]
NAMES = ["host", "Host", "numa 0", "☃", "a<b>c", "name, with comma"]
MAX_INTEGER = 2147483647

JUNK: list[Any] = [
    *(None, True, False, 0, 1, -1, 5.0, 1.5, MAX_INTEGER, MAX_INTEGER + 1, 10**25, 1e300),
    *("", "x", "VCPU", "vcpu", "CUSTOM_GOLD", "CUSTOM_", "1", "a\nb", "é☃", "x" * 201, "C" * 256),
    *([], [1], ["x"], ["x", "x"], {}, {"a": 1}, {"VCPU": 1}, [None], [[]]),
    *("00000000-0000-4000-8000-00000000000", "{0000000000004000800000000000000}", "urn:uuid:x"),
]
KEYS = [
    *("x", "", "name", "uuid", "generation", "total", "reserved", "resource_class", "consumer_generation"),
    *("project_id", "mappings", "consumer_type", "resources", "VCPU", "vcpu", "root_provider_uuid", "é"),
    *("parent_provider_uuid", "resource_provider_generation", "allocations", "36" * 18, "-" * 36, "a\n"),
]


class RandomValues:
    """A source of random values from a small set of providers, consumers, aggregates and projects.

    `random` draws the values. Current generations are read from `service`.
    """

    def __init__(self, random: Random, service: Service) -> None:
        self.random = random
        self.service = service
        self.providers = [self.new_uuid() for _ in range(6)]
        self.consumers = [self.new_uuid() for _ in range(5)]
        self.aggregates = [self.new_uuid() for _ in range(3)]
        self.projects = [f"project-{self.new_uuid()}" for _ in range(2)]

    def replace_unused_consumers(self, request: Request) -> None:
        """Replace each consumer of a request that has no allocations by a new one.

        The reference may keep such a consumer, with a project and a user that a client cannot read.
        """
        text = f"{request.path} {request.body!r}".lower().replace("-", "")
        for index, consumer in enumerate(self.consumers):
            allocations = self.service.get(f"/allocations/{consumer}")["allocations"]
            if consumer.replace("-", "") in text and not allocations:
                self.consumers[index] = self.new_uuid()

    def new_uuid(self) -> str:
        """Return a uuid that was never used: the reference never deletes some traces of consumers."""
        return str(uuid4())

    def chance(self, percent: int) -> bool:
        """Draw True with this probability."""
        return self.random.randrange(100) < percent

    def pick(self, *members: Any) -> Any:
        """Draw one of the arguments."""
        return self.random.choice(members)

    def sample(self, members: list[Any], most: int = 3) -> list[Any]:
        """Draw at most `most` different members."""
        return self.random.sample(members, self.random.randint(0, min(most, len(members))))

    def version(self, least: str = "1.0") -> str:
        """Draw a microversion, in most cases `least` or newer."""
        versions = VERSIONS if self.chance(8) else VERSIONS[int(least.removeprefix("1.")) :]
        return "1.39" if self.chance(30) else str(self.pick(*versions))

    def uuid_text(self, uuid: str, percent: int = 12) -> str:
        """Return a uuid, sometimes in an unusual or invalid form."""
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
        return self.uuid_text(self.pick(*self.providers), 4)

    def path(self) -> str:
        """Draw the path of a provider."""
        return f"/resource_providers/{quote(self.provider(), safe='{}:-')}"

    def generation(self, path: str) -> Any:
        """Return the generation of the provider at a path, sometimes a different value."""
        if self.chance(8):
            return self.pick(0, 1, 2, 100, -1, None, "0", 1.0, 10**20)
        provider = self.service.get("/".join(path.split("/")[:3]))
        return provider["generation"] if provider else 0

    def consumer_generation(self, uuid: str) -> Any:
        """Return the generation of a consumer, sometimes a different value."""
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

    def inventory(self) -> dict[str, Any]:
        """Draw an inventory."""
        inventory: dict[str, Any] = {"total": self.pick(1, 5, 10, 100, 10.0, MAX_INTEGER)}
        for key, values in {
            "reserved": (0, 1, 5, 10, 11, 100),
            "min_unit": (1, 2, 4),
            "max_unit": (1, 5, 100, MAX_INTEGER),
            "step_size": (1, 2, 3),
            "allocation_ratio": (1.0, 1, 0.5, 1.5, 0, -1.0, 16.0, 0.29, 3.40282e38, 1e39),
        }.items():
            if self.chance(20):
                inventory[key] = self.pick(*values)
        return inventory

    def junk(self) -> Any:
        """Draw a value that is rarely valid; it is a copy that the caller may change."""
        return copy.deepcopy(self.pick(*JUNK))

    def maybe_corrupt(self, body: Any, percent: int = 25) -> Any:
        """Return the body, or a copy with one to three changed members."""
        if not self.chance(percent):
            return body
        body = copy.deepcopy(body)
        for _ in range(self.pick(1, 1, 2, 3)):
            members = _members(body)
            if not members or self.chance(3):
                return self.junk()
            container, key = self.pick(*members)
            change = self.pick("replace", "replace", "remove", "add")
            if change == "replace":
                container[key] = self.junk()
            elif change == "remove":
                del container[key]
            elif isinstance(container, list):
                container.append(copy.deepcopy(self.pick(*JUNK, *container)))
            else:
                container[self.pick(*KEYS)] = self.junk()
        return body

    def write_request(self, method: str, path: str, body: Any, version: str) -> Request:
        """Return a request with a JSON body, which may be corrupted."""
        request = api_request(method, path, self.maybe_corrupt(body), version)
        if self.chance(2):
            text = self.pick(
                *(b"", b"{", b"nonsense", b"\xff", b"[]]", b'{"a": NaN}', b"\xef\xbb\xbf{}", b"'x'", b"{} x"),
                *(b'{"name": "x", "name": 3}', b"\x00", b"nul", b"1e999", b"[1,]", b"-", b'"\\ud800"'),
            )
            request = Request(request.method, request.target, request.headers, text)
        return request


def _members(value: Any) -> list[tuple[Any, Any]]:
    """Return the container and the key of each member of a JSON value, at any depth."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    else:
        keys = list(range(len(value))) if isinstance(value, list) else []
    return [member for key in keys for member in ((value, key), *_members(value[key]))]
