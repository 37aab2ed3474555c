"""The states of optimizers of which several servers have a piece each.

An optimizer of a configuration has one parameter, which is all that its server owns. That of a
script has one for each tensor of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def extent_of(number: int, end: int, layers: Sequence[int]) -> slice:
    """Return the elements of the flat parameters that a parameter of an optimizer consists of.

    Args:
        number: of the parameter.
        end: the elements concerned are before this one.
        layers: elements of each tensor of the model, if the optimizer is that of a script; else
            empty.
    """
    if not layers:
        return slice(0, end)
    start = sum(layers[:number])
    return slice(start, start + layers[number])


def is_per_element(value: Any) -> bool:
    """True if a value of the state has an element for each element of the parameter."""
    return isinstance(value, torch.Tensor) and value.ndim > 0


def kinds_of(state: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the names in one parameter's state, each with whether its value is per element.

    Pieces of a state can be joined only if these are the same.
    """
    return [(name, is_per_element(value)) for name, value in state.items()]
