"""Fitting a model to a run while it goes on."""

from __future__ import annotations

from typing import Protocol

from outpace.predict.interface import Model
from outpace.predict.models import fit
from outpace.runtimes.table import RunTimes


class Fitting(Protocol):
    """One fit, that can be started once."""

    def start(self, history: RunTimes) -> None:
        """Begin. May raise what `model` may."""

    def model(self) -> Model | None:
        """What was fitted; None while that is not done. Raises OutpaceError if it failed."""


class AtOnce:
    """Done when `start` returns: in virtual time it takes none."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed = kind, seed
        self._model: Model | None = None

    def start(self, history: RunTimes) -> None:
        self._model = fit(self._kind, [history], seed=self._seed)

    def model(self) -> Model | None:
        return self._model
