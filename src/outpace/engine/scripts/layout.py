"""The places of a script's parameters in the flat vector, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from outpace.blocks.packing import DTYPES
from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import Groups


def places_of(members: Sequence[Sequence[int]], layers: Sequence[int], part: slice) -> Groups:
    """Return (number, low, high) of the parameters in a slice, by parameter group.

    Args:
        members: for each parameter group, the numbers of its parameters.
        layers: number of elements of each parameter.
        part: a slice of the flat parameters.
    """
    found = {}
    place = 0
    for number, size in enumerate(layers):
        low, high = max(place, part.start), min(place + size, part.stop)
        if low < high:
            found[number] = number, low - part.start, high - part.start
        place += size
    return [[found[number] for number in group if number in found] for group in members]


def shared_parameters(
    model: torch.nn.Module, in_optimizer: Sequence[torch.Tensor]
) -> tuple[list[str], list[torch.Tensor]]:
    """Return the names and parameters that workers share, in the order of the model.

    These are the parameters in the optimizer's groups that require a gradient. The other parameters
    never change, so they are not sent.

    Raises:
        ConfigError: if the parameters cannot be exchanged.
    """
    owned = {id(p): p for p in in_optimizer}
    named = [(name, p) for name, p in model.named_parameters() if id(p) in owned]
    known = {id(p) for _, p in named}
    unknown = [p for key, p in owned.items() if key not in known]
    if unknown:
        raise ConfigError(
            f"the optimizer has {len(unknown)} parameters that the model does not have"
        )
    named = [(name, p) for name, p in named if p.numel() and p.requires_grad]
    if not named:
        raise ConfigError(
            "no parameter of the optimizer requires a gradient, so nothing can be trained: set "
            "requires_grad of those to train before outpace.attach"
        )
    dtypes = {str(p.dtype) for _, p in named}
    if len(dtypes) != 1 or named[0][1].dtype not in DTYPES.values():
        raise ConfigError(
            f"the optimizer's parameters must share one floating-point dtype, not {sorted(dtypes)}"
        )
    if any(p.is_meta for _, p in named):
        raise ConfigError("the optimizer's parameters are on the meta device: they have no values")
    return [name for name, _ in named], [p for _, p in named]


def values_in(
    blocks: Sequence[torch.Tensor], parameters: Iterable[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the value of each parameter in the blocks: a view unless it spans several blocks."""
    found = []
    server = offset = 0  # where the next part begins
    for parameter in parameters:
        parts: list[torch.Tensor] = []
        missing = parameter.numel()
        while missing:
            part = blocks[server][offset : offset + missing]
            parts.append(part)
            offset += len(part)
            missing -= len(part)
            if offset == len(blocks[server]):
                server, offset = server + 1, 0
        value = parts[0] if len(parts) == 1 else torch.cat(parts)
        found.append(value.view(parameter.shape))
    return found


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Return the gradient, or zeros if there is none. Raises ConfigError if it is sparse."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter)
    if gradient.layout is not torch.strided:
        raise ConfigError("sparse gradients cannot be shared: make the embedding dense")
    return gradient.detach()
