"""Placement groups, claims into them and plain writes of their members in any order, compared with a model.

`pytest --hypothesis-profile=deep` runs it for longer.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from placement_svc.domain.placement_groups import HARD_POLICIES, POLICIES
from tests.conftest import Api, LoadCloud, examples
from tests.support import placement_group_oracle as oracle
from tests.support.claims_oracle import consumer
from tests.support.cloud import Cloud, read, uuid_of

SETTINGS = settings(
    max_examples=examples(10),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

CLOUD = read("h1{VCPU2}@A; h2{VCPU3}@A; h3{VCPU2}@B; n3<h3{VCPU1}; h4{VCPU2}")
HOSTS = ("h1", "h2", "h3", "h4")
GROUPS = ("first", "second")
CONSUMERS = tuple(f"consumer {number}" for number in range(6))
RACKS = ("A", "B", "C")

groups = st.sampled_from(GROUPS)
policies = st.sampled_from([*HARD_POLICIES * 2, *POLICIES])
domains = st.sampled_from(["root", "root", ["A", "B"], ["B", "A"], ["A", "C"], ["C"]])
consumers = st.sampled_from(CONSUMERS)

Domains = frozenset[str | None]


class Model:
    """Groups, the allocations and generations of consumers, and their memberships; all by name."""

    def __init__(self, cloud: Cloud) -> None:
        self.providers = {
            each.name: {
                "root": cloud.root(each).name,
                "traits": each.traits,
                "aggregates": set(each.aggregates),
            }
            for each in cloud.providers
        }
        self.capacities = {each.name: each.inventories["VCPU"].total for each in cloud.providers}
        self.groups: dict[str, dict[str, Any]] = {}
        self.allocations: dict[str, tuple[str, int]] = {}
        self.generations: dict[str, int] = {}
        self.group_of: dict[str, str] = {}

    def free(self, without: Sequence[str] = ()) -> Counter[str]:
        """Return the free amounts of the providers, without the allocations of some consumers."""
        free = Counter(self.capacities)
        for name, (provider, amount) in self.allocations.items():
            if name not in without:
                free[provider] -= amount
        return free

    def members(self, group: str) -> list[str]:
        return sorted((name for name in self.group_of if self.group_of[name] == group), key=uuid_of)

    def domains(self, group: str, provider: str) -> Domains:
        """Return the domains of a consumer with an allocation from this provider."""
        roots = oracle.roots([provider], self.providers)
        return frozenset(oracle.domain(self.groups[group], root, self.providers) for root in roots)

    def others(self, group: str, own: Sequence[str]) -> list[Domains]:
        """Return the domains of the members that are not among these consumers."""
        return [
            self.domains(group, self.allocations[name][0]) for name in self.members(group) if name not in own
        ]

    def violations(self, group: str) -> list[str]:
        domains = {name: self.domains(group, self.allocations[name][0]) for name in self.members(group)}
        return oracle.violations(self.groups[group], {uuid_of(name): mine for name, mine in domains.items()})

    def placeable(self, names: Sequence[str], amount: int, group: str | None) -> int:
        """Return how many of these consumers can be placed, whatever candidates the first ones get.

        All ask for the same amount of one provider, so the number that each domain takes does not depend on
        the order.
        """
        slots = {name: free // amount for name, free in self.free(names).items()}
        if group is None or self.groups[group]["policy"].startswith("soft-"):
            return min(len(names), sum(slots.values()))
        by_domain: Counter[str] = Counter()
        for provider, number in slots.items():
            [domain] = self.domains(group, provider)
            if domain is not None:
                by_domain[domain] += number
        others = self.others(group, names)
        counts = Counter(domain for mine in others for domain in mine if domain is not None)
        if self.groups[group]["policy"] == "affinity":
            most = max(counts.values(), default=0)
            return min(len(names), max((n for key, n in by_domain.items() if counts[key] == most), default=0))
        limit = self.groups[group]["max_per_domain"]
        return min(len(names), sum(min(n, max(0, limit - counts[key])) for key, n in by_domain.items()))

    def store(self, name: str, provider: str, amount: int) -> None:
        self.allocations[name] = provider, amount
        self.generations[name] = self.generations.get(name, 0) + 1

    def delete(self, name: str) -> None:
        for stored in (self.allocations, self.generations, self.group_of):
            stored.pop(name, None)  # type: ignore[attr-defined]


def test_groups_and_writes_in_any_order(
    api: Api, clean_database: Callable[[], None], load_cloud: LoadCloud
) -> None:
    def machine() -> Groups:
        clean_database()
        load_cloud(CLOUD)
        return Groups(api)

    run_state_machine_as_test(machine, settings=SETTINGS)


class Groups(RuleBasedStateMachine):
    """Sends writes, and compares the responses and the groups with the model."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self.api = api
        self.model = Model(CLOUD)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        response = self.api(method, path, body)
        note(f"{method} {path} {body} -> {response.status_code} {response.get_data(as_text=True)}")
        return response

    def error(self, response: Any) -> tuple[int, str]:
        """Return the status and the code of an error."""
        return response.status_code, response.json["errors"][0]["code"]

    def shown(self, name: str) -> dict[str, Any]:
        """Return a group as the service must show it."""
        group = self.model.groups[name]
        across = group["across"]
        return {
            "uuid": uuid_of(name),
            **group,
            "across": across if across == "root" else [uuid_of(rack) for rack in across],
            "members": [
                {
                    "consumer_uuid": uuid_of(member),
                    "roots": [uuid_of(self.model.providers[self.model.allocations[member][0]]["root"])],
                }
                for member in self.model.members(name)
            ],
            "violations": self.model.violations(name),
        }

    @invariant()
    def groups_are_those_of_the_model(self) -> None:
        for name in GROUPS:
            response = self.api("GET", f"/placement_groups/{uuid_of(name)}")
            if name in self.model.groups:
                assert response.json == self.shown(name)
            else:
                assert response.status_code == 404
        listed = self.api("GET", "/placement_groups").json["placement_groups"]
        assert {each["uuid"]: each["member_count"] for each in listed} == {
            uuid_of(name): len(self.model.members(name)) for name in self.model.groups
        }

    # Groups and domains

    @initialize()
    def create_groups(self) -> None:
        for name, policy in zip(GROUPS, HARD_POLICIES, strict=True):
            self.put_group(name, policy, 1, "root")

    @rule(
        name=groups,
        policy=policies,
        most=st.integers(1, 2),
        across=domains,
    )
    def put_group(self, name: str, policy: str, most: int, across: Any) -> None:
        is_anti_affinity = policy.endswith("anti-affinity")
        stored = {"policy": policy, "max_per_domain": most if is_anti_affinity else None, "across": across}
        sent = {key: value for key, value in stored.items() if value is not None}
        if across != "root":
            sent["across"] = [uuid_of(rack) for rack in across]
        status = 200 if name in self.model.groups else 201
        self.model.groups[name] = stored
        response = self.send("PUT", f"/placement_groups/{uuid_of(name)}", sent)
        assert (response.status_code, response.json) == (status, self.shown(name))

    @rule(name=groups)
    def delete_group(self, name: str) -> None:
        response = self.send("DELETE", f"/placement_groups/{uuid_of(name)}")
        if name not in self.model.groups:
            assert response.status_code == 404
        elif self.model.members(name):
            assert self.error(response) == (409, "placement_svc.placement_group.inuse")
        else:
            assert response.status_code == 204
            del self.model.groups[name]

    @rule(host=st.sampled_from(HOSTS), racks=st.sets(st.sampled_from(RACKS)))
    def change_racks(self, host: str, racks: set[str]) -> None:
        path = f"/resource_providers/{uuid_of(host)}"
        generation = self.api("GET", path).json["generation"]
        body = {"aggregates": sorted(map(uuid_of, racks)), "resource_provider_generation": generation}
        assert self.send("PUT", f"{path}/aggregates", body).status_code == 200
        self.model.providers[host]["aggregates"] = racks

    # Claims

    @rule(
        names=st.lists(consumers, min_size=1, max_size=4, unique=True),
        amount=st.sampled_from([1, 1, 2]),
        group=st.sampled_from([*GROUPS, *GROUPS, None]),
        is_outdated=st.sampled_from([False] * 9 + [True]),
        fewer=st.integers(0, 2),
        dry_run=st.sampled_from([False, False, False, True]),
        order=st.sampled_from(["", "&order_by=spread:VCPU", *["&order_by=pack:VCPU"] * 2]),
    )
    def place(
        self,
        *,
        names: list[str],
        amount: int,
        group: str | None,
        is_outdated: bool,
        fewer: int,
        dry_run: bool,
        order: str,
    ) -> None:
        sent = [consumer(uuid_of(name), self.model.generations.get(name)) for name in names]
        is_new = self.model.generations.keys().isdisjoint(names)
        min_count = max(1, len(names) - fewer) if is_new else len(names)
        if is_outdated:
            sent[-1]["consumer_generation"] = (sent[-1]["consumer_generation"] or 0) + 5
            min_count = len(names)
        body = {"request": f"resources=VCPU:{amount}{order}", "consumers": sent, "min_count": min_count}
        body |= {"dry_run": dry_run} | ({"placement_group": uuid_of(group)} if group else {})
        response = self.send("POST", "/claims", body)
        possible = {(409, "placement.concurrent_update")} if is_outdated else set()
        if group is not None and group not in self.model.groups:
            possible.add((400, "placement_svc.placement_group.not_found"))
        if possible:
            assert self.error(response) in possible
            return
        placeable = self.model.placeable(names, amount, group)
        if placeable < min_count:
            assert self.error(response) == (409, "placement_svc.no_candidates")
            [error] = response.json["errors"]
            assert error["placeable"] == placeable
            would_fit = self.model.placeable(names, amount, None) >= min_count
            assert ("placement_group" in error) == (group is not None and would_fit)
            return
        assert response.status_code == 200
        self.check_placements(names, amount, group, response.json, placeable)
        if not dry_run:
            self.store(names, amount, group, response.json["claims"])

    def check_placements(
        self, names: list[str], amount: int, group: str | None, body: Any, placeable: int
    ) -> None:
        """Check that each consumer has a free candidate, the best one that the policy allows."""
        assert [claim["consumer_uuid"] for claim in body["claims"]] == [
            uuid_of(name) for name in names[:placeable]
        ]
        assert body["unplaced"] == [uuid_of(name) for name in names[placeable:]]
        free = self.model.free(names)
        others = self.model.others(group, names) if group else []
        against = []
        for name, claim in zip(names, body["claims"], strict=False):
            assert claim["consumer_generation"] == self.model.generations.get(name, 0) + 1
            chosen = self.supplier(claim, amount)
            assert free[chosen] >= amount
            if group is not None:
                policy = self.model.groups[group]
                mine = self.model.domains(group, chosen)
                if policy["policy"].startswith("soft-"):
                    fitting = [each for each in free if free[each] >= amount]
                    ranks = [oracle.rank(policy, others, self.model.domains(group, each)) for each in fitting]
                    assert oracle.rank(policy, others, mine) == min(ranks)
                    against += [] if oracle.keeps(policy, others, mine) else [uuid_of(name)]
                else:
                    assert oracle.keeps(policy, others, mine)
                others.append(mine)
            free[chosen] -= amount
        assert body.get("violations") == (None if group is None else against)

    def supplier(self, claim: Any, amount: int) -> str:
        """Return the name of the provider that supplies a consumer."""
        [(provider, supplied)] = claim["allocations"].items()
        assert supplied == {"resources": {"VCPU": amount}}
        [name] = [name for name in self.model.providers if uuid_of(name) == provider]
        return name

    def store(self, names: list[str], amount: int, group: str | None, claims: Sequence[Any]) -> None:
        for name, claim in zip(names, claims, strict=False):
            self.model.store(name, self.supplier(claim, amount), amount)
            if group is not None:
                self.model.group_of[name] = group

    # Plain writes

    @rule(name=consumers, provider=st.sampled_from([each.name for each in CLOUD.providers]))
    def put_allocations(self, name: str, provider: str) -> None:
        body = consumer(uuid_of(name), self.model.generations.get(name))
        del body["uuid"]
        body["allocations"] = {uuid_of(provider): {"resources": {"VCPU": 1}}}
        response = self.send("PUT", f"/allocations/{uuid_of(name)}", body)
        if self.model.free([name])[provider]:
            assert response.status_code == 204
            self.model.store(name, provider, 1)
        else:
            assert response.status_code == 409

    @rule(name=consumers)
    def delete_allocations(self, name: str) -> None:
        response = self.send("DELETE", f"/allocations/{uuid_of(name)}")
        assert response.status_code == (204 if name in self.model.allocations else 404)
        self.model.delete(name)
