"""Times all-reduces before a run in which the script all-reduces its own gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from outpace.real.collective.group import Group
from outpace.real.net.probes import ProbeTurn
from outpace.support.units import Time


def timed_all_reduces(
    group: Group, budget: Time, device: torch.device | None, now: Callable[[], Time]
) -> Iterator[tuple[int, Time, Time]]:
    """All-reduce zeros of several sizes, all workers of `group` together (`real.net.probes`).

    Args:
        budget: ns. The first two are made even if it takes longer.
        device: of the values; None: the CPU.
        now: returns the time, in ns.

    Yields:
        The size in bytes, and when this worker joined and had the sum, for each all-reduce.

    Raises:
        RuntimeError: if a worker cannot be reached.
    """
    turn = ProbeTurn(0, 1, budget)
    workers = torch.ones(1, dtype=torch.float64, device=device)
    group.all_reduce([workers])
    for _, size in turn.exchanges():
        zeros = torch.zeros(size // torch.float32.itemsize, device=device)
        joined = now()
        group.all_reduce([zeros])
        arrived = now()
        yield size, joined, arrived
        # All workers must do the same, so they go by the same time: the mean.
        total = torch.tensor([arrived - joined], dtype=torch.float64, device=device)
        group.all_reduce([total])
        turn.took(int(total / workers))
