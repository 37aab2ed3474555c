"""Finds workers whose gradients are equal but should not be, or which differ but should not.

Each worker sends the digest of its first gradient, once. Gradients of one iteration are bitwise
equal only if their workers had the same parameters and the same batch: a script that seeds all
workers alike and does not divide the data trains like one worker, at the cost of all.

Workers that take the same steps must have the same settings and the same model. With an all-reduce,
each worker sends a digest of its optimizer's settings and, now and then, of its model. Each worker
looks for differences in the same table of all digests, so all of them name the same two workers.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from outpace.blocks.block import differences
from outpace.engine.scripts.fingerprints import Fingerprints
from outpace.engine.scripts.trailer import Settings
from outpace.sync.messages import worker_name

_MOST_NAMED: Final = 8


class SameGradients:
    """Compares the first gradients of workers once all have one or have left the training.

    Args:
        workers: the names of all workers.
        warn: called with a warning for each group of workers whose gradients are equal.
    """

    def __init__(self, workers: Sequence[str], warn: Callable[[str], None]) -> None:
        self._workers, self._warn = workers, warn
        # iteration and digest; "" if there was no gradient
        self._found: dict[str, tuple[int, str]] = {}
        self._told: set[tuple[int, str]] = set()

    def add(self, worker: str, iteration: int, digest: str) -> None:
        """Add the digest of a worker's gradient; empty if it has no gradient in this iteration."""
        self._found[worker] = iteration, digest
        self._compare()

    def has_left(self, worker: str) -> None:
        """Do not wait for this worker's gradient any more; compare the gradient if it exists."""
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
    """Return the names as a list in a sentence; if there are many, the first three and a count."""
    shown = list(workers)
    if len(workers) > _MOST_NAMED:
        shown = [*workers[:3], f"{len(workers) - 3} more workers"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _warning(names: Sequence[str], iteration: int) -> str:
    return (
        f"{_named(names)} computed the same gradient in iteration {iteration}, so they train on "
        "the same data and together do the work of one worker: give each its own share, with "
        "DistributedSampler in a script with DistributedDataParallel, with "
        "outpace.sampler(dataset) in one with outpace.attach, or with a different seed, such as "
        "seed + rank (get_rank() or outpace.rank())"
    )


NONE: Final = 0  # digest if there is nothing to compare
_MOST: Final = 2**32 - 5  # a prime, so that all bits of a sum count
# number of all-reduces after which models are compared for the first time, and then again
_FIRST, _EVERY = 10, 100


def model_is_due(number: int) -> bool:
    """True if models are compared in this all-reduce."""
    return number < _FIRST or number % _EVERY == 0 or number & (number - 1) == 0


def model_digest(tensors: Sequence[torch.Tensor]) -> int:
    """Return a digest of these parameters, from 1 to 2^32 − 5."""
    return _digest(Fingerprints(tensors).bytes())


def settings_digest(settings: Settings) -> int:
    """Return a digest of the settings of an optimizer's groups, from 1 to 2^32 − 5."""
    return _digest(repr(settings).encode())


def _digest(data: bytes) -> int:
    found = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(found, "little") % _MOST + 1


def without_numbers(settings: Settings) -> Settings:
    """Return settings without the numbers, because workers average these."""
    return [{key: _without(value) for key, value in group.items()} for group in settings]


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(entry) for entry in value]
    return None if isinstance(value, int | float) and not isinstance(value, bool) else value


def who_differ(digests: Mapping[int, int]) -> tuple[int, int] | None:
    """Return the first worker, and the first one with a different digest; None: all are equal."""
    known = {worker: digest for worker, digest in sorted(digests.items()) if digest != NONE}
    for worker, digest in known.items():
        first = next(iter(known))
        if digest != known[first]:
            return first, worker
    return None


def differing_settings(
    one: int, settings: Settings, other: int, others: Settings, iteration: int
) -> str:
    """Return the warning about two workers whose optimizers have different settings."""
    found = differences(settings, others)
    return (
        f"the optimizers of {worker_name(one)} and {worker_name(other)} have different settings in "
        f"iteration {iteration} ({found}), so their parameters differ from now on: "
        "give the schedulers of all workers the same values, or use a strategy that applies each "
        "gradient on arrival, such as sync.kind=asp"
    )


def differing_models(one: int, other: int, averages: int) -> str:
    """Return the warning about two workers whose models should be equal but differ."""
    return (
        f"the models of {worker_name(one)} and {worker_name(other)} differ after {averages} "
        "all-reduces, though all workers take the same steps: the script changes parameters or the "
        "optimizer in one of them, or they compute on different kinds of processors"
    )
