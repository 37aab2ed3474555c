"""The result of a sweep, from which terminal, page and `sweep.json` are made."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

import msgspec

from outpace.report.words import number, percent, seconds
from outpace.support.targets import Target
from outpace.support.yaml_files import in_one_line

_MAPPING: Final = re.compile(r"\{kind: ([\w-]+)((?:, \w+: [\w.-]+)*)\}")

Status: TypeAlias = Literal[
    "complete",  # the runs of all seeds ended, and reached the target if there is one
    "pruned",  # the candidate was worse than three quarters of the others at the same virtual time
    "too-slow",  # the candidate would need more virtual time than the best one
    "missed",  # a run ended without the target
    "failed",  # a run failed: it diverged, for example
    "invalid",  # the values do not make a configuration
    "interrupted",  # ended by Ctrl-C or at the end of the budget
]


@dataclass(frozen=True, slots=True)
class Objective:
    """The value by which candidates are compared.

    Attributes:
        kind: `time-to-target`: virtual time until an evaluation reaches the target, in s;
            `accuracy` or `train_loss`: at the end of the run; `time`: virtual time of the run, in
            s, for the task `timing`.
        target: target of `time-to-target`.
    """

    kind: Literal["time-to-target", "accuracy", "train_loss", "time"]
    target: Target | None = None

    @property
    def quantity(self) -> Literal["accuracy", "train_loss"] | None:
        """The quantity of the target, or the quantity that is compared; None for `time`."""
        if self.target is not None:
            return self.target.column
        return self.kind if self.kind in ("accuracy", "train_loss") else None

    @property
    def maximized(self) -> bool:
        return self.kind == "accuracy"

    @property
    def is_time(self) -> bool:
        return self.kind in ("time-to-target", "time")

    @property
    def words(self) -> str:
        """The objective as text, such as `virtual time to 95 % accuracy`."""
        if self.target is not None and self.target.accuracy is not None:
            return f"virtual time to {100 * self.target.accuracy:.4g} % accuracy (s)"
        if self.target is not None:
            return f"virtual time to a training loss of {self.target.value:.4g} (s)"
        words = {"accuracy": "accuracy at the end", "train_loss": "training loss at the end"}
        return words.get(self.kind, "virtual time of the run (s)")

    def show(self, value: float) -> str:
        """Return a value of the objective as text."""
        if self.is_time:
            return seconds(value)
        return percent(value) if self.maximized else number(value)


@dataclass(frozen=True, slots=True)
class Dimension:
    """A key of the space.

    Attributes:
        law: `log`, `uniform` or `int`; empty for a list.
        values: values of a list, or the two ends of a range.
    """

    key: str
    law: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        values = ", ".join(map(in_one_line, self.values))
        return f"{self.law}({values})" if self.law else values


@dataclass(frozen=True, slots=True)
class SeedRun:
    """A run of a candidate with one seed.

    Attributes:
        time_s: virtual time until the target; without it, until the end of the run.
        reached: True if the run reached the target; False if there is none.
        accuracy, train_loss: the last known values.
    """

    seed: int
    time_s: float
    reached: bool
    accuracy: float | None
    train_loss: float | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate that has ended.

    Attributes:
        number: number of the candidate, from 0, in the order in which candidates began.
        values: values of the keys, by key.
        value: the mean of the objective over the seeds; None unless the status is complete.
        low, high: the 95 % interval of the mean; None with one seed.
        ended_at_s: mean virtual time of its runs when they reached the target or ended.
        error: why a run failed, or why the values do not make a configuration.
        runs: one for each seed that was begun.
    """

    number: int
    values: dict[str, Any]
    status: Status
    value: float | None = None
    low: float | None = None
    high: float | None = None
    ended_at_s: float | None = None
    error: str | None = None
    runs: tuple[SeedRun, ...] = ()

    def reached(self, objective: Objective) -> float | None:
        """The last value of the objective's quantity in the first run; None if it is not finite."""
        if objective.quantity is None or not self.runs:
            return None
        value: float | None = getattr(self.runs[0], objective.quantity)
        return value if value is not None and math.isfinite(value) else None

    @property
    def words(self) -> str:
        """The values of the candidate, such as `sync.staleness 4, optimizer.lr 0.23`."""
        texts = {key: shown(value) for key, value in self.values.items()}
        return ", ".join(f"{k} ({v})" if ", " in v else f"{k} {v}" for k, v in texts.items())


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        source: name of the configuration.
        status: `complete`; `budget`, if it was spent before all candidates were tried; or
            `interrupted`.
        objective: the value by which candidates were compared.
        space: the keys and their values.
        method: text that says how candidates were chosen and when they were ended early.
        seeds: seeds of the runs of each candidate.
        candidates: candidates that have ended, by number.
        wall_s: seconds that the sweep took, including earlier sessions.
    """

    source: str
    status: Literal["complete", "budget", "interrupted"]
    objective: Objective
    space: tuple[Dimension, ...]
    method: str
    seeds: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    wall_s: float

    @property
    def best(self) -> Candidate | None:
        """The first of the best complete candidates; None if none is complete."""
        first = next(iter(in_order(self.candidates, self.objective)), None)
        return None if first is None or first.value is None else first

    def to_plain(self) -> dict[str, Any]:
        """Return the content of `sweep.json`."""
        plain = {each.name: getattr(self, each.name) for each in fields(SweepResult)}
        best = None if self.best is None else self.best.number
        found: dict[str, Any] = msgspec.to_builtins({**plain, "best": best})
        return found


def in_order(candidates: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    """Return the candidates, the best first and those without a value last."""
    sign = -1 if objective.maximized else 1

    def key(each: Candidate) -> tuple[bool, float, int]:
        return each.value is None, sign * (each.value or 0.0), each.number

    return sorted(candidates, key=key)


def shown(value: Any) -> str:
    """Return a value of a key: a number with three digits, or a text.

    A mapping with a kind is shown without braces: `ssp, staleness 2`.
    """
    if isinstance(value, float):
        return f"{value:.3g}"
    text = value if isinstance(value, str) else in_one_line(value)
    if found := _MAPPING.fullmatch(text):
        return f"{found[1]}{(found[2] or '').replace(': ', ' ')}"
    return text
