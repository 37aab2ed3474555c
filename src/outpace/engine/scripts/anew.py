"""Words about scripts that begin anew when a run goes on: nothing says how far they had come."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from types import FrameType
from typing import Final

from outpace.support.place import HERE
from outpace.sync.messages import worker_name

_MOST_NAMED: Final = 8
_SEVERAL: Final = 2  # passes through the data
_REPAIR: Final = (
    "repair it with `model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler)` and "
    "`for epoch in range(sampler.epoch, epochs): sampler.set_epoch(epoch)`, where sampler is "
    "outpace.sampler(data)"
)
REMEDY: Final = (
    "no objects to keep are given to outpace.attach, and outpace.sampler is not used; " + _REPAIR
)
_EPOCHS: Final = (
    "the loop of the script does not begin with sampler.epoch: when the run is resumed, or a "
    "worker replaced, its epochs begin anew, and it takes more steps than planned; " + _REPAIR
)
_STEPS_OF: Final = "last_epoch"  # attribute of a scheduler that counts steps or epochs


def unkept() -> str:
    """Return what a checkpoint lacks of the script's position in its data; "" if it lacks nothing.

    Known is what the script keeps, whether it has asked a sampler for its epoch, and whether a
    function that is being called names `last_epoch` of a scheduler. Objects of classes outside
    torch may count steps. A single pass through the data needs no epoch.
    """
    data, objects = HERE.data, HERE.kept.values()
    if not objects and not data.has_samplers:
        return REMEDY
    may_count = any(not type(each).__module__.startswith("torch.") for each in objects)
    if not data.is_kept or may_count or data.is_asked or (objects and _is_named(_STEPS_OF)):
        return ""
    return "" if data.has_samplers and max(data.passes()) < _SEVERAL else _EPOCHS


def _is_named(attribute: str) -> bool:
    """Return True if one of the functions that are being called has an attribute of this name."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if attribute in frame.f_code.co_names:
            return True
        frame = frame.f_back
    return False


class LostSince:
    """The iterations since a checkpoint that scripts which begin anew have not done again.

    Args:
        number: of the checkpoint from which the run went on; 0: it has just begun.
        lost: iterations that an earlier session has lost since that checkpoint.
    """

    def __init__(self, number: int = 0, lost: int = 0) -> None:
        self._number, self._lost = number, lost

    def then(self, number: int, lost: int) -> int:
        """Return all that is lost since a checkpoint when all go back to it once more.

        lost: iterations since they went on the last time.
        """
        earlier = self._lost if number == self._number else 0
        self._number, self._lost = number, lost + earlier
        return self._lost


def unrepeated(anew: Collection[int], before: Mapping[int, int], now: Mapping[int, int]) -> int:
    """Return the iterations that these workers had done after a checkpoint.

    Args:
        anew: workers whose scripts begin anew.
        before: by worker, the iterations that it had completed at the checkpoint.
        now: by worker, those that it has completed.
    """
    return sum(max(0, now.get(each, 0) - before.get(each, 0)) for each in anew)


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
