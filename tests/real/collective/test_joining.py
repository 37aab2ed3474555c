"""A worker that joins takes only a state that may be one of its model."""

from __future__ import annotations

import pytest
import torch

from outpace.errors import ProtocolError
from outpace.real.collective.joining import receive_state


class FromWorkerTwo:
    """A group in which worker 2 sends its state, and says that it has another size."""

    def __init__(self, said: int) -> None:
        self._next = [torch.tensor([said]), torch.tensor([7, 8, 9], dtype=torch.uint8)]

    def receive(self, values, source, tag):
        assert source == 2
        values.copy_(self._next.pop(0))


def test_a_state_of_a_possible_size_is_received():
    assert receive_state(FromWorkerTwo(3), 2, most=3).tolist() == [7, 8, 9]


@pytest.mark.parametrize("said", [-1, 4, 1 << 60])
def test_a_state_of_an_impossible_size_is_refused_before_memory_is_taken_for_it(said):
    with pytest.raises(ProtocolError, match=r"worker-2 hands over a state of .* at most 3: use"):
        receive_state(FromWorkerTwo(said), 2, most=3)
