"""The places of a script's samplers in their data, and the random generators there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Sampling(Protocol):
    """A sampler whose place is known, see `engine.scripts.sampler`."""

    epoch: int
    passes: int  # readings of the data that have begun, in earlier processes too
    is_asked: bool  # True once the script has read `epoch`

    def place(self) -> tuple[int, int]:
        """Return the epoch, and how many samples the script has had before the present batch."""

    def leave_out(self, samples: int) -> None:
        """Leave so many samples out when the data are read next."""


class DataPlaces:
    """The samplers of a script, in the order in which it made them.

    Attributes:
        generators: their states when the present batch was drawn, or when the step before ended.
        is_kept: True if checkpoints save the places.
    """

    def __init__(self) -> None:
        self._samplers: list[weakref.ref[Sampling]] = []
        self._restored: list[tuple[int, int]] = []
        self._passes: Sequence[int] = ()  # as `passes`; may have fewer entries
        self._begins: Callable[[], None] | None = None
        self.note: Callable[[], dict[str, Any]] | None = None
        self.generators: dict[str, Any] | None = None
        self.is_kept = False

    def add(self, sampler: Sampling) -> None:
        """A sampler was made; give it its place if the run is resumed."""
        self._samplers.append(weakref.ref(sampler))
        if len(self._samplers) <= len(self._restored):
            self._put(sampler, len(self._samplers) - 1)

    @property
    def has_samplers(self) -> bool:
        """True if the script has made a sampler."""
        return bool(self._samplers)

    def places(self) -> list[tuple[int, int]]:
        """Return epoch and samples had of each sampler."""
        alive = [each() for each in self._samplers]
        return [(0, 0) if each is None else each.place() for each in alive]

    def passes(self) -> list[int]:
        """Return how often the script has begun to read the data of each sampler."""
        return [0 if (sampler := each()) is None else sampler.passes for each in self._samplers]

    @property
    def is_asked(self) -> bool:
        """True if the script has asked one of them for the epoch to begin with."""
        return any((sampler := each()) is not None and sampler.is_asked for each in self._samplers)

    def restore(
        self,
        places: list[tuple[int, int]],
        begins: Callable[[], None],
        passes: Sequence[int] = (),
    ) -> None:
        """Put samplers to their places.

        Args:
            begins: called when data are read for the first time.
            passes: as `passes` returned them.
        """
        self._restored, self._begins, self._passes = places, begins, passes
        for number, known in enumerate(self._samplers[: len(places)]):
            if (sampler := known()) is not None:
                self._put(sampler, number)

    def begin(self) -> None:
        """Data are being read; the first time, set the generators as they were."""
        if self._begins is not None:
            begins, self._begins = self._begins, None
            begins()

    def steps(self) -> None:
        """A step has ended."""
        self.draws()

    def draws(self) -> None:
        """A batch is drawn now."""
        if self.note is not None:
            self.generators = self.note()

    def _put(self, sampler: Sampling, number: int) -> None:
        sampler.epoch, samples = self._restored[number]
        if number < len(self._passes):  # the present one is read to its end
            sampler.passes = max(0, self._passes[number] - 1)
        sampler.leave_out(samples)
