from placement_svc.domain.explanation.filters import AmountCondition, FilterCode, TraitCondition
from placement_svc.domain.explanation.root_failures import project, separating_bits

TRAIT = TraitCondition(frozenset([1]))
HAS_CPUS = AmountCondition(FilterCode.INVENTORY, 0, 0)
FREE_CPUS = AmountCondition(FilterCode.FREE, 0, 4)
BITS = {TRAIT: 0, HAS_CPUS: 1, FREE_CPUS: 2}


def test_nothing_separates_patterns_that_are_alone() -> None:
    assert separating_bits([([0b011], [0b011]), ([], [0b001])], BITS) == {}


def test_an_inventory_separates_patterns_rather_than_a_trait() -> None:
    assert separating_bits([([0b011], [0b011, 0b000])], BITS) == {HAS_CPUS: 1}


def test_bits_separate_the_patterns_of_every_choice() -> None:
    choices = [([0b010, 0b110], [0b010, 0b110, 0b000]), ([0b111], [0b110])]

    found = separating_bits(choices, BITS)

    assert found == {HAS_CPUS: 1, TRAIT: 0}
    for closest, others in choices:
        kept = {project(each, BITS, found) for each in closest}
        assert kept.isdisjoint(project(each, BITS, found) for each in others if each not in closest)


def test_projected_patterns_have_the_kept_bits_in_their_order() -> None:
    assert project(0b101, BITS, [FREE_CPUS, HAS_CPUS]) == 0b01
    assert project(0b101, BITS, [HAS_CPUS, TRAIT]) == 0b10
