"""The state of a script's optimizer (such as momentum), whole or cut into blocks.

A server holds the state of the pieces of parameters in its block. A tensor either has as many
elements as the piece, or has no dimension, such as Adam's count of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from outpace.errors import ConfigError
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import Groups, State


def lengths_of(groups: Groups) -> dict[int, int]:
    """Return the number of elements of each parameter's piece, by number of the parameter."""
    return {number: high - low for group in groups for number, low, high in group}


def joined(
    states: Sequence[OptimizerState],
    places: Sequence[Groups],
    parameters: Sequence[torch.Tensor],
) -> dict[int, State]:
    """Return the state of whole parameters, by number, from the states of blocks.

    If not all servers of a parameter have its state yet, the state is left out. Numbers that are
    not per element, such as the count of steps, are taken from the first server.

    Args:
        places: for each block, the pieces of parameters in it; see `ScriptModel.places`.
    """
    owners: dict[int, list[Mapping[str, Any] | None]] = {}
    for state, groups in zip(states, places, strict=True):
        for number in lengths_of(groups):
            owners.setdefault(number, []).append(state.get(number))
    found = {}
    for number, pieces in owners.items():
        known = [piece for piece in pieces if piece is not None]
        if len(known) == len(pieces) and all(_kinds(p) == _kinds(known[0]) for p in known):
            found[number] = {
                name: _whole([piece[name] for piece in known], parameters[number])
                for name in known[0]
            }
    return found


def cut(
    state: Mapping[int, State], groups: Groups, part: slice, starts: Sequence[int]
) -> dict[int, State]:
    """Return the state of a block's pieces from the state of whole parameters.

    Args:
        groups: the pieces of parameters in the block.
        part: the block's slice of the flat parameters.
        starts: where each parameter begins in the flat parameters.
    """
    found = {}
    for group in groups:
        for number, low, high in group:
            if number in state:
                begin = part.start + low - starts[number]
                piece = slice(begin, begin + high - low)
                found[number] = {
                    name: _piece(value, piece) for name, value in state[number].items()
                }
    return found


# Values without dimension are numbers for the whole parameter, unless the parameter has no
# dimension.
_NUMBERS: Final = ("step", "mu_product", "eta", "mu")


def flattened(state: Mapping[str, Any], parameter: torch.Tensor) -> State:
    """Return the state of a parameter with its tensors as vectors. Raises ConfigError."""
    found: State = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            found[name] = value
        elif value.shape == parameter.shape and (value.ndim or name not in _NUMBERS):
            found[name] = value.detach().cpu().reshape(-1)
        elif value.ndim == 0:
            found[name] = value.detach().cpu()
        else:
            raise unfit(name, f"a tensor of shape {tuple(value.shape)}")
    return found


def _piece(value: Any, piece: slice) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (value[piece] if value.ndim else value).clone()


def _whole(values: Sequence[Any], parameter: torch.Tensor) -> Any:
    first = values[0]
    if not isinstance(first, torch.Tensor) or first.ndim == 0:
        return first
    return torch.cat(list(values)).reshape(parameter.shape).to(parameter.device)


def _kinds(state: Mapping[str, Any]) -> list[tuple[str, bool]]:
    return [(name, isinstance(value, torch.Tensor)) for name, value in state.items()]


def unfit(name: str, what: str) -> ConfigError:
    """Return the error for a value of the state that cannot be exchanged."""
    return ConfigError(
        f"the optimizer's state {name!r} is {what}: only numbers, texts and tensors like the "
        "parameter can be exchanged with the servers"
    )
