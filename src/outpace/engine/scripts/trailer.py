"""The numbers after a gradient that make all workers take the same step.

A trailer is summed and averaged together with its gradient. So its numbers are sums or means over
the gradients:

- 1, so that a sum says how many gradients it has;
- for each parameter, 1 if the worker has a gradient for it, else 0. If no worker has a gradient for
  a parameter, the step does not change it, as with the optimizer alone;
- the numbers in the optimizer's settings, if an optimizer other than the worker's own takes the
  step: workers at different iterations may have other settings, and the step uses the mean;
- the model buffers that workers average (`buffers`).

The trailer has a separate dtype: a learning rate or a buffer must not be rounded to the dtype of
the gradient.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from outpace.blocks.block import Pieces, StepSettings, Value, parts
from outpace.engine.scripts.buffers import BufferLayout
from outpace.errors import ConfigError

Settings: TypeAlias = Sequence[dict[str, Any]]  # settings of each parameter group, as plain data
# The place of a number in settings: its group, its key and, within lists, its indices.
Place: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Trailer:
    """The layout of a trailer.

    Attributes:
        tensors: number of parameters.
        numbers: the places of the numbers in settings that are sent.
        buffers: layout of the vector of averaged buffers.
    """

    tensors: int
    numbers: Sequence[Place]
    buffers: BufferLayout

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the trailer."""
        return torch.float64 if self.numbers else self.buffers.dtype

    @property
    def elements(self) -> int:
        """Number of elements of the trailer."""
        return 1 + self.tensors + len(self.numbers) + self.buffers.elements

    def appended(
        self,
        gradient: Sequence[torch.Tensor],
        unused: Container[int],
        settings: Settings,
        buffers: torch.Tensor,
    ) -> Pieces:
        """Return a gradient followed by its trailer.

        Args:
            unused: numbers of the parameters without a gradient.
            settings: settings of the optimizer in this step.
            buffers: the vector of this worker's averaged buffers.

        Raises:
            ConfigError: if a setting was a number in `attach` and is not a number now.
        """
        used = [float(number not in unused) for number in range(self.tensors)]
        numbers = [_number(settings, place) for place in self.numbers]
        front = torch.tensor([1.0, *used, *numbers], dtype=self.dtype, device=buffers.device)
        return Pieces([*gradient, torch.cat([front, buffers.to(self.dtype)])])

    def split(
        self, value: Value, latest: Settings
    ) -> tuple[Sequence[torch.Tensor], StepSettings, torch.Tensor]:
        """Return the gradient, the settings of its step, and the mean vector of the buffers.

        Args:
            value: a sum or a mean of gradients with their trailers.
            latest: settings of this worker, for the values that are not sent.
        """
        *gradient, last = parts(value)
        if not gradient:
            gradient, last = [last[: -self.elements]], last[-self.elements :]
        count, used, numbers, buffers = torch.split(
            last, [1, self.tensors, len(self.numbers), self.buffers.elements]
        )
        gradients = max(1, round(float(count)))
        unused = [number for number, share in enumerate(used.tolist()) if not share]
        settings = deepcopy(list(latest)) if self.numbers else list(latest)
        for place, total in zip(self.numbers, numbers.tolist(), strict=True):
            _set(settings, place, total / gradients)
        mean = (buffers / gradients).to(self.buffers.dtype)
        return gradient, StepSettings(settings, unused), mean


def numbers_in(settings: Settings) -> list[Place]:
    """Return the places of all numbers in the settings of an optimizer's groups."""
    return [
        (group, *place)
        for group, of_group in enumerate(settings)
        for key, value in of_group.items()
        for place in _places(key, value)
    ]


def _places(key: Any, value: Any) -> list[Place]:
    if isinstance(value, list | tuple):
        return [(key, *place) for n, entry in enumerate(value) for place in _places(n, entry)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [(key,)] if is_number else []


def _number(settings: Settings, place: Place) -> float:
    found: Any = settings
    try:
        for key in place:
            found = found[key]
        return float(found)
    except (KeyError, IndexError, TypeError, ValueError):
        group, name, *_ = place
        raise ConfigError(
            f"the optimizer's setting {name} of parameter group {group} was a number in "
            "outpace.attach, and workers use the mean of theirs: leave it a number"
        ) from None


def _set(settings: Any, place: Place, value: float) -> None:
    for key in place[:-1]:
        settings = settings[key]
    settings[place[-1]] = value
