"""Finds workers of a script that compute the same gradient, most likely from the same data.

Each worker sends the digest of its first gradient, once. Gradients of one iteration are bitwise
equal only if their workers had the same parameters and the same batch: a script that seeds all
workers alike and does not share the data out trains like one worker, at the cost of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

_MOST_NAMED: Final = 8


class SameGradients:
    """Compares the first gradients of workers, as soon as all have one or have left the training.

    Args:
        workers: the names of all workers.
        warn: called with a warning for each group of workers whose gradients are equal.
    """

    def __init__(self, workers: Sequence[str], warn: Callable[[str], None]) -> None:
        self._workers, self._warn = workers, warn
        self._found: dict[str, tuple[int, str]] = {}  # iteration and digest; "" if there was none
        self._told: set[tuple[int, str]] = set()

    def add(self, worker: str, iteration: int, digest: str) -> None:
        """Take the digest of a worker's gradient; empty if it has none in this iteration."""
        self._found[worker] = iteration, digest
        self._compare()

    def has_left(self, worker: str) -> None:
        """Do not wait for this worker's gradient any more; compare it if it is there."""
        if worker not in self._found:
            self._found[worker] = 0, ""
            self._compare()

    def _compare(self) -> None:
        if len(self._found) < len(self._workers):
            return
        groups = defaultdict(list)
        for worker in self._workers:
            groups[self._found[worker]].append(worker)
        for gradient, names in groups.items():
            iteration, digest = gradient
            if digest and len(names) > 1 and gradient not in self._told:
                self._told.add(gradient)
                self._warn(_warning(names, iteration))


def _named(workers: Sequence[str]) -> str:
    """Return the names as a list in words; of many, only the first three and a count."""
    shown = list(workers)
    if len(workers) > _MOST_NAMED:
        shown = [*workers[:3], f"{len(workers) - 3} more workers"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _warning(names: Sequence[str], iteration: int) -> str:
    return (
        f"{_named(names)} computed the same gradient in iteration {iteration}, so they train on "
        "the same data and together do the work of one worker: give each its own share, with "
        "DistributedSampler in a script with DistributedDataParallel, with "
        "outpace.sampler(dataset) in one with outpace.attach, or with a seed of its own, such as "
        "seed + rank (get_rank() or outpace.rank())"
    )
