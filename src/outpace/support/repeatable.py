"""Seeded random generators and sums on one thread, for repeatable results.

A user's code may use torch's, Python's and numpy's global generators.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def left_as_they_were() -> Iterator[None]:
    """Restore the generators' states and torch's default dtype after the block."""
    python, numpy = random.getstate(), np.random.get_state()
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(state)
        torch.set_default_dtype(dtype)


def seed_all(number: int) -> None:
    """Seed all generators, torch's on every device."""
    torch.manual_seed(number & (2**63 - 1))
    random.seed(number)
    np.random.seed(number % 2**32)


def states() -> tuple[object, ...]:
    """Return the generators' states; comparing them shows whether a generator was used."""
    _, numbers, place, *_ = np.random.get_state(legacy=True)
    torch_state = torch.default_generator.get_state().numpy().tobytes()
    return torch_state, random.getstate(), np.asarray(numbers).tobytes(), place


class Generators:
    """The states of the generators at one time, torch's on every device."""

    def __init__(self, states: tuple[Any, ...]) -> None:
        self._states = states

    @classmethod
    def now(cls) -> Generators:
        """Return their present states."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return cls((torch.get_rng_state(), cuda, random.getstate(), np.random.get_state()))

    def restore(self) -> None:
        """Put the generators into these states."""
        cpu, cuda, python, numpy = self._states
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        random.setstate(python)
        np.random.set_state(numpy)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread in the block, because the number affects the rounding of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
