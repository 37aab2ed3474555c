"""The content of `sweep.json`, as the page about a sweep needs it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outpace.report.words import number, percent, seconds

EARLY: Final = ("pruned", "too-slow", "missed")  # ended without a value
_MAPPING: Final = re.compile(r"\{kind: ([\w-]+)((?:, \w+: [\w.-]+)*)\}")
WORDS: Final = {"too-slow": "too slow", "missed": "missed the target"}


@dataclass(frozen=True, slots=True)
class Dimension:
    """A key of the space.

    Attributes:
        law: `log`, `uniform` or `int`; empty for a list.
        values: of a list in words; the two ends of a range.
    """

    key: str
    law: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A candidate; the attributes are those of `sweep.json`.

    Attributes:
        values: by key; those of a list in words.
        value: the objective; None unless the status is complete.
    """

    number: int
    values: Mapping[str, Any]
    status: str
    value: float | None
    low: float | None
    high: float | None
    ended_at_s: float | None
    error: str | None
    runs: Sequence[Mapping[str, Any]]
    curve: Sequence[Sequence[float]]

    @property
    def words(self) -> str:
        """The values of the candidate, such as `sync.staleness 4, optimizer.lr 0.23`."""
        return ", ".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """A text for each value."""
        values = {key: shown(value) for key, value in self.values.items()}
        return [f"{key} ({v})" if ", " in v else f"{key} {v}" for key, v in values.items()]

    def mean(self, name: str) -> float | None:
        """Return the mean over the runs of `accuracy` or `train_loss`; None if one is missing."""
        found = [run[name] for run in self.runs]
        return sum(found) / len(found) if found and None not in found else None


@dataclass(frozen=True, slots=True)
class SweepData:
    """A sweep.

    Attributes:
        kind, quantity, target: of the objective, see `sweep.json`.
        wanted: the objective in words.
    """

    source: str
    kind: str
    quantity: str | None
    target: float | None
    wanted: str
    space: tuple[Dimension, ...]
    candidates: tuple[Shown, ...]
    best: Shown | None
    seeds: tuple[int, ...]
    method: str
    status: str
    wall_s: float
    cpu_s: float

    @staticmethod
    def of(plain: Mapping[str, Any]) -> SweepData:
        objective = plain["objective"]
        names = Shown.__slots__
        candidates = [Shown(**{name: each[name] for name in names}) for each in plain["candidates"]]
        return SweepData(
            plain["source"],
            objective["kind"],
            objective["quantity"],
            objective["target"],
            objective["words"],
            tuple(
                Dimension(key, each["law"], tuple(each["values"]))
                for key, each in plain["space"].items()
            ),
            tuple(candidates),
            next((each for each in candidates if each.number == plain["best"]), None),
            tuple(plain["seeds"]),
            plain["method"],
            plain["status"],
            plain["wall_s"],
            plain["cpu_s"],
        )

    @property
    def of_time(self) -> bool:
        """True if the objective is a time."""
        return self.kind in ("time-to-target", "time")

    @property
    def maximized(self) -> bool:
        return self.kind == "accuracy"

    def show(self, value: float) -> str:
        """Return a value of the objective in words."""
        if self.of_time:
            return seconds(value)
        return percent(value) if self.kind == "accuracy" else number(value)

    @property
    def goal(self) -> str:
        """The target in words, such as `95 % accuracy`."""
        assert self.target is not None
        if self.quantity == "accuracy":
            return f"{percent(self.target)} accuracy"
        return f"a training loss of {number(self.target)}"

    def results(self, each: Shown) -> list[float]:
        """Return the objective of each run of a complete candidate."""
        name = "time_s" if self.of_time else self.quantity or ""
        return [float(run[name]) for run in each.runs]

    def counted(self, *status: str) -> int:
        return sum(each.status in status for each in self.candidates)


def shown(value: Any) -> str:
    """Return a value of a key: a number with three digits, or a text.

    A mapping with a kind is shown without braces: `ssp, staleness 2`.
    """
    if isinstance(value, float):
        return f"{value:.3g}"
    if found := _MAPPING.fullmatch(str(value)):
        return f"{found[1]}{(found[2] or '').replace(': ', ' ')}"
    return str(value)
