"""The optimizer that a script attached, for any part of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outpace.blocks.division import Range, Ranges, shared, size_of
from outpace.real.net.messages import ScriptOptimizer
from outpace.record.checkpoints import ScriptOptimizer as OptimizerRecord


class ScriptParts:
    """What a server knows of the optimizer of a script.

    A server is told of the tensors in its own part. With each piece of another part comes what
    belongs to the tensors in it.

    Args:
        layers: number of elements of each tensor of the model.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = layers
        self._name, self._settings = "", list[dict[str, Any]]()
        self._members: list[set[int]] = []  # for each parameter group, the numbers of its tensors

    def learn(self, name: str, settings: list[dict[str, Any]], groups: Sequence[Any]) -> None:
        """Take the optimizer of a part.

        groups: see `Initialize`. Raises ValueError if it is not of this model.
        """
        if len(groups) != len(self._members or groups):
            raise ValueError("it has another number of parameter groups")
        if any(number >= len(self._layers) for group in groups for number, _, _ in group):
            raise ValueError("it has a tensor that the model does not have")
        self._name, self._settings = self._name or name, self._settings or settings
        self._members = self._members or [set() for _ in groups]
        for members, group in zip(self._members, groups, strict=True):
            members.update(number for number, _, _ in group)

    def lengths(self, part: Ranges) -> dict[int, int]:
        """Return the number of elements of each tensor in a part, by number of the tensor."""
        return lengths_within(self._layers, part)

    def of(self, part: Ranges) -> ScriptOptimizer:
        """Return the optimizer of a part, all of whose tensors are known."""
        places, place = {}, 0
        for number, size in self.lengths(part).items():
            places[number] = number, place, place + size
            place += size
        groups = [
            [places[number] for number in sorted(members) if number in places]
            for members in self._members
        ]
        return ScriptOptimizer(self._name, self._settings, groups)

    def record(self, part: Ranges) -> OptimizerRecord:
        """Return the optimizer of a piece that is handed over."""
        made = self.of(part)
        return OptimizerRecord(made.optimizer, made.settings, made.groups)


def lengths_within(layers: Sequence[int], part: Ranges) -> dict[int, int]:
    """Return how many elements of each tensor are in a part, by number of the tensor, ascending.

    In the block of the part they lie one after another, in this order.

    layers: number of elements of each tensor.
    """
    found, start = {}, 0
    for number, size in enumerate(layers):
        if mine := shared(part, (Range(start, start + size),)):
            found[number] = size_of(tuple(mine))
        start += size
    return found
