"""The states of scripts with which the processes go on that take lost workers' places."""

from __future__ import annotations

from itertools import pairwise

import torch

from outpace.real.coordinator.saving.newest_states import NewestStates
from outpace.real.net.checkpoint_messages import MOST_REPORTED


def state(number: int, size: int = 8) -> torch.Tensor:
    return torch.full((size,), number % 256, dtype=torch.uint8)


def added(states: NewestStates, iterations: range) -> None:
    for iteration in iterations:
        states.add(0, state(iteration), iteration)


def found(states: NewestStates, first: int) -> int | None:
    data = states.of(0, first)
    return None if data is None else int(data[0])


def test_a_process_gets_the_newest_state_that_is_not_past_its_first_iteration():
    states = NewestStates(2)
    assert not states.has(0)
    added(states, range(0, 50, 10))
    assert states.has(0)
    assert not states.has(1)
    assert found(states, 39) == 30
    assert found(states, 50) == 30  # 40 is computed again, and its state sent again
    assert found(states, 30) == 30


def test_there_is_always_a_state_from_before_and_the_newest_ones_are_all_kept():
    states = NewestStates(1)
    added(states, range(200))
    known = [each.iteration for each in states._of[0]]
    assert (len(known), known[0], known[-4:]) == (16, 0, [196, 197, 198, 199])
    # Further back there are fewer: the gap is at most the age.
    for earlier, later in pairwise(known):
        assert later - earlier <= max(1, 199 - later)
    for first in range(199, -1, -1):
        state_found = found(states, first)
        assert state_found is not None
        assert state_found <= first


def test_large_states_are_few_and_the_first_one_stays():
    states = NewestStates(1)
    for iteration in range(10):
        states.add(0, state(iteration, MOST_REPORTED), iteration)
    known = [each.iteration for each in states._of[0]]
    assert (len(known), known[0], known[-1]) == (4, 0, 9)


def test_what_is_older_than_the_checkpoint_before_the_last_one_is_forgotten():
    states = NewestStates(1)
    added(states, range(0, 100, 10))
    states.saved(0, 45)
    assert found(states, 20) == 20  # the model may still be one of before this checkpoint
    added(states, range(30, 100, 10))
    states.saved(0, 80)
    assert found(states, 45) == 40
    assert found(states, 39) is None
