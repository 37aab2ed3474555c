"""Fits a model to a run while it goes on, and again when more of it is known."""

from __future__ import annotations

from typing import Protocol

from outpace.predict.interface import Model
from outpace.predict.models import fit
from outpace.predict.recorded.table import RunTimes


class Fitting(Protocol):
    """Fits models, one at a time."""

    model: Model | None
    """The last model that was fitted, if any."""

    def start(self, history: RunTimes) -> None:
        """Begin a fit, when `done` was true of the one before. Raises as `done` does."""

    def done(self) -> bool:
        """True if the fit that was started has ended. Raises OutpaceError if it failed."""


class FittingAtOnce:
    """Fits within `start`: in virtual time a fit takes no time."""

    def __init__(self, kind: str, seed: int) -> None:
        self.model: Model | None = None
        self._kind, self._seed = kind, seed

    def start(self, history: RunTimes) -> None:
        self.model = fit(self._kind, [history], seed=self._seed)

    def done(self) -> bool:
        return True
