"""Texts about scripts that begin again from their start when a run is resumed."""

from __future__ import annotations

import sys
from collections.abc import Collection
from types import FrameType
from typing import Final

from outpace.support.place import HERE
from outpace.sync.messages import worker_name

_MOST_NAMED: Final = 8
_SEVERAL: Final = 2  # number of passes through the data
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
    "worker replaced, its epochs begin again, and it takes more steps than planned; " + _REPAIR
)
_STEPS_OF: Final = "last_epoch"  # attribute of a scheduler that has the number of steps or epochs


def unkept() -> str:
    """Return what a checkpoint lacks of the script's position in its data; "" if nothing.

    The answer is based on the objects that the script keeps, on whether it has asked a sampler for
    its epoch, and on whether a running function names `last_epoch` of a scheduler. Objects of
    classes outside of torch may count steps. A single pass through the data needs no epoch.
    """
    data, objects = HERE.data, HERE.kept.values()
    if not objects and not data.has_samplers:
        return REMEDY
    may_count = any(not type(each).__module__.startswith("torch.") for each in objects)
    if not data.is_kept or may_count or data.is_asked or (objects and _is_named(_STEPS_OF)):
        return ""
    return "" if data.has_samplers and max(data.passes()) < _SEVERAL else _EPOCHS


def _is_named(attribute: str) -> bool:
    """Return True if a running function has an attribute of this name."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if attribute in frame.f_code.co_names:
            return True
        frame = frame.f_back
    return False


def begin_anew(workers: Collection[int], parameters: str) -> str:
    """Return a text that the scripts of these workers begin again, and with which parameters."""
    numbers = sorted(workers)
    shown = numbers if len(numbers) <= _MOST_NAMED else numbers[:3]
    names = ", ".join(map(worker_name, shown))
    if rest := len(numbers) - len(shown):
        names += f" and {rest} more workers"
    several = len(numbers) > 1
    begin = f"scripts of {names} begin" if several else f"script of {names} begins"
    return f"the {begin} anew, with the parameters {parameters}"
