"""POST /claims into placement groups (`docs/spec/extensions.md 5.2`)."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, text

from bench import large_cloud
from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.execution import request_stats
from placement_svc.domain.placement_groups import POLICIES
from placement_svc.domain.placing.ranked_order import RankedOrder
from placement_svc.domain.placing.tree_orders import Key, Rotation, TreeOrder
from placement_svc.domain.simulated_claims.amounts import ClaimAmounts, RootSuppliers, SimulatedInventories
from tests.conftest import Api, LoadCloud
from tests.support.claims_oracle import consumer
from tests.support.cloud import read, uuid_of
from tests.support.small_batches import small_batches

GROUP = uuid_of("group")
PATH = f"/placement_groups/{GROUP}"
RACKS = ["X", "Y"]
SERVER = "resources=DISK_GB:20&resources_1=VCPU:2"

TWO_BATCHES = 70
"""More than the 4 and 58 trees that a claim of three consumers reads if one of the first ones is excluded.

The first trees are random ones, and one of them may be in a rack that has a member.
"""

Call = Callable[..., Any]


@pytest.fixture
def group(call: Call) -> Callable[..., None]:
    """A function that creates the group, or replaces its policy."""

    def put(policy: str, across: Any = "root", **fields: Any) -> None:
        call("PUT", PATH, {"policy": policy, "across": across, **fields})

    return put


def body(*names: str, request: str = "resources=VCPU:1", **fields: Any) -> dict[str, Any]:
    """Return the body of a claim of new consumers into the group."""
    consumers = [consumer(uuid_of(name)) for name in names]
    return {"request": request, "consumers": consumers, "placement_group": GROUP, **fields}


def roots(response: Any) -> list[str]:
    """Return the names of the roots of a response, in the order of the consumers."""
    assert response.status_code == 200, response.json
    return [claim["root"]["name"] for claim in response.json["claims"]]


def error(response: Any) -> dict[str, Any]:
    [found] = response.json["errors"]
    return dict(found)


@pytest.mark.parametrize("generation", [None, 1])
@pytest.mark.parametrize(
    "request_keys", ["resources=VCPU:1", "resources=VCPU:9", "resources=CUSTOM_UNKNOWN:1"]
)
@pytest.mark.parametrize("exists", [False, True])
def test_a_dry_run_has_the_error_of_the_claim(
    api: Api,
    load_cloud: LoadCloud,
    group: Callable[..., None],
    generation: int | None,
    request_keys: str,
    exists: bool,
) -> None:
    load_cloud(read("h{VCPU8}"))
    if exists:
        group("anti-affinity")
    sent = body(request=request_keys) | {"consumers": [consumer(uuid_of("1"), generation)]}
    responses = [api("POST", "/claims", sent | {"dry_run": dry_run}) for dry_run in (True, False)]
    errors = [response.json.get("errors", [{}])[0] for response in responses]
    dry_run_error, claim_error = [(error.get("code"), error.get("detail")) for error in errors]
    assert dry_run_error == claim_error


def place(call: Call, name: str, supplier: str, generation: int | None = None) -> None:
    """Let a consumer have one VCPU of a provider, by a plain PUT."""
    sent = consumer(uuid_of(name), generation)
    del sent["uuid"]
    call(
        "PUT",
        f"/allocations/{uuid_of(name)}",
        {"allocations": {uuid_of(supplier): {"resources": {"VCPU": 1}}}, **sent},
    )


def member_uuids(call: Call) -> list[str]:
    return [member["consumer_uuid"] for member in call("GET", PATH)["members"]]


def test_anti_affinity_gives_each_member_a_root_of_its_own(
    api: Api, call: Call, load_cloud: LoadCloud, group: Call
) -> None:
    load_cloud(read("h1{VCPU8}; h2{VCPU8}; h3{VCPU8}"))
    group("anti-affinity")
    response = api("POST", "/claims", body("one", "two"))
    assert len(set(roots(response))) == 2
    assert response.json["violations"] == []
    assert set(roots(api("POST", "/claims", body("three")))) | set(roots(response)) == {"h1", "h2", "h3"}
    shown = call("GET", PATH)
    assert [member["consumer_uuid"] for member in shown["members"]] == sorted(
        map(uuid_of, ("one", "two", "three"))
    )
    assert shown["violations"] == []
    refused = api("POST", "/claims", body("four"))
    assert refused.status_code == 409
    assert error(refused)["code"] == "placement_svc.no_candidates"
    assert (error(refused)["placement_group"], error(refused)["placeable"]) == (GROUP, 0)
    assert call("GET", f"/allocations/{uuid_of('four')}")["allocations"] == {}


def test_a_refusal_that_is_not_due_to_the_group_does_not_name_it(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    load_cloud(read("h1{VCPU8}"))
    group("anti-affinity")
    refused = api("POST", "/claims", body("one", request="resources=VCPU:9"))
    assert refused.status_code == 409
    assert "placement_group" not in error(refused)


def test_max_per_domain_and_racks(api: Api, load_cloud: LoadCloud, group: Call) -> None:
    load_cloud(read("h1{VCPU8}@X; h2{VCPU8}@X; h3{VCPU8}@Y; h4{VCPU8}"))
    group("anti-affinity", [uuid_of(name) for name in RACKS], max_per_domain=2)
    placed = api("POST", "/claims", body("1", "2", "3", "4", "5", "6", min_count=1))
    assert sorted(name in ("h1", "h2") for name in roots(placed)) == [False, False, True, True]
    assert "h4" not in roots(placed)
    assert len(placed.json["unplaced"]) == 2


def test_affinity_takes_the_domain_that_has_room_for_all(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    load_cloud(read("h1{VCPU2}; h2{VCPU1}; h3{VCPU3}; h4{VCPU2}"))
    group("affinity")
    assert roots(api("POST", "/claims", body("1", "2", "3"))) == ["h3"] * 3
    refused = api("POST", "/claims", body("4"))
    assert (refused.status_code, error(refused)["placement_group"]) == (409, GROUP)


def test_affinity_takes_the_domain_that_has_room_for_most(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    load_cloud(read("h1{VCPU2}; h2{VCPU1}; h3{VCPU3}; h4{VCPU2}"))
    group("affinity")
    refused = api("POST", "/claims", body("1", "2", "3", "4", "5"))
    assert (refused.status_code, error(refused)["placeable"]) == (409, 3)
    refused = api("POST", "/claims", body("1", "2", "3", "4", "5", min_count=4))
    assert (refused.status_code, error(refused)["placement_group"]) == (409, GROUP)
    placed = api("POST", "/claims", body("1", "2", "3", "4", "5", min_count=3))
    assert roots(placed) == ["h3"] * 3
    assert placed.json["unplaced"] == [uuid_of("4"), uuid_of("5")]


def test_affinity_does_not_try_domains_that_cannot_take_more(
    api: Api, load_cloud: LoadCloud, group: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("; ".join(f"h{number}{{VCPU2,MEMORY_MB9}}" for number in range(30))))
    group("affinity")
    released = 0
    claim = SimulatedInventories.claim

    def counted(self: SimulatedInventories, amounts: ClaimAmounts, times: int) -> None:
        nonlocal released
        released += times < 0
        claim(self, amounts, times)

    monkeypatch.setattr(SimulatedInventories, "claim", counted)
    refused = api("POST", "/claims", body("1", "2", "3", request="resources=VCPU:1,MEMORY_MB:1"))
    assert (refused.status_code, error(refused)["placeable"]) == (409, 2)
    assert released == 2


@pytest.mark.parametrize(
    "order", ["", "&order_by=spread:VCPU", "&order_by=random", "&preferred=COMPUTE_NODE"]
)
def test_affinity_reads_few_trees_if_the_first_domain_has_room(
    call: Call, load_cloud: LoadCloud, group: Call, order: str
) -> None:
    load_cloud(
        read("; ".join(f"h{number}{{VCPU8}}#COMPUTE_NODE@{'WXYZ'[number % 4]}" for number in range(200)))
    )
    group("affinity", [uuid_of(name) for name in "WXYZ"])
    sent = body("1", "2", "3", request=f"resources=VCPU:2{order}", dry_run=True)
    assert len(call("POST", "/claims", sent)["claims"]) == 3
    assert request_stats.current().anchors < TWO_BATCHES


def test_affinity_releases_what_a_domain_without_room_has_used(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    """Both domains use the same pools; the first one by uuid has room for one consumer."""
    first, second = sorted(["g", "h"], key=uuid_of)
    load_cloud(read(f"{first}{{VCPU1}}@X,A; {second}{{VCPU3}}@Y,A; s1{{DISK_GB9}}$@A; s2{{DISK_GB8}}$@A"))
    group("affinity", [uuid_of(name) for name in RACKS])
    request = "resources=VCPU:1,DISK_GB:5&order_by=spread:DISK_GB"
    assert roots(api("POST", "/claims", body("1", "2", request=request, dry_run=True))) == [second] * 2
    placed = api("POST", "/claims", body("1", "2", "3", request=request.replace(":5", ":2")))
    pools = [set(claim["allocations"]) - {uuid_of(second)} for claim in placed.json["claims"]]
    assert pools == [{uuid_of("s1")}, {uuid_of("s2")}, {uuid_of("s1")}]


@pytest.mark.parametrize("reads_few", [True, False])
def test_affinity_reads_all_trees_of_a_domain_before_the_next(
    api: Api, load_cloud: LoadCloud, group: Call, reads_few: bool
) -> None:
    """The first domain has the best root and the worst one; the second has the roots between them."""
    load_cloud(read("h1{VCPU9}@X; h2{VCPU8}@Y; h3{VCPU7}@Y; h4{VCPU4}@Y; h5{VCPU4}@X"))
    group("affinity", [uuid_of(name) for name in RACKS])
    request = "resources=VCPU:4&order_by=spread:VCPU"
    with small_batches() if reads_few else nullcontext():
        all_in_first = api("POST", "/claims", body("1", "2", "3", request=request, dry_run=True))
        in_second = api("POST", "/claims", body("1", "2", "3", "4", request=request, dry_run=True))
    assert roots(all_in_first) == ["h1", "h1", "h5"]
    assert roots(in_second) == ["h2", "h3", "h2", "h4"]


@pytest.mark.parametrize(("order", "host"), [("pack", "h1"), ("spread", "h2")])
def test_affinity_tries_domains_in_the_order_of_the_request(
    api: Api, load_cloud: LoadCloud, group: Call, order: str, host: str
) -> None:
    load_cloud(read("h1{VCPU4}; h2{VCPU6}; h3{VCPU2}; h4{VCPU5}"))
    group("affinity")
    request = f"resources=VCPU:1&order_by={order}:VCPU"
    assert roots(api("POST", "/claims", body("1", "2", "3", request=request))) == [host] * 3


def test_a_soft_policy_comes_before_the_order_of_the_request(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    load_cloud(read("h1{VCPU4}@X; h2{VCPU6}@X; h3{VCPU9}@Y"))
    group("soft-anti-affinity", [uuid_of(name) for name in RACKS])
    request = "resources=VCPU:1&order_by=pack:VCPU"
    placed = api("POST", "/claims", body("1", "2", "3", request=request))
    assert roots(placed) == ["h1", "h3", "h1"]
    assert placed.json["violations"] == [uuid_of("3")]


@pytest.mark.parametrize("policy", ["affinity", "anti-affinity"])
def test_candidates_without_preferred_traits_keep_a_policy(
    api: Api, load_cloud: LoadCloud, group: Call, policy: str
) -> None:
    load_cloud(read("s1{VCPU8}$@X; s2{VCPU8}$#STORAGE_DISK_SSD@X"))
    group(policy)
    member, other = ("s1", "s1") if policy == "affinity" else ("s2", "s1")
    first = body("1", request=f"resources=VCPU:1&in_tree={uuid_of(member)}")
    assert roots(api("POST", "/claims", first)) == [member]
    second = body("2", request="resources=VCPU:1&preferred=STORAGE_DISK_SSD")
    assert roots(api("POST", "/claims", second)) == [other]


def test_soft_affinity_regards_sharing_providers_of_other_trees(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    """The third consumer finds 19 MB on two providers; one alone is the candidate around the first root."""
    first, second, child = sorted(["g", "h", "i"], key=uuid_of)
    both = "{MEMORY_MB20, VGPU20}$@X,Y"
    load_cloud(read(f"{first}{{VGPU2}}@Y; {second}{{MEMORY_MB20}}@X; {child}<{second}{both}"))
    group("soft-affinity")
    request = "resources=VGPU:2&resources_B=MEMORY_MB:1&order_by=spread:MEMORY_MB"
    placed = api("POST", "/claims", body("1", "2", "3", "4", request=request))
    assert roots(placed) == [first, second, second, second]
    suppliers = [set(claim["allocations"]) for claim in placed.json["claims"]]
    pair = {uuid_of(second), uuid_of(child)}
    assert suppliers[1:] == [pair, {uuid_of(child)}, pair]


def test_a_soft_policy_that_leaves_too_few_candidates_is_named(
    api: Api, load_cloud: LoadCloud, group: Call
) -> None:
    """The member draws a consumer to its host, where the order takes the disk that the other host needs."""
    first, second = sorted(["g", "h"], key=uuid_of)
    load_cloud(read(f"{first}{{VCPU1}}@X; {second}{{VCPU2, DISK_GB2}}@X; i{{DISK_GB3}}$@X"))
    group("soft-affinity")
    member = api("POST", "/claims", body("1", request=f"resources=VCPU:1&in_tree={uuid_of(second)}"))
    assert roots(member) == [second]
    request = "resources=VCPU:1,DISK_GB:2&order_by=spread:DISK_GB"
    refused = api("POST", "/claims", body("2", "3", request=request))
    assert refused.status_code == 409
    assert (error(refused)["placement_group"], error(refused)["placeable"]) == (GROUP, 1)
    reason = f" Without the soft-affinity of placement group {GROUP}, there are enough.  "
    assert error(refused)["detail"].endswith(reason)
    without_group = body("2", "3", request=request)
    del without_group["placement_group"]
    both = api("POST", "/claims", without_group)
    assert sorted(roots(both)) == sorted([first, second])


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    """All candidates that a claim generates, in any order of trees."""
    found: list[Candidate] = []

    def recorded(method: Any) -> Any:
        def candidates(order: TreeOrder, root: RootSuppliers) -> Iterator[tuple[Key, Candidate]]:
            for key, candidate in method(order, root):
                found.append(candidate)
                yield key, candidate

        return candidates

    for order in (Rotation, RankedOrder):
        monkeypatch.setattr(order, "candidates", recorded(order.candidates))
    return found


@pytest.mark.parametrize("order", ["", "&order_by=spread:DISK_GB"])
@pytest.mark.parametrize("policy", POLICIES)
def test_few_combinations_of_pools_are_tried(
    api: Api, load_cloud: LoadCloud, group: Call, generated: list[Candidate], policy: str, order: str
) -> None:
    """Around each of the seven roots, the four groups have 6 ** 4 candidates."""
    load_cloud(read("; ".join(["h{VCPU8}@X", *(f"s{number}{{DISK_GB9}}$@X" for number in range(6))])))
    group(policy)
    groups = "&".join(f"resources{number}=DISK_GB:1" for number in range(4))
    placed = api("POST", "/claims", body("1", "2", request=groups + order))
    first, second = (set(claim["allocations"]) for claim in placed.json["claims"])
    if policy.endswith("anti-affinity"):
        assert first.isdisjoint(second)
    else:
        assert (first, len(first)) == (second, 1)
    assert len(generated) < 50


@pytest.mark.parametrize("order", ["", "&order_by=spread:DISK_GB"])
def test_pools_of_excluded_roots_are_not_combined(
    api: Api, load_cloud: LoadCloud, group: Call, generated: list[Candidate], order: str
) -> None:
    """The members of the group leave only the host, whose disk shares with nobody."""
    pools = [f"s{number}" for number in range(6)]
    load_cloud(read("; ".join(["h{DISK_GB4}@X", *(f"{name}{{DISK_GB9}}$@X" for name in pools)])))
    group("anti-affinity")
    for name in pools:
        request = f"resources=DISK_GB:1&in_tree={uuid_of(name)}"
        assert roots(api("POST", "/claims", body(f"in {name}", request=request))) == [name]
    generated.clear()
    groups = "&".join(f"resources{number}=DISK_GB:1" for number in range(4))
    assert roots(api("POST", "/claims", body("1", request=groups + order))) == ["h"]
    assert len(generated) < 50


@pytest.mark.parametrize("policy", ["affinity", "soft-affinity"])
def test_affinity_prefers_the_domain_of_the_best_pools(
    api: Api, load_cloud: LoadCloud, group: Call, policy: str
) -> None:
    """In each domain, some disk pool has each of the preferred traits, but only in Y one pool has both."""
    load_cloud(
        read(
            "h{VCPU8}@A,B;"
            " x1@X; s1<x1{DISK_GB9}$#COMPUTE_NODE@A; x2@X; s2<x2{DISK_GB9}$#STORAGE_DISK_SSD@A;"
            " x3@X; g1<x3{VGPU9}$@B;"
            " y1@Y; s3<y1{DISK_GB9}$#COMPUTE_NODE,STORAGE_DISK_SSD@A; y2@Y; g2<y2{VGPU9}$@B;"
            " z1@Z; s4<z1{DISK_GB9}$#COMPUTE_NODE@A; s5<z1{DISK_GB9}$#STORAGE_DISK_SSD@A; z2@Z;"
            " g3<z2{VGPU9}$@B"
        )
    )
    group(policy, [uuid_of(name) for name in "XYZ"])
    request = "resources=DISK_GB:1&resources_G=VGPU:1&preferred=COMPUTE_NODE,STORAGE_DISK_SSD"
    for _ in range(10):  # The order of the suppliers is random.
        placed = api("POST", "/claims", body("1", request=request, dry_run=True)).json
        assert set(placed["claims"][0]["allocations"]) == {uuid_of("s3"), uuid_of("g2")}


def test_soft_affinity_reports_who_is_apart(api: Api, load_cloud: LoadCloud, group: Call, call: Call) -> None:
    load_cloud(read("h1{VCPU3}; h2{VCPU3}"))
    group("soft-affinity")
    placed = api("POST", "/claims", body("1", "2", "3", "4", "5"))
    first, other = roots(placed)[0], roots(placed)[-1]
    assert roots(placed) == [first] * 3 + [other] * 2
    assert placed.json["violations"] == [uuid_of("4"), uuid_of("5")]
    assert call("GET", PATH)["violations"] == sorted([uuid_of("4"), uuid_of("5")])


def test_soft_anti_affinity_fills_domains_evenly(api: Api, load_cloud: LoadCloud, group: Call) -> None:
    load_cloud(read("h1{VCPU9}@X; h2{VCPU1}@Y; h3{VCPU9}"))
    group("soft-anti-affinity", [uuid_of(name) for name in RACKS])
    placed = api("POST", "/claims", body("1", "2", "3", "4"))
    assert set(roots(placed)[:2]) == {"h1", "h2"}
    assert roots(placed)[2:] == ["h1"] * 2
    assert placed.json["violations"] == [uuid_of("3"), uuid_of("4")]
    placed = api("POST", "/claims", body("5", request="resources=VCPU:8"))
    assert (roots(placed), placed.json["violations"]) == (["h3"], [uuid_of("5")])


@pytest.mark.parametrize("order_by", ["pack:VCPU", "spread:VCPU"])
def test_soft_anti_affinity_prefers_empty_domains_among_those_that_keep_it(
    api: Api, load_cloud: LoadCloud, group: Call, order_by: str
) -> None:
    load_cloud(read("h1{VCPU9}; h2{VCPU8}; h3{VCPU7}"))
    group("soft-anti-affinity", max_per_domain=3)
    placed = api("POST", "/claims", body(*"123456", request=f"resources=VCPU:1&order_by={order_by}"))
    assert [sorted(roots(placed)[start : start + 3]) for start in (0, 3)] == [["h1", "h2", "h3"]] * 2
    assert placed.json["violations"] == []


@pytest.mark.parametrize("order", ["", "&order_by=spread:VCPU", "&order_by=random"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.usefixtures("clean_database")
def test_few_trees_are_read_in_a_large_cloud(call: Call, engine: Engine, policy: str, order: str) -> None:
    """Also if the group has members that others join."""
    large_cloud.fill(engine, 1_000)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE consumers ALTER COLUMN id RESTART WITH 1000000"))
        racks = list(connection.scalars(text("SELECT uuid FROM aggregates ORDER BY id LIMIT 40")))
    for number, across in enumerate(["root", racks]):
        path = f"/placement_groups/{uuid_of(f'group {number}')}"
        call("PUT", path, {"policy": policy, "across": across})
        for names in (["a"], ["b"], ["c", "d", "e"]):
            sent = body(*(f"{name}{number}" for name in names), request=f"{SERVER}{order}")
            call("POST", "/claims", {**sent, "placement_group": uuid_of(f"group {number}")})
            # With affinity, the roots of a rack are few, and none of them may come first.
            if across == "root" or "anti" in policy:
                assert request_stats.current().anchors < TWO_BATCHES
        assert call("GET", path)["violations"] == []


def test_an_unknown_group_is_refused(api: Api, load_cloud: LoadCloud) -> None:
    load_cloud(read("h1{VCPU8}"))
    for dry_run in (False, True):
        refused = api("POST", "/claims", body("one", dry_run=dry_run))
        assert refused.status_code == 400
        assert error(refused)["code"] == "placement_svc.placement_group.not_found"
    assert api("POST", "/claims", {**body("one"), "placement_group": "x"}).status_code == 400


def test_a_group_is_named_in_any_spelling(api: Api, load_cloud: LoadCloud, group: Call, call: Call) -> None:
    load_cloud(read("h1{VCPU8}"))
    group("anti-affinity")
    assert roots(api("POST", "/claims", {**body("one"), "placement_group": f"{{{GROUP.upper()}}}"})) == ["h1"]
    assert member_uuids(call) == [uuid_of("one")]


def test_a_dry_run_changes_no_membership(api: Api, load_cloud: LoadCloud, group: Call, call: Call) -> None:
    load_cloud(read("h1{VCPU8}; h2{VCPU8}"))
    group("anti-affinity")
    for _ in range(2):
        assert len(set(roots(api("POST", "/claims", body("one", "two", dry_run=True))))) == 2
    assert member_uuids(call) == []
    refused = api("POST", "/claims", body("one", "two", "three", dry_run=True))
    assert (refused.status_code, error(refused)["placement_group"]) == (409, GROUP)


def test_a_dry_run_waits_for_no_lock(api: Api, load_cloud: LoadCloud, group: Call, engine: Engine) -> None:
    load_cloud(read("h1{VCPU8}"))
    group("anti-affinity")
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT FROM placement_groups FOR UPDATE")
        assert roots(api("POST", "/claims", body("one", dry_run=True))) == ["h1"]


def test_members_that_are_moved_leave_their_places(
    api: Api, load_cloud: LoadCloud, group: Call, call: Call
) -> None:
    load_cloud(read("h1{VCPU1}; h2{VCPU1}"))
    group("anti-affinity")
    assert set(roots(api("POST", "/claims", body("one", "two")))) == {"h1", "h2"}
    moved = body("two", "one")
    for each in moved["consumers"]:
        each["consumer_generation"] = 1
    assert set(roots(api("POST", "/claims", moved))) == {"h1", "h2"}
    assert call("GET", PATH)["violations"] == []


def test_a_consumer_changes_its_group(api: Api, load_cloud: LoadCloud, group: Call, call: Call) -> None:
    load_cloud(read("h1{VCPU8}"))
    group("affinity")
    other = uuid_of("other group")
    call("PUT", f"/placement_groups/{other}", {"policy": "anti-affinity"})
    assert roots(api("POST", "/claims", body("one"))) == ["h1"]
    sent = {**body(), "consumers": [consumer(uuid_of("one"), 1)], "placement_group": other}
    assert roots(api("POST", "/claims", sent)) == ["h1"]
    assert member_uuids(call) == []
    assert [each["consumer_uuid"] for each in call("GET", f"/placement_groups/{other}")["members"]] == [
        uuid_of("one")
    ]


def test_other_writes_keep_the_membership_and_do_not_check_it(
    api: Api, load_cloud: LoadCloud, group: Call, call: Call
) -> None:
    load_cloud(read("h1{VCPU8}; h2{VCPU8 res7 used1}"))
    group("anti-affinity")
    assert roots(api("POST", "/claims", body("one"))) == ["h1"]
    without_group = body("two")
    del without_group["placement_group"]
    placed = api("POST", "/claims", without_group)
    assert roots(placed) == ["h1"]
    assert "violations" not in placed.json
    assert member_uuids(call) == [uuid_of("one")]
    place(call, "one", "h1", 1)
    assert member_uuids(call) == [uuid_of("one")]


def test_refusals_are_counted_by_policy(app: Any, api: Api, load_cloud: LoadCloud, group: Call) -> None:
    def refusals() -> float:
        name = 'placement_group_refusals_total{policy="anti-affinity"} '
        [line] = [
            line for line in app.test_client().get("/metrics").text.splitlines() if line.startswith(name)
        ]
        return float(line.removeprefix(name))

    load_cloud(read("h1{VCPU8}"))
    group("anti-affinity")
    before = refusals()
    api("POST", "/claims", body("one", "two")).close()
    assert refusals() == before + 1
    api("POST", "/claims", body("one", request="resources=VCPU:99")).close()
    assert refusals() == before + 1
