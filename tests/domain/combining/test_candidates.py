import itertools
from dataclasses import dataclass

import pytest

from placement_svc.domain.combining import candidates
from placement_svc.domain.combining.candidates import combine, round_robin
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.errors import Invalid, Unavailable
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import GroupPolicy


@pytest.fixture
def max_tried(monkeypatch):
    """Return a function that sets how many suppliers may be tried in vain."""

    def set_max_tried(number):
        monkeypatch.setattr(candidates, "MAX_TRIED_SUPPLIERS", number)

    return set_max_tried


@dataclass(frozen=True)
class Supplier:
    """A provider: its path, the amounts that can be allocated, and its traits, a letter each."""

    path: tuple[int, ...]
    allocatable: dict[str, int]
    traits: str = ""


class Providers(dict):
    """A `ProviderLookup`: suppliers by id. The id of a trait is the code of its letter."""

    def path(self, provider_id):
        return self[provider_id].path

    def trait_ids(self, provider_id):
        return letters(self[provider_id].traits)

    def max_allocatable(self, provider_id, resource_class):
        return self[provider_id].allocatable[resource_class]


def letters(text):
    return frozenset(map(ord, text))


def supplier(*path, traits="", **allocatable):
    """Return a provider with the last id of `path`."""
    return Supplier(path, allocatable, traits)


def demand(suffix="", **amounts):
    return Demand(suffix, tuple(amounts.items()))


def combined(rules, *choices, seconds=60):
    providers = Providers((each.path[-1], each) for suppliers in choices for each in suppliers)
    ids = [[each.path[-1] for each in suppliers] for suppliers in choices]
    return combine(rules, ids, providers, Deadline.of(seconds), MemoryBudget(2**30))


def candidates_of(rules, *choices):
    """Return the ids of the suppliers of each candidate, as text."""
    return ["".join(map(str, candidate)) for candidate in combined(rules, *choices)]


# Order


@pytest.mark.parametrize(
    ("generators", "expected"),
    [
        ([], ""),
        ([""], ""),
        (["abc"], "abc"),
        (["ad", "b", "cef"], "abcdef"),
        (["", "a", "", "bc"], "abc"),
    ],
)
def test_round_robin(generators, expected):
    assert "".join(round_robin([iter(generator) for generator in generators])) == expected


def test_round_robin_is_lazy():
    merged = round_robin([itertools.count(), itertools.repeat("again")])
    assert list(itertools.islice(merged, 5)) == [0, "again", 1, "again", 2]


def test_a_first_combination_that_meets_the_constraints_needs_no_search(monkeypatch):
    monkeypatch.setattr(candidates, "_DepthFirstSearch", None)
    demands = demand("_1", VCPU=1), demand("_2", VCPU=1), demand(VCPU=1)
    rules = CombinationRules(demands, same_subtree=(frozenset({0, 1}),))
    one, two = supplier(1, 2, VCPU=2), supplier(1, 3, VCPU=2)
    assert next(combined(rules, [one, two], [one, two], [two])) == (2, 2, 3)


@pytest.mark.parametrize("policy", list(GroupPolicy))
def test_each_combination_comes_once(policy):
    rules = CombinationRules((demand("_1"), demand("_2")), group_policy=policy)
    one, two, three = supplier(1), supplier(2), supplier(3)
    alike = {"11", "22", "33"} if policy is GroupPolicy.ISOLATE else set()
    every = ["11", "12", "13", "21", "22", "23", "31", "32", "33"]
    expected = [each for each in every if each not in alike]
    assert candidates_of(rules, [one, two, three], [one, two, three]) == expected
    some = [each for each in ("12", "13", "22", "23") if each not in alike]
    assert candidates_of(rules, [one, two], [two, three]) == some


# Amounts


def test_every_supplier_of_every_demand_is_tried():
    rules = CombinationRules((demand(VCPU=1), demand("a", VGPU=1)))
    one, two = supplier(1, VCPU=9, VGPU=9), supplier(2, VCPU=9, VGPU=9)
    assert sorted(candidates_of(rules, [one, two], [one, two])) == ["11", "12", "21", "22"]


@pytest.mark.parametrize("suppliers", [([], [supplier(1, VCPU=1)]), ([supplier(1, VCPU=1)], [])])
def test_a_demand_without_suppliers_yields_no_candidate(suppliers, max_tried):
    max_tried(0)
    assert candidates_of(CombinationRules((demand("a", VCPU=1), demand("b", VCPU=1))), *suppliers) == []


@pytest.mark.parametrize(("room", "fits"), [(5, True), (4, False), (-1, False)])
@pytest.mark.parametrize("suffixes", [("a", "b"), ("", "a"), ("a", "")])
def test_amounts_of_all_groups_are_summed(room, fits, suffixes):
    first, second = suffixes
    rules = CombinationRules((demand(first, VCPU=2), demand(second, VCPU=3)))
    one = supplier(1, VCPU=room)
    assert candidates_of(rules, [one], [one]) == (["11"] if fits else [])


def test_amounts_of_an_isolated_group_and_the_unsuffixed_one_are_summed():
    rules = CombinationRules(
        (demand(VCPU=2), demand("a", VCPU=2), demand("b", VCPU=2)), group_policy=GroupPolicy.ISOLATE
    )
    suppliers = [supplier(1, VCPU=3), supplier(2, VCPU=4)]
    assert sorted(candidates_of(rules, suppliers, suppliers, suppliers)) == ["212", "221"]


def test_amounts_of_different_classes_are_not_summed():
    rules = CombinationRules((demand("a", VCPU=2), demand("b", VGPU=2)))
    one = supplier(1, VCPU=2, VGPU=2)
    assert candidates_of(rules, [one], [one]) == ["11"]


def test_what_does_not_fit_twice_comes_from_two_providers():
    rules = CombinationRules((demand("a", VCPU=2), demand("b", VCPU=2)))
    suppliers = [supplier(1, VCPU=3), supplier(2, VCPU=2)]
    assert sorted(candidates_of(rules, suppliers, suppliers)) == ["12", "21"]


def test_amounts_above_the_total_are_detected_at_once(max_tried):
    max_tried(0)
    suppliers = [supplier(id_, VCPU=2) for id_ in range(1, 10)]
    rules = CombinationRules(tuple(demand(str(number), VCPU=1) for number in range(19)))
    assert candidates_of(rules, *[suppliers] * 19) == []


# Isolation


@pytest.mark.parametrize(
    ("group_policy", "expected"),
    [(GroupPolicy.NONE, ["11", "12", "21", "22"]), (GroupPolicy.ISOLATE, ["12", "21"])],
)
def test_isolated_groups_have_different_suppliers(group_policy, expected):
    suppliers = [supplier(1, VCPU=9), supplier(2, VCPU=9)]
    rules = CombinationRules((demand("a", VCPU=1), demand("b", VCPU=1)), group_policy=group_policy)
    assert sorted(candidates_of(rules, suppliers, suppliers)) == expected


def test_isolated_groups_have_different_suppliers_without_resources():
    rules = CombinationRules((demand("a", VCPU=1), demand("b")), group_policy=GroupPolicy.ISOLATE)
    one, two = supplier(1, VCPU=1), supplier(2)
    assert candidates_of(rules, [one], [one, two]) == ["12"]


def test_the_unsuffixed_group_is_not_isolated():
    rules = CombinationRules(
        (demand(VCPU=1), demand(VGPU=1), demand("a", VCPU=1)), group_policy=GroupPolicy.ISOLATE
    )
    one = supplier(1, VCPU=9, VGPU=9)
    assert candidates_of(rules, [one], [one], [one]) == ["111"]


def test_too_few_providers_to_isolate_are_detected_at_once(max_tried):
    max_tried(0)
    suppliers = [supplier(id_, VCPU=9) for id_ in range(1, 30)]
    rules = CombinationRules(
        tuple(demand(str(number), VCPU=1) for number in range(30)), group_policy=GroupPolicy.ISOLATE
    )
    assert candidates_of(rules, *[suppliers] * 30) == []


def test_isolated_groups_whose_suppliers_are_siblings_fail_at_once(max_tried):
    max_tried(0)
    suppliers = [supplier(1, id_, VCPU=9) for id_ in range(2, 10)]
    rules = CombinationRules(
        tuple(demand(str(number), VCPU=1) for number in range(4)),
        same_subtree=(frozenset({2, 3}),),
        group_policy=GroupPolicy.ISOLATE,
    )
    assert candidates_of(rules, *[suppliers] * 4) == []


def test_as_many_providers_as_groups_can_be_isolated(max_tried):
    # Each group tries the providers already assigned first, and the search never backtracks.
    max_tried(sum(range(1, 31)))
    suppliers = [supplier(id_, VCPU=9) for id_ in range(1, 31)]
    rules = CombinationRules(
        tuple(demand(str(number), VCPU=1) for number in range(30)), group_policy=GroupPolicy.ISOLATE
    )
    first = next(combined(rules, *[suppliers] * 30))
    assert set(first) == set(range(1, 31))


def test_search_backtracks_to_isolate_groups():
    one, two, three = (supplier(id_, VCPU=9) for id_ in (1, 2, 3))
    rules = CombinationRules(
        tuple(demand(suffix, VCPU=1) for suffix in "abc"), group_policy=GroupPolicy.ISOLATE
    )
    assert candidates_of(rules, [one, two], [two, three, one], [one]) == ["231"]


# Traits of the unsuffixed group


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ([], ["11", "12", "21", "22"]),
        (["A"], ["11", "12", "21"]),
        (["A", "B"], ["12", "21"]),
        (["AB"], ["11", "12", "21", "22"]),
        (["AC"], ["11", "12", "21"]),
        (["C"], []),
        (["A", "C"], []),
    ],
)
def test_traits_are_those_of_all_suppliers_together(required, expected):
    one, two = supplier(1, VCPU=9, VGPU=9, traits="A"), supplier(2, VCPU=9, VGPU=9, traits="B")
    rules = CombinationRules(
        (demand(VCPU=1), demand(VGPU=1)), unsuffixed_required=tuple(map(letters, required))
    )
    assert sorted(candidates_of(rules, [one, two], [one, two])) == expected


def test_traits_of_a_suffixed_group_do_not_count():
    rules = CombinationRules((demand(VCPU=1), demand("a", VGPU=1)), unsuffixed_required=(letters("A"),))
    one, two = supplier(1, VCPU=1), supplier(2, VGPU=1, traits="A")
    assert candidates_of(rules, [one], [two]) == []


# Subtrees


@pytest.mark.parametrize(
    ("paths", "is_subtree"),
    [
        (["1", "1"], True),
        (["1", "12"], True),
        (["12", "1"], True),
        (["1", "123"], True),
        (["12", "13"], False),
        (["12", "13", "1"], True),
        (["1", "12", "13"], True),
        (["12", "123", "124"], True),
        (["12", "123", "14"], False),
        (["123", "123", "12"], True),
        (["1", "2"], False),
        (["1", "2", "1"], False),
    ],
)
def test_one_provider_is_above_all_others_of_a_subtree(paths, is_subtree):
    suppliers = [supplier(*map(int, path), VCPU=9) for path in paths]
    demands = tuple(demand(str(number), VCPU=1) for number in range(len(paths)))
    rules = CombinationRules(demands, same_subtree=(frozenset(range(len(paths))),))
    assert bool(candidates_of(rules, *([each] for each in suppliers))) == is_subtree


def test_each_subtree_is_judged_alone():
    root, left, right = supplier(1, VCPU=9), supplier(1, 2, VCPU=9), supplier(1, 3, VCPU=9)
    demands = tuple(demand(suffix, VCPU=1) for suffix in "abc")
    both = CombinationRules(demands, same_subtree=(frozenset({0, 1}), frozenset({0, 2})))
    assert candidates_of(both, [root], [left], [right]) == ["123"]
    assert candidates_of(both, [left], [root], [right]) == []


def test_groups_outside_of_a_subtree_are_anywhere():
    rules = CombinationRules(tuple(demand(s, VCPU=1) for s in "abc"), same_subtree=(frozenset({0, 1}),))
    one, two, other = supplier(1, VCPU=9), supplier(1, 2, VCPU=9), supplier(5, VCPU=9)
    assert candidates_of(rules, [one, other], [two], [other]) == ["125"]


# Before 1.29


@pytest.mark.parametrize(
    ("paths", "is_candidate"),
    [
        (["1", "1"], True),
        (["1", "12"], False),
        (["12", "13"], False),
        (["12", "12"], True),
        (["12", "3"], True),
    ],
)
def test_one_provider_of_each_tree(paths, is_candidate):
    by_path = {path: supplier(*map(int, path), VCPU=9) for path in paths}
    rules = CombinationRules((demand("a", VCPU=1), demand("b", VCPU=1)), one_provider_per_tree=True)
    assert bool(candidates_of(rules, *([by_path[path]] for path in paths))) == is_candidate


# Cost in proportion to the candidates taken


def test_the_first_of_very_many_come_at_once(max_tried):
    max_tried(8)
    suppliers = [supplier(id_, VCPU=99) for id_ in range(1, 9)]
    rules = CombinationRules(tuple(demand(str(number), VCPU=1) for number in range(8)))
    first = list(itertools.islice(combined(rules, *[suppliers] * 8), 10))
    assert len(set(first)) == 10


def test_failed_state_is_not_entered_twice(max_tried):
    max_tried(20_000)
    # Whichever of ten providers the first eight demands use: none can supply the last demand.
    suppliers = [supplier(id_, VCPU=1) for id_ in range(1, 11)]
    rules = CombinationRules((*(demand(str(number), VCPU=1) for number in range(8)), demand("big", VCPU=2)))
    assert candidates_of(rules, *[suppliers] * 9) == []


@pytest.mark.parametrize(
    ("number", "refusal"), [(4, pytest.raises(Invalid, match="combined in too many ways")), (5, None)]
)
def test_request_is_refused_when_very_many_suppliers_are_tried_in_vain(number, refusal, max_tried):
    max_tried(number)
    rules = CombinationRules((demand(VCPU=1),), unsuffixed_required=(letters("A"),))
    suppliers = [supplier(id_, VCPU=1, traits="A" if id_ == 5 else "") for id_ in range(1, 6)]
    if refusal is None:
        assert candidates_of(rules, suppliers) == ["5"]
    else:
        with refusal:
            candidates_of(rules, suppliers)


def test_tried_suppliers_are_counted_from_the_last_candidate(max_tried):
    max_tried(2)
    rules = CombinationRules((demand(VCPU=1),), unsuffixed_required=(letters("A"),))
    suppliers = [supplier(id_, VCPU=1, traits="A" if id_ % 2 == 0 else "") for id_ in range(1, 9)]
    assert candidates_of(rules, suppliers) == ["2", "4", "6", "8"]


def test_deadline_ends_a_search_without_candidates():
    suppliers = [supplier(1, VCPU=1)]
    with pytest.raises(Unavailable, match="takes longer than 0 seconds"):
        list(
            combined(
                CombinationRules((demand(VCPU=1),), unsuffixed_required=(letters("A"),)), suppliers, seconds=0
            )
        )
