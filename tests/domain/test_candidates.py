import itertools
from dataclasses import dataclass

import pytest

from placement_svc.domain import candidates
from placement_svc.domain.candidates import combine, round_robin
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.errors import Invalid, Unavailable
from placement_svc.domain.groups import GroupPolicy


@pytest.fixture
def patience(monkeypatch):
    """Return a function that sets how many combinations may fail in a row."""

    def patience(steps):
        monkeypatch.setattr(candidates, "MAX_FAILURES", steps)

    return patience


@dataclass(frozen=True)
class Supplier:
    """A provider: its path, what it has room for, and its traits, a letter each."""

    path: tuple[int, ...]
    rooms: dict[str, int]
    traits: str = ""


class Providers(dict):
    """Suppliers by id; the id of a trait is the code of its letter."""

    def path(self, provider_id):
        return self[provider_id].path

    def trait_ids(self, provider_id):
        return letters(self[provider_id].traits)

    def max_allocatable(self, provider_id, resource_class):
        return self[provider_id].rooms[resource_class]


def letters(text):
    return frozenset(map(ord, text))


def supplier(*path, traits="", **rooms):
    """Return a provider with the last id of `path`."""
    return Supplier(path, rooms, traits)


def demand(suffix="", **amounts):
    return Demand(suffix, tuple(amounts.items()))


def combined(rules, *options, seconds=60):
    providers = Providers((each.path[-1], each) for suppliers in options for each in suppliers)
    ids = [[each.path[-1] for each in suppliers] for suppliers in options]
    return combine(rules, ids, providers, Deadline.of(seconds))


def found(rules, *options):
    """Return the ids of the suppliers of each candidate, as text."""
    return ["".join(map(str, candidate)) for candidate in combined(rules, *options)]


# One after the other


@pytest.mark.parametrize(
    ("generators", "turns"),
    [
        ([], ""),
        ([""], ""),
        (["abc"], "abc"),
        (["ad", "b", "cef"], "abcdef"),
        (["", "a", "", "bc"], "abc"),
    ],
)
def test_generators_take_turns(generators, turns):
    assert "".join(round_robin([iter(generator) for generator in generators])) == turns


def test_turns_are_taken_as_they_are_asked_for():
    turns = round_robin([itertools.count(), itertools.repeat("again")])
    assert list(itertools.islice(turns, 5)) == [0, "again", 1, "again", 2]


# What goes together


def test_every_option_of_every_demand_is_tried():
    rules = CombinationRules((demand(VCPU=1), demand("a", VGPU=1)))
    one, two = supplier(1, VCPU=9, VGPU=9), supplier(2, VCPU=9, VGPU=9)
    assert sorted(found(rules, [one, two], [one, two])) == ["11", "12", "21", "22"]


@pytest.mark.parametrize("options", [([], [supplier(1, VCPU=1)]), ([supplier(1, VCPU=1)], [])])
def test_a_demand_without_options_leaves_nothing(options, patience):
    patience(0)
    assert found(CombinationRules((demand("a", VCPU=1), demand("b", VCPU=1))), *options) == []


@pytest.mark.parametrize(("room", "fits"), [(5, True), (4, False), (-1, False)])
@pytest.mark.parametrize("suffixes", [("a", "b"), ("", "a"), ("a", "")])
def test_amounts_of_all_groups_are_added(room, fits, suffixes):
    first, second = suffixes
    rules = CombinationRules((demand(first, VCPU=2), demand(second, VCPU=3)))
    one = supplier(1, VCPU=room)
    assert found(rules, [one], [one]) == (["11"] if fits else [])


def test_amounts_of_an_isolated_group_and_the_unsuffixed_one_are_added():
    rules = CombinationRules(
        (demand(VCPU=2), demand("a", VCPU=2), demand("b", VCPU=2)), group_policy=GroupPolicy.ISOLATE
    )
    options = [supplier(1, VCPU=3), supplier(2, VCPU=4)]
    assert sorted(found(rules, options, options, options)) == ["212", "221"]


def test_amounts_of_different_classes_are_not_added():
    rules = CombinationRules((demand("a", VCPU=2), demand("b", VGPU=2)))
    one = supplier(1, VCPU=2, VGPU=2)
    assert found(rules, [one], [one]) == ["11"]


def test_what_does_not_fit_twice_is_found_in_two_places():
    rules = CombinationRules((demand("a", VCPU=2), demand("b", VCPU=2)))
    options = [supplier(1, VCPU=3), supplier(2, VCPU=2)]
    assert sorted(found(rules, options, options)) == ["12", "21"]


def test_more_than_there_is_in_all_is_found_at_once(patience):
    patience(0)
    options = [supplier(id_, VCPU=2) for id_ in range(1, 10)]
    rules = CombinationRules(tuple(demand(str(number), VCPU=1) for number in range(19)))
    assert found(rules, *[options] * 19) == []


# Isolation


@pytest.mark.parametrize(
    ("group_policy", "expected"),
    [(GroupPolicy.NONE, ["11", "12", "21", "22"]), (GroupPolicy.ISOLATE, ["12", "21"])],
)
def test_isolated_groups_are_kept_apart(group_policy, expected):
    options = [supplier(1, VCPU=9), supplier(2, VCPU=9)]
    rules = CombinationRules((demand("a", VCPU=1), demand("b", VCPU=1)), group_policy=group_policy)
    assert sorted(found(rules, options, options)) == expected


def test_isolated_groups_are_kept_apart_without_resources():
    rules = CombinationRules((demand("a", VCPU=1), demand("b")), group_policy=GroupPolicy.ISOLATE)
    one, two = supplier(1, VCPU=1), supplier(2)
    assert found(rules, [one], [one, two]) == ["12"]


def test_the_unsuffixed_group_is_not_isolated():
    rules = CombinationRules(
        (demand(VCPU=1), demand(VGPU=1), demand("a", VCPU=1)), group_policy=GroupPolicy.ISOLATE
    )
    one = supplier(1, VCPU=9, VGPU=9)
    assert found(rules, [one], [one], [one]) == ["111"]


def test_too_few_providers_to_keep_apart_are_found_at_once(patience):
    patience(0)
    options = [supplier(id_, VCPU=9) for id_ in range(1, 30)]
    rules = CombinationRules(
        tuple(demand(str(number), VCPU=1) for number in range(30)), group_policy=GroupPolicy.ISOLATE
    )
    assert found(rules, *[options] * 30) == []


def test_as_many_providers_as_groups_can_be_kept_apart(patience):
    # Each group passes by those that are taken, and never goes back.
    patience(sum(range(1, 31)))
    options = [supplier(id_, VCPU=9) for id_ in range(1, 31)]
    rules = CombinationRules(
        tuple(demand(str(number), VCPU=1) for number in range(30)), group_policy=GroupPolicy.ISOLATE
    )
    first = next(combined(rules, *[options] * 30))
    assert set(first) == set(range(1, 31))


def test_groups_move_on_for_others_to_be_kept_apart():
    one, two, three = (supplier(id_, VCPU=9) for id_ in (1, 2, 3))
    rules = CombinationRules(
        tuple(demand(suffix, VCPU=1) for suffix in "abc"), group_policy=GroupPolicy.ISOLATE
    )
    assert found(rules, [one, two], [two, three, one], [one]) == ["231"]


# Traits of the unsuffixed group


@pytest.mark.parametrize(
    ("clauses", "expected"),
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
def test_traits_are_those_of_all_suppliers_together(clauses, expected):
    one, two = supplier(1, VCPU=9, VGPU=9, traits="A"), supplier(2, VCPU=9, VGPU=9, traits="B")
    rules = CombinationRules(
        (demand(VCPU=1), demand(VGPU=1)), unsuffixed_required=tuple(map(letters, clauses))
    )
    assert sorted(found(rules, [one, two], [one, two])) == expected


def test_traits_of_a_suffixed_group_do_not_count():
    rules = CombinationRules((demand(VCPU=1), demand("a", VGPU=1)), unsuffixed_required=(letters("A"),))
    one, two = supplier(1, VCPU=1), supplier(2, VGPU=1, traits="A")
    assert found(rules, [one], [two]) == []


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
    assert bool(found(rules, *([each] for each in suppliers))) == is_subtree


def test_each_subtree_is_judged_alone():
    root, left, right = supplier(1, VCPU=9), supplier(1, 2, VCPU=9), supplier(1, 3, VCPU=9)
    demands = tuple(demand(suffix, VCPU=1) for suffix in "abc")
    both = CombinationRules(demands, same_subtree=(frozenset({0, 1}), frozenset({0, 2})))
    assert found(both, [root], [left], [right]) == ["123"]
    assert found(both, [left], [root], [right]) == []


def test_groups_outside_of_a_subtree_are_anywhere():
    rules = CombinationRules(tuple(demand(s, VCPU=1) for s in "abc"), same_subtree=(frozenset({0, 1}),))
    one, two, other = supplier(1, VCPU=9), supplier(1, 2, VCPU=9), supplier(5, VCPU=9)
    assert found(rules, [one, other], [two], [other]) == ["125"]


# Before 1.29


@pytest.mark.parametrize(
    ("paths", "are_found"),
    [
        (["1", "1"], True),
        (["1", "12"], False),
        (["12", "13"], False),
        (["12", "12"], True),
        (["12", "3"], True),
    ],
)
def test_one_provider_of_each_tree(paths, are_found):
    by_path = {path: supplier(*map(int, path), VCPU=9) for path in paths}
    rules = CombinationRules((demand("a", VCPU=1), demand("b", VCPU=1)), one_provider_per_tree=True)
    assert bool(found(rules, *([by_path[path]] for path in paths))) == are_found


# Work in proportion to the answer


def test_the_first_of_very_many_come_at_once(patience):
    patience(8)
    options = [supplier(id_, VCPU=99) for id_ in range(1, 9)]
    rules = CombinationRules(tuple(demand(str(number), VCPU=1) for number in range(8)))
    first = list(itertools.islice(combined(rules, *[options] * 8), 10))
    assert len(set(first)) == 10


def test_a_dead_end_is_not_entered_twice(patience):
    patience(20_000)
    # In whatever order the first eight share ten providers: none is left for the last one.
    options = [supplier(id_, VCPU=1) for id_ in range(1, 11)]
    rules = CombinationRules((*(demand(str(number), VCPU=1) for number in range(8)), demand("big", VCPU=2)))
    assert found(rules, *[options] * 9) == []


@pytest.mark.parametrize(
    ("steps", "wait"), [(4, pytest.raises(Invalid, match="combined in too many ways")), (5, None)]
)
def test_patience_ends_when_very_many_in_a_row_fail(steps, wait, patience):
    patience(steps)
    rules = CombinationRules((demand(VCPU=1),), unsuffixed_required=(letters("A"),))
    suppliers = [supplier(id_, VCPU=1, traits="A" if id_ == 5 else "") for id_ in range(1, 6)]
    if wait is None:
        assert found(rules, suppliers) == ["5"]
    else:
        with wait:
            found(rules, suppliers)


def test_patience_starts_again_with_every_candidate(patience):
    patience(2)
    rules = CombinationRules((demand(VCPU=1),), unsuffixed_required=(letters("A"),))
    suppliers = [supplier(id_, VCPU=1, traits="A" if id_ % 2 == 0 else "") for id_ in range(1, 9)]
    assert found(rules, suppliers) == ["2", "4", "6", "8"]


def test_a_deadline_ends_what_comes_to_nothing(monkeypatch):
    monkeypatch.setattr(candidates, "CHECK_DEADLINE_EVERY", 1)
    options = [supplier(1, VCPU=1)]
    with pytest.raises(Unavailable, match="takes longer than 0 seconds"):
        list(
            combined(
                CombinationRules((demand(VCPU=1),), unsuffixed_required=(letters("A"),)), options, seconds=0
            )
        )
