"""Converts the state of a script's optimizer (such as momentum) to messages and back.

A message lists the entries of each piece of a parameter; the tensors follow as bytes. A tensor
either has as many elements as the piece, or has no dimension, such as Adam's count of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import torch

from outpace.blocks.packing import DTYPES, dtype_name, packed, unpacked
from outpace.engine.scripts.optimizer_state import unfit
from outpace.optim.torch_optimizers import State
from outpace.real.net.messages import StateEntry

_MOST_NAMES: Final = 16  # most entries of one parameter; torch's optimizers have at most five


def entries_of(state: Mapping[int, State]) -> tuple[list[StateEntry], torch.Tensor]:
    """Return the entries of a state and the bytes of its tensors; shape (bytes,), uint8.

    Raises:
        ConfigError: if the state has a value that cannot be sent.
    """
    entries, tensors = [], []
    for number, values in state.items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                dtype = dtype_name(value.dtype)
                if dtype not in DTYPES or value.ndim > 1:
                    raise unfit(name, f"a tensor of {dtype} with {value.ndim} dimensions")
                elements = value.numel() if value.ndim else 0
                entries.append(StateEntry(number, name, dtype, elements))
                tensors.append(value)
            elif value is None or isinstance(value, bool | int | float | str):
                entries.append(StateEntry(number, name, value=value))
            else:
                raise unfit(name, f"a {type(value).__name__}")
    return entries, packed(tensors)


def bytes_due(entries: Sequence[StateEntry], lengths: Mapping[int, int]) -> int | None:
    """Return the total size of the entries' tensors; None if an entry does not fit the pieces."""
    names = Counter(entry.parameter for entry in entries)
    if any(count > _MOST_NAMES for count in names.values()):
        return None
    size = 0
    for entry in entries:
        length = lengths.get(entry.parameter)
        if length is None or (entry.dtype and entry.dtype not in DTYPES):
            return None
        if entry.dtype:
            if entry.elements not in (0, length):
                return None
            size += max(1, entry.elements) * DTYPES[entry.dtype].itemsize
    return size


def state_from(entries: Sequence[StateEntry], data: torch.Tensor) -> dict[int, State]:
    """Return the state by number of the parameter. Raises ValueError if the data does not fit."""
    tensors = [(place, entry) for place, entry in enumerate(entries) if entry.dtype]
    layout = [
        (str(place), [entry.elements] if entry.elements else [], entry.dtype)
        for place, entry in tensors
    ]
    values = unpacked(layout, data)
    found: dict[int, State] = {}
    for place, entry in enumerate(entries):
        value = values[str(place)] if entry.dtype else entry.value
        found.setdefault(entry.parameter, {})[entry.name] = value
    return found
