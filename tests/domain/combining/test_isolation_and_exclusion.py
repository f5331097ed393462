"""`isolate` and `same_subtree` with `!` agree with trying every combination."""

import random
from itertools import product

import pytest

from placement_svc.domain.combining import same_subtree
from placement_svc.domain.combining.candidates import combine, first_combination, is_surely_candidate
from placement_svc.domain.demands import CombinationRules, Demand, SubtreeExclusion
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

Paths = dict[int, tuple[int, ...]]


class Tree:
    """Providers in one or two trees: a `ProviderLookup`."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    def path(self, provider_id: int) -> tuple[int, ...]:
        return self.paths[provider_id]

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        return frozenset()

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        return 1


def random_paths(choices: random.Random) -> Paths:
    paths: Paths = {1: (1,), 2: (2,)}
    for id_ in range(3, choices.randint(4, 8)):
        paths[id_] = (*paths[choices.randint(1, id_ - 1)], id_)
    return paths


def meets_isolate(rules: CombinationRules, chosen: tuple[int, ...]) -> bool:
    return not any(
        chosen[isolated] == provider_id
        for isolated in rules.isolate
        for other, provider_id in enumerate(chosen)
        if other != isolated and rules.demands[other].suffix
    )


def heads_of(demands: frozenset[int], chosen: tuple[int, ...], paths: Paths) -> list[int]:
    providers = {chosen[demand] for demand in demands}
    return [head for head in providers if all(head in paths[id_] for id_ in providers)]


def meets_exclusion(exclusion: SubtreeExclusion, chosen: tuple[int, ...], paths: Paths) -> bool:
    heads = heads_of(exclusion.demands, chosen, paths)
    return len(heads) == 1 and not any(heads[0] in paths[chosen[demand]] for demand in exclusion.excluded)


@pytest.mark.parametrize("max_unprepared", [0, same_subtree.MAX_UNPREPARED_SUPPLIERS])
def test_candidates_are_all_combinations_that_meet_the_rules(
    max_unprepared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_subtree, "MAX_UNPREPARED_SUPPLIERS", max_unprepared)
    choices = random.Random(1)
    with_candidates = sure = 0
    for _ in range(1500):
        paths = random_paths(choices)
        count = choices.randint(2, 5)
        demands = (Demand("", (("VCPU", 1),)), *(Demand(f"_{n}", ()) for n in range(1, count)))
        suffixed = range(1, count)
        exclusions = []
        for _ in range(choices.randint(0, 2)):
            roles = [choices.choice(("in", "out", "")) for _ in suffixed]
            inside, outside = (
                frozenset(demand for demand, role in zip(suffixed, roles, strict=True) if role == wanted)
                for wanted in ("in", "out")
            )
            if inside and outside:
                exclusions.append(SubtreeExclusion(inside, outside))
        subtrees = [each.demands for each in exclusions if len(each.demands) > 1]
        if count > 2 and choices.random() < 0.3:
            subtrees.append(frozenset(choices.sample(suffixed, choices.randint(2, len(suffixed)))))
        rules = CombinationRules(
            demands,
            same_subtree=tuple(subtrees),
            subtree_exclusions=tuple(exclusions),
            isolate=frozenset(choices.sample(suffixed, choices.randint(0, len(suffixed)))),
        )
        suppliers = [
            sorted(choices.sample(sorted(paths), choices.randint(1, len(paths)))) for _ in range(count)
        ]
        expected = [
            chosen
            for chosen in product(*suppliers)
            if meets_isolate(rules, chosen)
            and all(heads_of(each, chosen, paths) for each in subtrees)
            and all(meets_exclusion(each, chosen, paths) for each in exclusions)
        ]
        found = list(combine(rules, suppliers, Tree(paths), Deadline.of(60), MemoryBudget(10**9)))
        assert sorted(found) == sorted(expected), (paths, rules, suppliers)
        first = first_combination(suppliers)
        is_sure = is_surely_candidate(rules, first, Tree(paths))
        assert is_sure == (first in expected and not rules.has_other_rules), (paths, rules, suppliers)
        with_candidates += bool(expected)
        sure += is_sure
    assert 300 < with_candidates < 1450
    assert 100 < sure < with_candidates
