"""Seeded random generators and sums on one thread, for repeatable results.

A user's code may use torch's, Python's and numpy's global generators.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def left_as_they_were() -> Iterator[None]:
    """Restore the states of the generators and torch's default dtype after the block."""
    before, dtype = Generators.now(), torch.get_default_dtype()
    try:
        yield
    finally:
        before.restore()
        torch.set_default_dtype(dtype)


def seed_all(number: int) -> None:
    """Seed all generators, torch's on every device."""
    torch.manual_seed(number & (2**63 - 1))
    random.seed(number)
    np.random.seed(number % 2**32)


def states() -> tuple[object, ...]:
    """Return the generators' states; comparing them shows whether a generator was used."""
    _, numbers, place, *_ = np.random.get_state(legacy=True)
    torch_states = [torch.default_generator.get_state(), *states_on_gpus()]
    in_torch = tuple(state.numpy().tobytes() for state in torch_states)
    return in_torch, random.getstate(), np.asarray(numbers).tobytes(), place


def states_on_gpus() -> list[torch.Tensor]:
    """Return the states of torch's generators on GPUs; none if this process has not used a GPU.

    This does not ask torch whether there are GPUs: the question alone would initialize them, which
    takes time and memory, and processes that are forked later could not use them.
    """
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.cuda.get_rng_state_all() if is_used else []


def set_states_on_gpus(states: Sequence[torch.Tensor]) -> int:
    """Set torch's generators on GPUs; return the number of states whose GPU this machine lacks.

    If this process has not used a GPU yet, torch applies the states at its first use.
    """
    here = torch.cuda.device_count() if states else 0
    for device, state in enumerate(states[:here]):
        torch.cuda.set_rng_state(state, device)
    return len(states) - len(states[:here])


class Generators:
    """The states of the generators at one time, torch's on every device."""

    def __init__(self, states: tuple[Any, ...]) -> None:
        self._states = states

    @classmethod
    def now(cls) -> Generators:
        """Return the present states of all generators."""
        on_gpus = states_on_gpus()
        return cls((torch.get_rng_state(), on_gpus, random.getstate(), np.random.get_state()))

    def restore(self) -> None:
        """Restore these states."""
        cpu, on_gpus, python, numpy = self._states
        torch.set_rng_state(cpu)
        set_states_on_gpus(on_gpus)
        random.setstate(python)
        np.random.set_state(numpy)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread in the block: the number of threads changes the rounding of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def one_thread_own_randomness() -> Iterator[None]:
    """Compute with one torch thread and float32, and restore the user's settings afterwards.

    There is one thread because the rounding of sums over several threads depends on their number.
    The states of the global random generators are restored as well.
    """
    with left_as_they_were(), one_thread():
        torch.set_default_dtype(torch.float32)
        yield
