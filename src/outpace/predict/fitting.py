"""Fitting a model to a run while it goes on, and again when more of it is known."""

from __future__ import annotations

from typing import Protocol

from outpace.predict.interface import Model
from outpace.predict.models import fit
from outpace.predict.recorded.table import RunTimes


class Fitting(Protocol):
    """One fit at a time."""

    model: Model | None
    """What was fitted last, if anything was."""

    def start(self, history: RunTimes) -> None:
        """Begin; not before `done` was told of the one before. May raise what `done` may."""

    def done(self) -> bool:
        """Is the fit that was started over? Raises OutpaceError if it failed."""


class FittingAtOnce:
    """Done when `start` returns: in virtual time it takes none."""

    def __init__(self, kind: str, seed: int) -> None:
        self.model: Model | None = None
        self._kind, self._seed = kind, seed

    def start(self, history: RunTimes) -> None:
        self.model = fit(self._kind, [history], seed=self._seed)

    def done(self) -> bool:
        return True
