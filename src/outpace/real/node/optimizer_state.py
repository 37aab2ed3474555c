"""The state of a script's optimizer (momentum and the like) as it travels.

A server holds the state of the pieces of parameters in its block. A message lists the entries of
each piece; the tensors follow as bytes. A tensor has either as many elements as the piece or no
dimension, such as the count of steps of Adam.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import Groups, State
from outpace.real.net.messages import DTYPES, StateEntry
from outpace.real.node.packing import dtype_name, packed, unpacked

_MOST_NAMES: Final = 16  # entries of one parameter; torch's optimizers have at most five


def lengths_of(groups: Groups) -> dict[int, int]:
    """Return the number of elements of each parameter's piece, by number of the parameter."""
    return {number: high - low for group in groups for number, low, high in group}


def entries_of(state: Mapping[int, State]) -> tuple[list[StateEntry], torch.Tensor]:
    """Return the entries of a state and the bytes of its tensors; shape (bytes,), uint8.

    Raises:
        ConfigError: if a value of the state is of a kind that cannot be sent.
    """
    entries, tensors = [], []
    for number, values in state.items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                dtype = dtype_name(value.dtype)
                if dtype not in DTYPES or value.ndim > 1:
                    raise _unfit(name, f"a tensor of {dtype} with {value.ndim} dimensions")
                elements = value.numel() if value.ndim else 0
                entries.append(StateEntry(number, name, dtype, elements))
                tensors.append(value)
            elif value is None or isinstance(value, bool | int | float | str):
                entries.append(StateEntry(number, name, value=value))
            else:
                raise _unfit(name, f"a {type(value).__name__}")
    return entries, packed(tensors)


def bytes_due(entries: Sequence[StateEntry], lengths: Mapping[int, int]) -> int | None:
    """Return the size of the tensors of these entries; None if they are not of such pieces."""
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
    """Return the state, by number of the parameter. Raises ValueError if the data does not fit."""
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


def joined(
    states: Sequence[Mapping[int, State]],
    places: Sequence[Groups],
    parameters: Sequence[torch.Tensor],
) -> dict[int, State]:
    """Return the state of whole parameters, by number, from the states of blocks.

    The state of a parameter that not all of its servers have yet is left out. Of numbers that
    are not per element, such as the count of steps, the first server's are taken.

    Args:
        places: for each block, the pieces of parameters in it; see `ScriptModel.places`.
    """
    owners: dict[int, list[State | None]] = {}
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
    """Return the state of a block's pieces from that of whole parameters; the inverse of `joined`.

    Args:
        groups: the pieces of parameters in the block.
        part: the slice of the flat parameters that the block is.
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


# Values with no dimension are numbers of the whole parameter, unless it has no dimension either.
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
            raise _unfit(name, f"a tensor of shape {tuple(value.shape)}")
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


def _kinds(state: State) -> list[tuple[str, bool]]:
    return [(name, isinstance(value, torch.Tensor)) for name, value in state.items()]


def _unfit(name: str, what: str) -> ConfigError:
    return ConfigError(
        f"the optimizer's state {name!r} is {what}: only numbers, texts and tensors like the "
        "parameter can be exchanged with the servers"
    )
