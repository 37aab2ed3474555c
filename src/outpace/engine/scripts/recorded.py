"""A script's model as the records of a run have it, where the run exchanges none of its values.

DistributedDataParallel averages the gradients, and the script's own optimizer takes the steps. So
everything works that works under torchrun: parameters of several dtypes and complex ones, and
parameters outside the model, such as those of a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

import torch

from outpace.blocks.block import Block, parts
from outpace.blocks.naming import layout_of
from outpace.engine.scripts.layout import values_in
from outpace.engine.scripts.model import ScriptModel
from outpace.optim.torch_optimizers import State

_VALUE: Final = "value of the parameter"  # in the saved state of one outside the model


class RecordedModel(ScriptModel):
    """A model and its optimizer. Its flat parameters have the dtype that can hold all of them.

    A complex number is two real ones.
    """

    is_exchanged = False

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model, optimizer)
        self.dtype = reduce(torch.promote_types, (value.dtype for value in self._values()))
        known = {id(p) for p in self.parameters}
        self._outside = [p for group in self.groups for p in group if id(p) not in known]

    def _found(self) -> tuple[list[str], list[torch.Tensor]]:
        owned = {id(p) for group in self.groups for p in group}
        named = [(n, p) for n, p in self.model.named_parameters() if id(p) in owned and p.numel()]
        return [name for name, _ in named], [p for _, p in named]

    def _values(self) -> list[torch.Tensor]:
        """Return real views of the parameters."""
        values = (p.detach() for p in self.parameters)
        return [torch.view_as_real(v) if v.is_complex() else v for v in values]

    @property
    def layers(self) -> list[int]:
        return [value.numel() for value in self._values()]

    @property
    def layout(self) -> str:
        is_complex = [p.is_complex() for p in self.parameters]
        return layout_of(
            zip(self.names, self._values(), strict=True),
            self._aliases(),
            **self._buffer_layout(),
            optimizer=type(self.optimizer).__name__,
            groups=[len(group) for group in self.groups],
            complex=[name for name, is_so in zip(self.names, is_complex, strict=True) if is_so],
        )

    def flat(self) -> torch.Tensor:
        return torch.cat([value.reshape(-1).to("cpu", self.dtype) for value in self._values()])

    def load(self, blocks: Sequence[Block]) -> None:
        values = self._values()
        there = [tensor for block in blocks for tensor in parts(block)]
        with torch.no_grad():
            for value, new in zip(values, values_in(there, values), strict=True):
                value.copy_(new)

    def whole_state(self) -> dict[int, State]:
        found, known = super().whole_state(), self.optimizer.state
        for number, parameter in enumerate(self._outside, len(self.parameters)):
            found[number] = {_VALUE: parameter.detach(), **known.get(parameter, {})}
        return found

    def replace_state(self, state: Mapping[int, State]) -> None:
        inside = len(self.parameters)
        super().replace_state({n: values for n, values in state.items() if n < inside})
        for number, parameter in enumerate(self._outside, inside):
            if number in state:
                values: dict[str, Any] = dict(state[number])
                with torch.no_grad():
                    parameter.copy_(values.pop(_VALUE))
                self.optimizer.state.pop(parameter, None)
                if values:
                    self.optimizer.state[parameter] = values
