"""Settings of the process that runs in virtual time change, and restore."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import torch

from outpace.support.repeatable import left_as_they_were, one_thread


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: a run makes many short-lived objects and hardly any cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], 50_000), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextlib.contextmanager
def one_thread_own_randomness() -> Iterator[None]:
    """Compute with one torch thread and float32, and restore the user's settings afterwards.

    One thread, because the rounding of sums over several threads depends on their number. The
    states of the global random generators are restored, too.
    """
    with left_as_they_were(), one_thread():
        torch.set_default_dtype(torch.float32)
        yield
