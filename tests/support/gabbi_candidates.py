"""A gabbi handler for expected allocation candidates, in the notation of `docs/spec/candidates.md 6`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from gabbi.case import HTTPTestCase
from gabbi.handlers.base import ResponseHandler

SHORT_CLASSES = {
    "VCPU": "V",
    "MEMORY_MB": "M",
    "DISK_GB": "D",
    "SRIOV_NET_VF": "VF",
    "IPV4_ADDRESS": "IP",
}


class CandidatesHandler(ResponseHandler):
    """Compare the candidates of a response with the list under `response_candidates`.

    ::

        response_candidates:
          - CN1(V:1,M:512)+SS1(D:500)             # each supplier with the sum of what it supplies
          - pf11(VF:1)+pf12(VF:1) _A→pf11 _N→nic1  # with the mappings of some groups
          - fp10(FPGA:1)+fp11(FPGA:1): 2          # two candidates with the same text
          - none                                  # alone: there is no candidate

    The list is complete. The order of candidates, suppliers and classes does not matter. Standard classes
    have the abbreviations of the specification, custom classes their name without `CUSTOM_`. Providers have
    the name from an earlier POST of the same file. The comparison includes the mappings of all suffixes in
    the list, so each entry has to contain the same suffixes; `→CN1,SS1` is the mapping of the unsuffixed
    group.
    """

    test_key_suffix = "candidates"
    test_key_value: ClassVar[list[str | dict[str, int]]] = []

    def preprocess(self, test: HTTPTestCase) -> None:
        """Fail the test unless its response has exactly the expected candidates.

        Only this method gets the whole list: gabbi passes its items to `action` one by one.
        """
        expected = Counter(_expected(test.test_data[self._key]))
        suffixes = {mapping.split("→")[0] for entry in expected for mapping in entry.split(" ")[1:]}
        names = _names(test)
        actual = Counter(
            _notation(request, suffixes, names) for request in test.response_data["allocation_requests"]
        )
        missing = sorted((expected - actual).elements())
        unexpected = sorted((actual - expected).elements())
        assert actual == expected, f"missing: {missing}\nunexpected: {unexpected}"


def _expected(entries: list[str | dict[str, int]]) -> Iterator[str]:
    """Yield each expected candidate, its parts sorted, as many times as it must occur."""
    for entry in entries:
        if entry == "none":
            continue
        for text, count in entry.items() if isinstance(entry, dict) else [(entry, 1)]:
            suppliers, *mappings = text.split(" ")
            for _ in range(count):
                yield _format(
                    {
                        name: resources.split(",")
                        for name, resources in (part.rstrip(")").split("(") for part in suppliers.split("+"))
                    },
                    {
                        suffix: providers.split(",")
                        for suffix, providers in (mapping.split("→") for mapping in mappings)
                    },
                )


def _notation(request: dict[str, Any], suffixes: set[str], names: dict[str, str]) -> str:
    """Return an allocation request of any microversion in the notation, with the mappings of `suffixes`."""
    allocations = request["allocations"]
    if isinstance(allocations, list):
        allocations = {
            allocation["resource_provider"]["uuid"]: {"resources": allocation["resources"]}
            for allocation in allocations
        }
    return _format(
        {
            names.get(uuid, uuid): [
                f"{SHORT_CLASSES.get(name, name.removeprefix('CUSTOM_'))}:{amount}"
                for name, amount in allocation["resources"].items()
            ]
            for uuid, allocation in allocations.items()
        },
        {
            suffix: [names.get(uuid, uuid) for uuid in request["mappings"].get(suffix, [])]
            for suffix in suffixes
        },
    )


def _format(suppliers: Mapping[str, list[str]], mappings: Mapping[str, list[str]]) -> str:
    """Join the parts of a candidate in sorted order."""
    return " ".join(
        [
            "+".join(f"{name}({','.join(sorted(suppliers[name]))})" for name in sorted(suppliers)),
            *(f"{suffix}→{','.join(sorted(mappings[suffix]))}" for suffix in sorted(mappings)),
        ]
    )


def _names(test: HTTPTestCase) -> dict[str, str]:
    """Return the names of the providers created in the test's file, by uuid."""
    created = (
        earlier.test_data["data"]
        for earlier in test.history.values()
        if earlier.test_data["method"] == "POST" and earlier.test_data["url"] == "/resource_providers"
    )
    return {provider["uuid"]: provider["name"] for provider in created}
