"""Schedules of the learning rate: pure functions of progress.

Progress counts iterations of all workers from 0, with fractions. A configuration may give
epochs, that is, passes through the training data; `in_iterations` converts them for a run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field

from outpace.errors import ConfigError
from outpace.support.checks import KINDS, Positive, Probability, check_ranges, require

Times: TypeAlias = Annotated[tuple[Positive, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WarmUp(ABC):
    """The gradual warm-up that every schedule may begin with.

    For `warmup_epochs` or `warmup_iterations` the schedule's factor is multiplied by a number
    that grows linearly from `warmup_from` to 1 (Goyal et al., Accurate, Large Minibatch SGD,
    2017, section 2.2). The schedule itself also counts from the start of the run.

    Attributes:
        warmup_epochs, warmup_iterations: length of the warm-up; at most one of them.
        warmup_from: factor at the start of the warm-up.
    """

    kind: str = ""
    warmup_epochs: Positive | None = None
    warmup_iterations: Positive | None = None
    warmup_from: Probability = 0.0

    def __post_init__(self) -> None:
        check_ranges(self)
        _require_not_both(self, "warmup_epochs", "warmup_iterations")

    def at(self, iterations: float) -> float:
        """Return the factor of the learning rate after `iterations` iterations."""
        assert self.warmup_epochs is None  # see `in_iterations`
        factor = self._after(iterations)
        length = self.warmup_iterations
        if length is not None and iterations < length:
            factor *= self.warmup_from + (1 - self.warmup_from) * iterations / length
        return factor

    def in_iterations(self, samples: int | None, batch: int) -> Self:
        """Return this schedule with epochs converted to iterations.

        Args:
            samples: training samples per epoch; None: the task has no training samples.
            batch: samples per iteration.

        Raises:
            ConfigError: if the schedule is in epochs and the task has no training samples.
        """
        changes: dict[str, Any] = {}
        for key in (entry.name for entry in fields(self) if entry.name.endswith("epochs")):
            epochs = getattr(self, key)
            if epochs is None:
                continue
            instead = key.replace("epochs", "iterations")
            if samples is None:
                raise ConfigError(
                    f"optimizer.schedule.{key}: this task has no training samples and so no "
                    f"epochs; use {instead}"
                )
            many = isinstance(epochs, tuple)
            # Division comes last, so that an epoch of whole iterations gives an exact integer.
            counted = tuple(n * samples / batch for n in (epochs if many else [epochs]))
            changes |= {key: None, instead: counted if many else counted[0]}
        return replace(self, **changes)

    @abstractmethod
    def _after(self, iterations: float) -> float:
        """Return the factor without the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRate(_WarmUp):
    """A learning rate that does not change."""

    kind: Literal["constant"] = "constant"

    def _after(self, iterations: float) -> float:
        return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecay(_WarmUp):
    """Multiplies the learning rate by `factor` at each of the given times.

    Attributes:
        at_epochs, at_iterations: times, ascending; one of them.
        factor: factor of the learning rate at each of the times.
    """

    kind: Literal["step"] = "step"
    at_epochs: Times | None = None
    at_iterations: Times | None = None
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1

    def __post_init__(self) -> None:
        _WarmUp.__post_init__(self)
        _require_one_of(self, "at_epochs", "at_iterations")
        for key in ("at_epochs", "at_iterations"):
            times = getattr(self, key) or ()
            rising = all(a < b for a, b in pairwise(times))
            require(rising, key, "a list of numbers that increase", list(times))

    def _after(self, iterations: float) -> float:
        assert self.at_iterations is not None
        return float(self.factor ** bisect_right(self.at_iterations, iterations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine(_WarmUp):
    """Half a cosine from 1 down to `final`, reached after `epochs` or `iterations`, then constant.

    The factor is final + (1 − final)·(1 + cos(π·t/T)) / 2 (Loshchilov and Hutter, SGDR, 2017,
    equation 5, without restarts).

    Attributes:
        epochs, iterations: length of the half cosine; one of them.
        final: factor at the end of the half cosine.
    """

    kind: Literal["cosine"] = "cosine"
    epochs: Positive | None = None
    iterations: Positive | None = None
    final: Probability = 0.0

    def __post_init__(self) -> None:
        _WarmUp.__post_init__(self)
        _require_one_of(self, "epochs", "iterations")

    def _after(self, iterations: float) -> float:
        assert self.iterations is not None
        share = min(1.0, iterations / self.iterations)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * share)) / 2


Schedule: TypeAlias = Annotated[ConstantRate | StepDecay | Cosine, KINDS]


def _require_one_of(schedule: _WarmUp, one: str, other: str) -> None:
    given, instead = getattr(schedule, one), getattr(schedule, other)
    require(given is not None or instead is not None, one, f"given, or {other}", given)
    _require_not_both(schedule, one, other)


def _require_not_both(schedule: _WarmUp, one: str, other: str) -> None:
    given = getattr(schedule, one)
    both = given is not None and getattr(schedule, other) is not None
    require(not both, one, f"left out where {other} is given", given)
