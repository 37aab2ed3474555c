"""The model buffers of a user's script that workers average.

They are sent as one vector after the gradient or the parameters, and are added up with these. The
vector has three parts: for each buffer the number of workers that have changed it since the last
average, for each buffer the number of workers that no longer have a buffer of its name and shape,
and the values. A buffer that no worker has changed is not averaged, so that it keeps its bits: a
mask may have infinite entries, and the mean of equal numbers is not always that number. If a worker
does not have a buffer in its shape, each worker keeps its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import torch

from outpace.blocks.packing import dtype_name
from outpace.engine.scripts.model import ScriptModel
from outpace.sync import PeerStrategy

# Sums of numbers of workers are exact in these dtypes.
_AVERAGED: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_BITS: Final = {4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The layout of the vector.

    Attributes:
        shapes: shapes of the buffers, by name.
        dtype: dtype of the vector, which represents the numbers of all buffers exactly.
    """

    shapes: Mapping[str, torch.Size]
    dtype: torch.dtype = torch.float32

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each buffer."""
        return [math.prod(shape) for shape in self.shapes.values()]

    @property
    def elements(self) -> int:
        """Number of elements of the vector."""
        return 2 * len(self.shapes) + sum(self.sizes)

    def of_values(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Return views of the values of each buffer."""
        return list(torch.split(vector[2 * len(self.shapes) :], self.sizes))

    def averaged(self, vector: torch.Tensor) -> list[bool]:
        """Return for each buffer whether workers take its mean from this vector."""
        changed, missing = vector[: 2 * len(self.shapes)].view(2, -1).tolist()
        return [c > 0 and not m for c, m in zip(changed, missing, strict=True)]

    def settled(self, mean: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return a mean in which buffers that are not averaged have their previous values."""
        found = mean.clone()
        pairs = zip(self.of_values(found), self.of_values(before), strict=True)
        for (new, old), is_averaged in zip(pairs, self.averaged(mean), strict=True):
            if not is_averaged:
                new.copy_(old)
        return found

    def added_to(self, layout: str) -> str:
        """Add this layout to a model's layout, so that workers with other buffers are refused."""
        if not self.shapes:
            return layout
        listed = [(name, list(shape)) for name, shape in self.shapes.items()]
        return json.dumps(
            {**json.loads(layout), "averaged": listed, "averaged_dtype": dtype_name(self.dtype)}
        )


class AveragedBuffers:
    """The floating-point buffers of a model that workers average; none unless `averaged`.

    The buffers are looked up by name each time, because a script may assign another tensor.

    Args:
        missing: called once with the names of the buffers that each worker keeps from now on.

    Attributes:
        layout: layout of the vector.
    """

    def __init__(
        self, model: torch.nn.Module, averaged: bool, missing: Callable[[], None] = lambda: None
    ) -> None:
        self._model, self._missing = model, missing
        named = model.named_buffers() if averaged else ()
        found = {name: buffer for name, buffer in named if buffer.dtype in _AVERAGED}
        dtypes = [torch.float32, *(buffer.dtype for buffer in found.values())]
        self.layout = BufferLayout(
            {name: buffer.shape for name, buffer in found.items()},
            reduce(torch.promote_types, dtypes),
        )
        self._own: set[str] = set()  # this worker has no buffer of that name and shape any more
        self._known = torch.empty(0)  # the values after the last average
        self.begin()

    @classmethod
    def of_script(cls, script: ScriptModel, strategy: PeerStrategy | None) -> AveragedBuffers:
        """Return the model buffers of a script, averaged if the strategy averages buffers."""
        averaged = strategy is not None and strategy.buffers == "average"
        return cls(script.model, averaged, script.tell_own_buffers)

    def begin(self) -> None:
        """Note the present values, which all workers have, as the result of the last average."""
        self._known = self._values(self._found(), torch.device("cpu"))

    def _found(self) -> dict[str, torch.Tensor]:
        """Return the buffers that exist and have their original shapes."""
        if not self.layout.shapes:
            return {}
        now, found = dict(self._model.named_buffers()), {}
        for name, shape in self.layout.shapes.items():
            buffer = now.get(name)
            if name in self._own or buffer is None or buffer.shape != shape:
                if not self._own:
                    self._missing()
                self._own.add(name)
            else:
                found[name] = buffer
        return found

    def _values(self, found: Mapping[str, torch.Tensor], device: torch.device) -> torch.Tensor:
        """Return the values of all buffers; zeros for missing ones."""
        dtype, shapes = self.layout.dtype, self.layout.shapes
        pieces = [
            found[name].detach().reshape(-1).to(device, dtype)
            if name in found
            else torch.zeros(math.prod(shape), dtype=dtype, device=device)
            for name, shape in shapes.items()
        ]
        return torch.cat(pieces) if pieces else torch.empty(0, dtype=dtype, device=device)

    def read(self, device: torch.device) -> torch.Tensor:
        """Return the vector of this worker; shape (elements,)."""
        found = self._found()
        values = self._values(found, device)
        if not len(self.layout.shapes):
            return values
        bits = _BITS[self.layout.dtype.itemsize]
        if self._known.device != device:
            self._known = self._known.to(device)
        differs = values.view(bits) != self._known.view(bits)  # NaN is equal to itself
        changed = torch.stack([each.any() for each in torch.split(differs, self.layout.sizes)])
        missing = torch.tensor([name not in found for name in self.layout.shapes], device=device)
        return torch.cat([changed & ~missing, missing, values])

    def load(self, vector: torch.Tensor) -> None:
        """Load the means of the buffers that are averaged."""
        averaged = self.layout.averaged(vector)
        if not any(averaged):
            return
        found = self._found()
        known = torch.split(self._known, self.layout.sizes)
        values = self.layout.of_values(vector)
        with torch.no_grad():
            for name, new, old, is_averaged in zip(
                self.layout.shapes, values, known, averaged, strict=True
            ):
                if is_averaged and name in found:
                    buffer = found[name]
                    buffer.copy_(new.view(buffer.shape))
                    old.copy_(buffer.reshape(-1))
