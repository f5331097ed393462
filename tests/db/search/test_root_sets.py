"""A scan examines only roots that all filters allow, whatever part of the cloud each of them allows."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import os_traits
import pytest
from sqlalchemy import Engine

from placement_svc.db.search import anchors, batches, candidates, root_sets
from placement_svc.db.search.batches import BatchPlan, BatchPlanner, SearchState
from placement_svc.db.search.name_lookup import SAMPLED_HOLDERS, NamesLookup
from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.support.cloud import read, uuid_of
from tests.support.statements import analyze, row_counts, sent_statements
from tests.support.versions import EXTENDED

HOSTS = 40
LIMIT = 3

FIRST_HALF, SECOND_HALF = "HW_CPU_X86_AVX", "HW_CPU_X86_AVX2"
"""Traits of the children of the hosts in the aggregate X, and in Y."""
NOT_LAST, ROOT_NOT_LAST = "HW_CPU_X86_SSE", "HW_CPU_X86_MMX"
"""Traits of all children, and of all hosts, but the last one."""

X, Y, UNUSED = map(uuid_of, ("X", "Y", "Z"))

FILTERS = {
    "": (LIMIT, LIMIT),
    f"member_of={Y}": (LIMIT, LIMIT),
    f"member_of=in:{Y},{UNUSED}": (LIMIT, LIMIT),
    f"member_of=!{X}": (LIMIT, LIMIT),
    f"root_member_of=!{X}": (LIMIT, LIMIT),
    f"required_C={SECOND_HALF}": (LIMIT, LIMIT),
    f"required_C=in:{SECOND_HALF},HW_CPU_X86_SSE2": (LIMIT, LIMIT),
    f"required_C=!{FIRST_HALF}": (LIMIT, LIMIT),
    f"required_C=!{NOT_LAST}": (1, 1),
    f"required=!{ROOT_NOT_LAST}": (1, 1),
    f"root_required=!{ROOT_NOT_LAST}": (1, 1),
    f"root_required={ROOT_NOT_LAST}&required_C=!{NOT_LAST}": (0, 0),
    f"member_of={X}&member_of={Y}": (0, 0),
    f"member_of={Y}&required_C={FIRST_HALF}": (0, 0),
    f"member_of=in:{Y},{UNUSED}&required_C={FIRST_HALF}": (0, 0),
    f"member_of=!{X}&required_C={FIRST_HALF}": (0, 0),
    f"member_of=!{X}&required_C=!{SECOND_HALF}": (0, 0),
    f"required_C={FIRST_HALF},{SECOND_HALF}": (0, 0),
    f"required_C={FIRST_HALF}&required_C=in:{SECOND_HALF},HW_CPU_X86_SSE2": (0, 0),
    f"required_C={NOT_LAST}&required_C=!{FIRST_HALF},!{SECOND_HALF}": (0, 0),
}
"""The filters of requests, how many candidates they find, and how many roots they examine."""


def _host(number: int) -> str:
    aggregate, half = ("X", FIRST_HALF) if number < HOSTS // 2 else ("Y", SECOND_HALF)
    is_last = number == HOSTS - 1
    root_traits = "" if is_last else f"#{ROOT_NOT_LAST}"
    child_traits = half if is_last else f"{half},{NOT_LAST}"
    return f"h{number}{{DISK_GB8}}{root_traits}@{aggregate}; c{number}<h{number}{{VCPU8}}#{child_traits}"


@pytest.fixture
def large_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set of providers counts as small, and no amount as rare."""
    for name in (
        "is_small_trait_set",
        "is_small_aggregate_set",
        "is_sufficient_trait_set",
        "is_sufficient_aggregate_set",
    ):
        monkeypatch.setattr(NamesLookup, name, _never)
    monkeypatch.setattr("placement_svc.db.search.criteria_builder.RARITY_THRESHOLD", 0)


@pytest.fixture
def merging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the server is taken for one that reads ordered sets side by side: the parameter."""
    merges_sets: bool = request.param
    _take_for_server(monkeypatch, merges_sets=merges_sets)
    return merges_sets


@pytest.fixture
def merges_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is taken for one that reads ordered sets side by side: PostgreSQL 18."""
    _take_for_server(monkeypatch, merges_sets=True)


def _take_for_server(patch: pytest.MonkeyPatch, *, merges_sets: bool) -> None:
    for module in (anchors, batches):
        patch.setattr(module, "merges_sets", lambda _: merges_sets)


@pytest.fixture
def two_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch scans one root more than the limit; if none is an anchor, the second scans all."""
    next_batch = BatchPlanner.next

    def with_root_count(planner: BatchPlanner, state: SearchState) -> BatchPlan | None:
        return next_batch(replace(planner, root_count=HOSTS), state)

    monkeypatch.setattr(BatchPlanner, "next", with_root_count)
    monkeypatch.setattr(batches, "FIRST_SCAN", (1, 1))
    monkeypatch.setattr(batches, "MAX_SCAN_WITHOUT_ANCHORS", 1)


both_servers = pytest.mark.parametrize(
    "merging", [True, False], ids=["PostgreSQL 18", "older"], indirect=True
)


@pytest.mark.usefixtures("large_sets")
@both_servers
def test_roots_that_a_filter_excludes_are_not_examined(
    api: Api,
    load_cloud: LoadCloud,
    caplog: pytest.LogCaptureFixture,
    subtests: pytest.Subtests,
    merging: bool,
) -> None:
    load_cloud(read("; ".join(map(_host, range(HOSTS)))))
    caplog.set_level(logging.DEBUG, candidates.log.name)
    for filters, (found, scanned) in FILTERS.items():
        with subtests.test(filters):
            caplog.clear()
            query = f"resources=DISK_GB:1&resources_C=VCPU:1&limit={LIMIT}&{filters}"
            response = api("GET", f"/allocation_candidates?{query}".rstrip("&"), version=EXTENDED)
            assert len(response.json["allocation_requests"]) == found
            [record] = [each for each in caplog.records if "roots scanned" in each.msg]
            # An older server would read the whole sets of traits: it examines the roots instead.
            uses_all_sets = merging or "required" not in filters
            assert record.args[-1] == scanned if uses_all_sets else record.args[-1] >= scanned


OPPOSED = {
    "the hosts with a trait are full": (
        "a%{VCPU8 used8}#HW_CPU_X86_AVX; b%{VCPU8}",
        "resources=VCPU:1&required=HW_CPU_X86_AVX",
    ),
    "no host has both amounts": (
        "a%{VCPU8 used8 DISK_GB8}; b%{VCPU8 DISK_GB8 res8}",
        "resources=VCPU:1,DISK_GB:1",
    ),
    "no inventory gives as much at once": ("a%{VCPU8 max2}; b%{VCPU8 res6}", "resources=VCPU:4"),
    "the children with a trait are full": (
        "a%; x%<a%{VCPU8 used8}#HW_CPU_X86_AVX; y%<a%{VCPU8}",
        "resources_C=VCPU:1&required_C=HW_CPU_X86_AVX",
    ),
    "no child has both amounts": (
        "a%; x%<a%{VCPU8 used8 DISK_GB8}; y%<a%{VCPU8 DISK_GB8 used8}",
        "resources_C=VCPU:1,DISK_GB:1",
    ),
    "neither own nor shared disks": ("h%{VCPU8 DISK_GB1}; s%{DISK_GB8}$@P", "resources=VCPU:1,DISK_GB:5"),
    "no child gives a part": ("a%; x%<a%{VCPU8 used8}; y%<a%{VCPU8 res8}", "resources=VCPU:4&can_split=VCPU"),
}
"""Hosts of which a cloud has many copies, with a number for each %, and a request that none can satisfy."""


@pytest.mark.usefixtures("large_sets", "two_scans")
@both_servers
@pytest.mark.parametrize(("hosts", "query"), OPPOSED.values(), ids=OPPOSED)
def test_second_scan_examines_only_roots_with_the_amounts(
    api: Api,
    load_cloud: LoadCloud,
    caplog: pytest.LogCaptureFixture,
    merging: bool,
    hosts: str,
    query: str,
) -> None:
    load_cloud(read("; ".join(hosts.replace("%", str(number)) for number in range(HOSTS))))
    caplog.set_level(logging.DEBUG, candidates.log.name)
    response = api("GET", f"/allocation_candidates?{query}&limit={LIMIT}", version=EXTENDED)
    assert response.json["allocation_requests"] == []
    first, second, *_ = [each for each in caplog.records if "roots scanned" in each.msg]
    assert first.args[-1] == LIMIT + 1
    assert second.args[-1] == LIMIT + 1 if merging else second.args[-1] >= HOSTS
    assert ("with the amounts" in second.getMessage()) == merging


def test_members_of_a_forbidden_aggregate_are_not_read_for_each_tree(
    new_app: NewApp, load_cloud: LoadCloud, engine: Engine
) -> None:
    """PostgreSQL can read the few members for each tree, instead of looking up the providers of the tree."""
    members, others = 60, 300
    hosts = [f"h{n}{{VCPU8 DISK_GB8}}@Y{',X' if n >= others else ''}" for n in range(others + members)]
    load_cloud(read("; ".join(hosts)))
    analyze(engine, "resource_providers", "provider_aggregates", "inventories")
    app = new_app(prepared_statements=False)
    path = f"/allocation_candidates?resources=VCPU:1,DISK_GB:1&member_of=!{X}&limit=1000"
    with sent_statements(app.extensions["database"].engine) as sent:
        response = app.test_client().get(path, headers=ADMIN)
    assert response.json is not None
    assert len(response.json["allocation_requests"]) == others
    [statement] = [each for each in sent if "examined_roots" in each.text]
    with engine.connect() as connection:
        assert sum(row_counts(connection, statement, "provider_aggregates")) <= 2 * (others + members)


KINDS_OF_HOSTS = {
    "a host without children": ("h%{VCPU8 MEMORY_MB8 DISK_GB8}#T", 1),
    "the host": ("h%{DISK_GB8}#T; c%<h%{VCPU8 MEMORY_MB8}", 1),
    "its child": ("h%{DISK_GB8}; c%<h%{VCPU8 MEMORY_MB8}#T", 1),
    "both": ("h%{DISK_GB8}#T; c%<h%{VCPU8 MEMORY_MB8}#T", 2),
}
"""Kinds of hosts by the holder of a trait, and how many classes exclude those with it."""


@pytest.mark.usefixtures("large_sets", "merges_sets")
@pytest.mark.parametrize(("host", "class_count"), KINDS_OF_HOSTS.values(), ids=KINDS_OF_HOSTS)
def test_one_class_of_each_holder_excludes_forbidden_traits(
    new_app: NewApp, load_cloud: LoadCloud, caplog: pytest.LogCaptureFixture, host: str, class_count: int
) -> None:
    holder = host.replace("#T", f"#{NOT_LAST}")
    last = host.replace("#T", "").replace("%", "_last")
    load_cloud(read("; ".join([*(holder.replace("%", str(number)) for number in range(HOSTS - 1)), last])))
    app = new_app(prepared_statements=False)
    caplog.set_level(logging.DEBUG, candidates.log.name)
    query = f"resources=VCPU:1,MEMORY_MB:1,DISK_GB:1&required=!{NOT_LAST}&limit={LIMIT}"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = app.test_client().get(
            f"/allocation_candidates?{query}", headers=ADMIN | {"OpenStack-API-Version": "placement 1.39"}
        )
    assert response.json is not None
    assert len(response.json["allocation_requests"]) == 1
    [scan] = [each.text for each in statements if "examined_roots" in each.text]
    assert scan.count("EXCEPT") == class_count
    assert [each.args[-1] for each in caplog.records if "roots scanned" in each.msg] == [1]


@pytest.mark.usefixtures("large_sets", "merges_sets", "two_scans")
def test_second_scan_excludes_holders_of_forbidden_traits_with_other_classes(
    api: Api, load_cloud: LoadCloud, caplog: pytest.LogCaptureFixture
) -> None:
    sampled = [
        f"h{number}{{VCPU8 used8 DISK_GB8}}; n{number}<h{number}{{SRIOV_NET_VF8}}#{NOT_LAST}"
        for number in range(SAMPLED_HOLDERS)
    ]
    others = [f"h{number}{{VCPU8 DISK_GB8}}#{NOT_LAST}" for number in range(SAMPLED_HOLDERS, HOSTS)]
    load_cloud(read("; ".join([*sampled, *others])))
    caplog.set_level(logging.DEBUG, candidates.log.name)
    query = f"resources=VCPU:1,DISK_GB:1&required=!{NOT_LAST}&limit={LIMIT}"
    response = api("GET", f"/allocation_candidates?{query}")
    assert response.json["allocation_requests"] == []
    first, second, *_ = [each for each in caplog.records if "roots scanned" in each.msg]
    assert first.args[-1] == second.args[-1] == LIMIT + 1


*COMMON, RARE = os_traits.get_traits("HW_CPU_X86_")[: root_sets.MAX_SETS + 1]


@pytest.mark.parametrize(
    "filters",
    [
        f"required={','.join(COMMON)},{RARE}",
        f"required={','.join(COMMON)}&member_of={X}",
        f"required={','.join(COMMON)}&member_of={Y}",
    ],
    ids=["trait", "small aggregate", "large aggregate"],
)
def test_of_many_filters_those_that_exclude_most_are_sets(
    api: Api,
    load_cloud: LoadCloud,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    filters: str,
) -> None:
    monkeypatch.setattr(
        NamesLookup, "is_small_trait_set", lambda names, ids: _least(names.providers_by_trait, ids) == 1
    )
    monkeypatch.setattr(
        NamesLookup,
        "is_small_aggregate_set",
        lambda names, ids: _least(names.providers_by_aggregate, ids) == 1,
    )
    # PostgreSQL may still have the number of roots of an earlier test.
    for name in ("is_sufficient_trait_set", "is_sufficient_aggregate_set"):
        monkeypatch.setattr(NamesLookup, name, _never)
    monkeypatch.setattr("placement_svc.db.search.criteria_builder.RARITY_THRESHOLD", 0)
    everywhere = ",".join(COMMON)
    hosts = [f"h{number}{{VCPU8}}#{everywhere}" for number in range(HOSTS - 2)]
    load_cloud(read("; ".join([*hosts, f"y{{VCPU8}}#{everywhere}@Y", f"x{{VCPU8}}#{everywhere},{RARE}@X,Y"])))
    caplog.set_level(logging.DEBUG, candidates.log.name)
    response = api(
        "GET", f"/allocation_candidates?resources=VCPU:1&limit={LIMIT}&{filters}", version=EXTENDED
    )
    found = len(response.json["allocation_requests"])
    assert found == 1 + (Y in filters)
    assert [each.args[-1] for each in caplog.records if "roots scanned" in each.msg] == [found]


@pytest.mark.usefixtures("merges_sets")
@pytest.mark.parametrize("filters", [f"member_of={X}", f"required={RARE}", f"root_required={RARE}"])
@pytest.mark.parametrize("suffices", [False, True])
def test_no_large_set_is_read_with_one_that_suffices(
    new_app: NewApp,
    load_cloud: LoadCloud,
    monkeypatch: pytest.MonkeyPatch,
    filters: str,
    suffices: bool,
) -> None:
    monkeypatch.setattr("placement_svc.db.search.criteria_builder.RARITY_THRESHOLD", 0)
    load_cloud(read(f"h{{VCPU8}}#{COMMON[0]}; x{{VCPU8}}#{COMMON[0]},{RARE}@X"))
    for few, hardly_any, counts in (
        ("is_small_trait_set", "is_sufficient_trait_set", "providers_by_trait"),
        ("is_small_aggregate_set", "is_sufficient_aggregate_set", "providers_by_aggregate"),
    ):
        monkeypatch.setattr(
            NamesLookup, few, lambda names, ids, counts=counts: _least(getattr(names, counts), ids) == 1
        )
        monkeypatch.setattr(NamesLookup, hardly_any, getattr(NamesLookup, few) if suffices else _never)
    # Criteria are cached by the query.
    query = f"resources=VCPU:1&required={COMMON[0]}&{filters}&limit={LIMIT + suffices}"
    # The texts, and not those of EXECUTE in a session that has run the same search in an earlier test.
    app = new_app(prepared_statements=False)
    headers = ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
    with sent_statements(app.extensions["database"].engine) as statements:
        response = app.test_client().get(f"/allocation_candidates?{query}", headers=headers)
    assert response.json is not None
    assert len(response.json["allocation_requests"]) == 1
    [scan] = [each.text for each in statements if "examined_roots" in each.text]
    assert ("INTERSECT" in scan) == (not suffices)


def _never(*_: object) -> bool:
    return False


def _least(counts: Mapping[int, int], ids: Iterable[int]) -> int:
    return min(counts[id_] for id_ in ids)
