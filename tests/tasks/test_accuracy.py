"""The default accuracy of a task: the share of correct classes."""

from __future__ import annotations

import pytest
import torch

from outpace.tasks.task import fraction_correct

# The largest output is class 2 of 3 everywhere; of the six targets, four are 2.
TARGETS = torch.tensor([[2, 2, 0], [2, 2, 1]])


@pytest.mark.parametrize("place", [1, 2])
def test_classes_of_sequences_are_in_the_last_or_in_the_second_dimension(place):
    sequences = torch.tensor([[2, 2, 0, 1], [2, 2, 1, 0]])
    output = torch.zeros(2, 4, 3)
    output[..., 2] = 1
    assert fraction_correct(output.movedim(2, place), sequences) == 0.5


def test_classes_of_single_samples_are_in_the_second_dimension():
    output = torch.tensor([[0.0, 0.0, 1.0]]).expand(6, 3)
    assert fraction_correct(output, TARGETS.flatten()) == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("shape", "words"),
    [((2, 3, 3), "could be in either dimension"), ((6, 3), "no dimension has classes")],
)
def test_where_the_classes_are_must_be_clear(shape, words):
    with pytest.raises(ValueError, match=words):
        fraction_correct(torch.zeros(shape), TARGETS)
