"""The tree of a sum: it depends on the workers that contributed, not on the time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.blocks.sums import TreeSum, all_finite, tree_sum

MODERATE = settings(deadline=None, max_examples=100)


def gradients_of(workers, seed=0, size=5):
    """Float32 of very different magnitudes, whose sum depends on the order."""
    source = torch.Generator().manual_seed(seed)
    values = torch.randn(workers, size, generator=source)
    return values * 10.0 ** torch.randint(-6, 7, (workers, size), generator=source)


def recursive_sum(gradients, low, high):
    """Halve [low, high), a power of two wide; a half without gradients counts for nothing."""
    present = [worker for worker in gradients if low <= worker < high]
    if not present:
        return None
    if high - low == 1:
        return gradients[low]
    middle = (low + high) // 2
    left = recursive_sum(gradients, low, middle)
    right = recursive_sum(gradients, middle, high)
    if left is None or right is None:
        return right if left is None else left
    return left + right


def add_all(workers, gradients, order):
    total = TreeSum(workers)
    for worker in order:
        total.add(worker, gradients[worker].clone())
    return total


@st.composite
def arrivals(draw):
    workers = draw(st.integers(1, 40))
    present = draw(st.sets(st.integers(0, workers - 1), min_size=1))
    return workers, draw(st.permutations(sorted(present))), draw(st.integers(0, 100))


@MODERATE
@given(arrivals())
def test_the_sum_of_any_workers_in_any_order_is_bitwise_that_of_the_recursion(arrival):
    workers, order, seed = arrival
    gradients = dict(enumerate(gradients_of(workers, seed)))
    size = 1
    while size < workers:
        size *= 2
    expected = recursive_sum({w: gradients[w] for w in order}, 0, size)
    assert torch.equal(add_all(workers, gradients, order).total(), expected)


@pytest.mark.parametrize("workers", [1, 2, 5, 32])
def test_tree_sum_is_what_a_shard_computes_and_keeps_its_arguments(workers):
    gradients = list(gradients_of(workers))
    before = [gradient.clone() for gradient in gradients]
    in_reverse = add_all(workers, gradients, range(workers - 1, -1, -1)).total()
    assert torch.equal(tree_sum(gradients), in_reverse)
    assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))


def test_it_holds_no_more_partial_sums_than_the_tree_has_levels_when_they_come_in_order():
    """Memory: 1,024 gradients of 4 MB are never held at once."""
    total, alive = TreeSum(1024), []
    for worker in range(1024):
        gradient = torch.ones(1)
        alive.append(gradient)
        total.add(worker, gradient)
    assert total.total().item() == 1024
    # The sums were made in place: leaf 0 holds them all.
    assert alive[0].item() == 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("elements", [1, 31, 1000])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_a_number_that_is_not_finite_is_found_at_every_place(dtype, elements, wrong):
    tensor = torch.linspace(-60000, 60000, elements).to(dtype)
    assert all_finite(tensor)
    for place in range(elements):
        kept, tensor[place] = tensor[place].clone(), wrong
        assert not all_finite(tensor), place
        tensor[place] = kept
