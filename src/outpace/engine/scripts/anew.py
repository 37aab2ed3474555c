"""Words about scripts that begin anew when a run goes on: nothing says how far they had come."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from outpace.sync.messages import worker_name

_MOST_NAMED: Final = 8
REMEDY: Final = "no objects to keep are given to outpace.attach, and outpace.sampler is not used"


def begin_anew(workers: Collection[int], parameters: str) -> str:
    """Say that the scripts of these workers begin anew. parameters: with which ones."""
    numbers = sorted(workers)
    shown = numbers if len(numbers) <= _MOST_NAMED else numbers[:3]
    names = ", ".join(map(worker_name, shown))
    if rest := len(numbers) - len(shown):
        names += f" and {rest} more workers"
    several = len(numbers) > 1
    begin = f"scripts of {names} begin" if several else f"script of {names} begins"
    return f"the {begin} anew, with the parameters {parameters}"
