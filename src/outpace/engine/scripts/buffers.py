"""The model buffers of a user's script that workers average."""

from __future__ import annotations

import torch

from outpace.engine.scripts.model import ScriptModel


class AveragedBuffers:
    """The floating-point model buffers that workers average; empty unless `averaged`."""

    def __init__(self, script: ScriptModel, averaged: bool) -> None:
        named = script.model.named_buffers() if averaged else ()
        found = {name: buffer for name, buffer in named if buffer.is_floating_point()}
        self._buffers = list(found.values())
        self.sizes = {name: buffer.numel() for name, buffer in found.items()}
        self.elements = sum(buffer.numel() for buffer in self._buffers)

    def read(self, like: torch.Tensor) -> torch.Tensor:
        """Return all buffers as one vector; shape (elements,)."""
        return torch.cat(
            [like.new_empty(0), *(b.detach().reshape(-1).to(like) for b in self._buffers)]
        )

    def load(self, values: torch.Tensor) -> None:
        """Copy values into the model's buffers."""
        if self._buffers:
            pieces = torch.split(values, [buffer.numel() for buffer in self._buffers])
            views = [v.view(b.shape) for v, b in zip(pieces, self._buffers, strict=True)]
            with torch.no_grad():
                torch._foreach_copy_(self._buffers, views)
