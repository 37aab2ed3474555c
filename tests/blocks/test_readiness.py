"""When the parts of a gradient are complete."""

from __future__ import annotations

import pytest
import torch

from outpace.blocks.gathering import Readiness, shares_until_ready

LAYERS = [2, 5, 1, 4]
SLICES = [slice(0, 4), slice(4, 8), slice(8, 12)]  # the second tensor is in two parts


def test_a_part_is_complete_with_the_last_tensor_that_has_a_piece_of_it():
    ready = Readiness(LAYERS, SLICES)
    for _ in range(2):  # again in each iteration
        ready.begin()
        assert [ready.made(number) for number in (3, 2, 1, 0)] == [[2], [], [1], [0]]
    ready.begin()
    assert [ready.made(number) for number in (0, 1, 2, 3)] == [[], [0], [1], [2]]


def test_a_part_is_a_copy_of_its_pieces_of_the_tensors():
    tensors = [
        torch.arange(start, start + size) for start, size in ((0, 2), (2, 5), (7, 1), (8, 4))
    ]
    tensors[3] = tensors[3].reshape(2, 2)
    ready = Readiness(LAYERS, SLICES)
    parts = [ready.part(place, tensors.__getitem__) for place in range(3)]
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert [ready.tensors(place) for place in range(3)] == [[0, 1], [1, 2], [3]]
    tensors[3].zero_()
    assert parts[2].tolist() == [8, 9, 10, 11]


def test_backward_is_assumed_to_make_the_gradient_from_the_last_element_to_the_first():
    slices = [slice(0, 50), slice(50, 75), slice(75, 100)]
    # Forward takes 0.2; backward has made 25, 50 and 100 of 100 elements.
    found = shares_until_ready(slices, 0.2)
    assert found == pytest.approx([1.0, 0.2 + 0.8 * 0.5, 0.2 + 0.8 * 0.25])
    assert found[0] == 1.0  # exactly the end of the computation
