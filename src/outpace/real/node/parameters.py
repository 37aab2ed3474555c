"""The parameters and gradients of a user's model, exchanged as one flat vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from outpace.errors import ConfigError
from outpace.real.net.messages import DTYPES


def shared(
    model: torch.nn.Module, groups: Sequence[Sequence[torch.Tensor]]
) -> tuple[list[str], list[torch.Tensor]]:
    """Return the names and parameters in the optimizer's groups, in the order of the model.

    Raises:
        ConfigError: if the parameters cannot be exchanged.
    """
    owned = {id(p): p for group in groups for p in group}
    named = [(name, p) for name, p in model.named_parameters() if id(p) in owned]
    known = {id(p) for _, p in named}
    strange = [p for key, p in owned.items() if key not in known]
    if strange:
        raise ConfigError(
            f"the optimizer has {len(strange)} parameters that the model does not have"
        )
    named = [(name, p) for name, p in named if p.numel()]
    kinds = {str(p.dtype) for _, p in named}
    if len(kinds) != 1 or named[0][1].dtype not in DTYPES.values():
        raise ConfigError(
            f"the optimizer's parameters must share one floating-point dtype, not {sorted(kinds)}"
        )
    if any(p.is_meta for _, p in named):
        raise ConfigError("the optimizer's parameters are on the meta device: they have no values")
    return [name for name, _ in named], [p for _, p in named]


def like(parameters: Iterable[torch.Tensor], blocks: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the value of each parameter from blocks: a view unless it spans several blocks."""
    found = []
    server = place = 0  # of the next part
    for parameter in parameters:
        parts: list[torch.Tensor] = []
        missing = parameter.numel()
        while missing:
            part = blocks[server][place : place + missing]
            parts.append(part)
            place += len(part)
            missing -= len(part)
            if place == len(blocks[server]):
                server, place = server + 1, 0
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        found.append(whole.view(parameter.shape))
    return found


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Return the gradient, or zeros if there is none. Raises ConfigError if it is sparse."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter)
    if gradient.layout is not torch.strided:
        raise ConfigError("sparse gradients cannot be shared: make the embedding dense")
    return gradient.detach()


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype in wire messages."""
    return str(dtype).removeprefix("torch.")
