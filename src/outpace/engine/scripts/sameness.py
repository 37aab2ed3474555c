"""Whether workers that take the same steps have the same settings and the same model.

Each worker sends two digests with an all-reduce, of the settings of its optimizer and, now and
then, of its model. Each finds the differences in the same table of all digests. So all of them
name the same two workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from outpace.engine.scripts.fingerprints import Fingerprints
from outpace.engine.scripts.tail import Settings
from outpace.sync.messages import worker_name

NONE: Final = 0  # the digest of what is not compared
_MOST: Final = 2**32 - 5  # a prime, so that all bits of a sum count
_FIRST, _EVERY = 10, 100  # models are compared after so many all-reduces, and each so many


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
    """Return settings without their numbers, which workers average."""
    return [{key: _without(value) for key, value in group.items()} for group in settings]


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(entry) for entry in value]
    return None if isinstance(value, int | float) and not isinstance(value, bool) else value


def who_differ(digests: Mapping[int, int]) -> tuple[int, int] | None:
    """Return the first worker and the first one whose digest differs from its; None: none does."""
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
    several = len(settings) > 1
    found = [
        f"{key}{f' of parameter group {number}' * several} {group.get(key)} and {theirs.get(key)}"
        for number, (group, theirs) in enumerate(zip(settings, others, strict=False))
        for key in {**group, **theirs}
        if repr(group.get(key)) != repr(theirs.get(key))
    ]
    if len(settings) != len(others):
        found.append(f"{len(settings)} and {len(others)} parameter groups")
    return (
        f"the optimizers of {worker_name(one)} and {worker_name(other)} have different settings in "
        f"iteration {iteration} ({'; '.join(found)}), so their parameters differ from now on: "
        "give the schedulers of all workers the same values, or use a strategy with servers"
    )


def differing_models(one: int, other: int, averages: int) -> str:
    """Return the warning about two workers whose models should be equal and are not."""
    return (
        f"the models of {worker_name(one)} and {worker_name(other)} differ after {averages} "
        "all-reduces, though all workers take the same steps: the script changes parameters or the "
        "optimizer in one of them, or they compute on different kinds of processors"
    )
