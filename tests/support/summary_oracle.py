"""An oracle for `summary` in explanations: its numbers are those of the response, and it is true."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.support.cloud import Cloud, Provider
from tests.support.explanation_oracle import amount_passes, capacity, filters_of, passes, unused_cloud
from tests.support.oracle import Request, anchors
from tests.support.relaxation_oracle import RelaxationOracle

FILTER = r"(?P<code>\w+) \((?P<query>.*?)\)"
WOULD_FIT = "where each group would fit by itself"
OF_GROUP = r"(?: for the group (?P<suffix>\S+?))?"
WITHOUT_QUERY = {"groups": "all of them on one host", "sum": "several groups on one provider"}

LACK = (
    r"[Tt]here is no \w|[Tt]he provider \w+ |[Ii]t does not meet |[Tt]here \S+ is not met"
    r"|\d+ \w+ (?:is|are) not allowed in one allocation|[Tt]he capacity is \d"
    r"|\d+ of \d+ \w+ (?:is|are) free|\w+ \(.*?\) fails"
)

SENTENCES = {
    "nothing": r"No candidates among (?P<total>\d+) hosts?(?: \(\w+\))?\.",
    "some": r"(?P<found>\d+) of (?P<total>\d+) hosts?(?: \(\w+\))? ha(?:s|ve) candidates\.",
    "decides": rf"{FILTER} alone excludes (?P<sole>\d+) (?:more|hosts? that would have candidates)\.",
    "excludes": rf"{FILTER} alone excludes (?P<sole>\d+)(?: hosts?| more,) {WOULD_FIT}\.",
    "ends": rf"None is left after {FILTER}, which (?P<alone>no|\d+) hosts? pass(?:es)? by itself\.",
    "unit": rf"No inventory allows (?P<wanted>\d+) (?P<name>\w+) in one allocation{OF_GROUP}"
    r"(?:: the nearest allowed amount is (?P<best>\d+))?\.",
    "capacity": rf"No single provider has a capacity of (?P<wanted>\d+) (?P<name>\w+){OF_GROUP}"
    r": the largest has (?P<best>\d+)\.",
    "together": r"Several providers of a host cannot supply (?P<wanted>\d+) (?P<name>\w+) together\.",
    "everything": rf"No (?:host|provider) has everything{OF_GROUP} at the same time \(.*?\),"
    r" even if nothing were used\.",
    "inventory": rf"None has an inventory of (?P<name>\w+){OF_GROUP}\.",
    "unused": r"There would be candidates if nothing were used\.",
    "fragmented": r"Enough is free in all, but not together\.",
    "uncombined": r"Each group would fit by itself if nothing were used, but the groups cannot be combined\.",
    "uncombined_by": rf"Each group fits by itself on (?P<groups>\d+) hosts?, but {FILTER} leaves"
    r" no combination\.",
    "step": r"(?P<change>With(?:out)? .*?), (?P<roots>\d+) hosts? ha(?:s|ve) candidates\.",
    "cut": r"The response has candidates on (?P<returned>\d+) hosts? only, because of (?P<by>\w+)\.",
    "advice": r"(?:Add|Release|Move|Request) [\w ,]+\.",
    "nearest": rf"(?:(?P<root>\w+) comes closest: )?(?P<lacks>(?:{LACK}).*?)\.(?= |$)",
}
"""The sentences of a summary, by the name of the method that tests them."""


class SummaryOracle:
    """The response `body` to a request for an explanation at some roots, with its summary."""

    def __init__(self, cloud: Cloud, request: Request, roots: Sequence[Provider], body: Any) -> None:
        self.cloud = cloud
        self.request = request
        self.roots = list(roots)
        self.body = body
        self.near = [p for p in cloud.providers if any(root in anchors(cloud, p) for root in self.roots)]

    def untrue(self) -> list[str]:
        """Return the sentences that are not true."""
        return [sentence for sentence, is_true in self._sentences() if not is_true]

    def _sentences(self) -> Iterator[tuple[str, bool]]:
        rest = self.body["summary"]
        while rest:
            for name, pattern in SENTENCES.items():
                if match := re.match(rf"{pattern}(?: |$)", rest):
                    test: Callable[..., bool] = getattr(self, f"_{name}")
                    yield match[0], test(**match.groupdict())
                    rest = rest[match.end() :]
                    break
            else:
                yield rest, False
                return

    def _entries(self, code: str, query: str) -> list[tuple[Any, Any]]:
        """Return the entries of a filter, each with the one before it in its group, or in `tree`."""
        lists = [*(group["filters"] for group in self.body["groups"]), self.body["tree"]]
        return [
            (each, before)
            for entries in lists
            for before, each in zip([None, *entries], entries, strict=False)
            if each["code"] == code and query in (each["query"], WITHOUT_QUERY.get(code))
        ]

    def _inventories(self, name: str) -> list[Any]:
        return [provider.inventories[name] for provider in self.near if name in provider.inventories]

    def _nothing(self, total: str) -> bool:
        return int(total) == self.body["roots"]["total"] and not self.body["has_candidates"]

    def _some(self, found: str, total: str) -> bool:
        roots = self.body["roots"]
        return (int(found), int(total)) == (roots["with_candidates"], roots["total"])

    def _excludes(self, code: str, query: str, sole: str) -> bool:
        return any(each["sole_blocker"] == int(sole) for each, _ in self._entries(code, query))

    def _decides(self, code: str, query: str, sole: str) -> bool:
        oracle = RelaxationOracle(self.cloud, self.request, self.roots)
        removable = [each for each in oracle.changes() if each.remove and each.query == query]
        won = [oracle.count(oracle.without([each])) - oracle.count(self.request) for each in removable]
        return self._excludes(code, query, sole) and (not won or int(sole) in won)

    def _ends(self, code: str, query: str, alone: str) -> bool:
        count = 0 if alone == "no" else int(alone)
        return any(
            each["alone"] == count and not each["left"] and (before is None or before["left"])
            for each, before in self._entries(code, query)
        )

    def _unit(self, wanted: str, name: str, suffix: str | None, best: str | None) -> bool:
        return not any(amount_passes("unit", each, int(wanted)) for each in self._inventories(name)) and any(
            each["best"] == (best and int(best))
            for each, _ in self._entries("unit", self._amount(suffix, name))
        )

    def _capacity(self, wanted: str, name: str, suffix: str | None, best: str) -> bool:
        largest = max(map(capacity, self._inventories(name)))
        return (
            int(best) == max(0, largest) < int(wanted) and self._amount(suffix, name).split(":")[1] == wanted
        )

    def _together(self, wanted: str, name: str) -> bool:
        [group] = [group for group in self.request.groups if not group.suffix]
        of_class = replace(group, resources={name: group.resources[name]}, required=())
        tested, roots = filters_of(of_class), self.roots
        if self.body["kind"] == "impossible":
            tested = [one for one in tested if one.code in ("inventory", "unit", "capacity")]
        else:
            roots = [self.cloud.provider(self.body["nearest"][0]["root"]["name"])]
        return (
            name in self.request.can_split
            and int(wanted) == group.resources[name]
            and not any(passes(self.cloud, of_class, root, tested, self.request.can_split) for root in roots)
        )

    def _amount(self, suffix: str | None, name: str) -> str:
        group = next(group for group in self.request.groups if group.suffix == (suffix or ""))
        return f"resources{group.suffix}={name}:{group.resources[name]}"

    def _everything(self, suffix: str | None) -> bool:
        group = next(group for group in self.request.groups if group.suffix == (suffix or ""))
        tested = [one for one in filters_of(group) if one.code in ("inventory", "unit", "capacity")]
        return not any(passes(self.cloud, group, root, tested, self.request.can_split) for root in self.roots)

    def _inventory(self, name: str, suffix: str | None) -> bool:
        return not self._inventories(name) and bool(self._amount(suffix, name))

    def _unused(self) -> bool:
        unused = unused_cloud(self.cloud)
        roots = [unused.provider(root.name) for root in self.roots]
        return RelaxationOracle(unused, self.request, roots).count(self.request) > 0

    def _fragmented(self) -> bool:
        return bool(self.body["kind"] == "fragmented")

    def _uncombined(self) -> bool:
        return self.body["kind"] == "combination" and not self._unused()

    def _uncombined_by(self, groups: str, code: str, query: str) -> bool:
        return self.body["tree"][0]["left"] == int(groups) and any(
            before["left"] and not each["left"] for each, before in self._entries(code, query) if before
        )

    def _step(self, change: str, roots: str) -> bool:
        best = self.body["relaxations"][0]
        without = best.get("without", [])
        without = [without] if isinstance(without, str) else without
        parts = [f"without {' and '.join(without)}"] if without else []
        parts += [f"with {best['instead']}"] if "instead" in best else []
        return bool(change.lower() == " and ".join(parts).lower() and int(roots) == best["roots"])

    def _cut(self, returned: str, by: str) -> bool:
        return (int(returned), by) == (self.body["roots"]["returned"], self.body["truncated_by"])

    def _advice(self) -> bool:
        """Return whether no verified change is known, which would replace the advice."""
        return not self.body.get("relaxations")

    def _nearest(self, root: str | None, lacks: str) -> bool:
        nearest = self.body["nearest"][0]
        tree = self.cloud.tree(self.cloud.provider(nearest["root"]["name"]))
        here = [p for p in self.near if p in tree or tree[0] in anchors(self.cloud, p)]
        absent = re.findall(r"there is no (\w+)", lacks, re.IGNORECASE)
        lacking = re.findall(r"the provider (\w+) has no (\w+)", lacks, re.IGNORECASE)
        entries = list(nearest["fails"])
        is_alone = len(self.roots) == 1
        if is_alone:
            entries += [each for group in self.body["groups"] for each in group["filters"]]
        free = {(each.get("best"), each.get("wanted")) for each in entries if each["code"] == "free"}
        named = re.findall(r"(\d+) of (\d+) \w+ (?:is|are) free", lacks)
        return (
            root in (None, nearest["root"]["name"])
            and not any(name in provider.inventories for name in absent for provider in here)
            and not any(name in self.cloud.provider(provider).inventories for provider, name in lacking)
            and {(int(best), int(wanted)) for best, wanted in named} <= free
            # The request would fit there if nothing were used.
            and not (is_alone and lacking)
        )
