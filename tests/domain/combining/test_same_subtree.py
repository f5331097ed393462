"""The suppliers that a `same_subtree` leaves around an anchor."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from placement_svc.domain.combining.same_subtree import suppliers_in_subtrees
from placement_svc.domain.execution.deadline import Deadline

DEADLINE = Deadline.of(3600)

Lists = tuple[tuple[int, ...], ...]
Paths = dict[int, tuple[int, ...]]


@st.composite
def trees(draw: st.DrawFn) -> Paths:
    """Draw the path of each provider of a tree."""
    paths = {1: (1,)}
    for id_ in range(2, draw(st.integers(3, 8))):
        paths[id_] = (*paths[draw(st.integers(1, id_ - 1))], id_)
    return paths


def in_candidates(suppliers: Lists, paths: Paths, demands: range) -> set[tuple[int, int]]:
    """Return each demand with each of its suppliers in a combination in which one is above all others."""
    return {
        (demand, combination[demand])
        for combination in product(*suppliers)
        if any(all(combination[head] in paths[combination[other]] for other in demands) for head in demands)
        for demand in demands
    }


@given(paths=trees(), data=st.data())
def test_only_suppliers_that_no_candidate_has_are_left_out(paths: Paths, data: st.DataObject) -> None:
    ids = st.lists(st.sampled_from(sorted(paths)), min_size=1, unique=True).map(sorted).map(tuple)
    suppliers = data.draw(st.lists(ids, min_size=3, max_size=3).map(tuple))
    demands = range(2)
    left = suppliers_in_subtrees(demands, suppliers, paths.__getitem__, DEADLINE)
    assert left[2] == suppliers[2]
    pairs = {(demand, id_) for demand in demands for id_ in left[demand]}
    assert in_candidates(suppliers, paths, demands) <= pairs
    assert all(set(some) <= set(every) for some, every in zip(left, suppliers, strict=True))


def test_node_without_a_card_is_left_out() -> None:
    paths = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 4)}
    left = suppliers_in_subtrees({0, 1}, ((2, 4), (3,), (4,)), paths.__getitem__, DEADLINE)
    assert left == ((2,), (3,), (4,))


def test_nothing_is_left_without_a_provider_above_the_others() -> None:
    """The root is above both, but supplies neither."""
    paths = {1: (1,), 2: (1, 2), 3: (1, 3)}
    assert suppliers_in_subtrees({0, 1}, ((2,), (3,)), paths.__getitem__, DEADLINE) == ((), ())
