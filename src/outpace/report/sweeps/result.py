"""The result of a sweep, of which terminal, page and `sweep.json` are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from outpace.report.words import number, percent, seconds, target_words
from outpace.support.targets import Target
from outpace.support.yaml_files import in_one_line

EARLY: Final = ("pruned", "too-slow", "missed")  # ended without a value
WORDS: Final = {"too-slow": "too slow", "missed": "missed the target"}
_MAPPING: Final = re.compile(r"\{kind: ([\w-]+)((?:, \w+: [\w.-]+)*)\}")

Status: TypeAlias = Literal[
    "complete",  # all seeds ended, and reached the target if there is one
    "pruned",  # worse than three quarters of the others at the same virtual time
    "too-slow",  # would need more virtual time than the best one needed
    "missed",  # a run ended without the target
    "failed",  # a run failed: it diverged, for example
    "invalid",  # the values do not make a configuration
    "interrupted",  # by Ctrl-C or the end of the budget
]


@dataclass(frozen=True, slots=True)
class Objective:
    """The value by which candidates are compared.

    Attributes:
        kind: `time-to-target`: virtual time until an evaluation reaches the target, in s;
            `accuracy` or `train_loss`: at the end of the run; `time`: virtual time of the run, in
            s, for the task `timing`.
        target: of `time-to-target`.
    """

    kind: Literal["time-to-target", "accuracy", "train_loss", "time"]
    target: Target | None = None

    @property
    def quantity(self) -> Literal["accuracy", "train_loss"] | None:
        """What the target is about, or what is compared; None for `time`."""
        if self.target is not None:
            return self.target.column
        return self.kind if self.kind in ("accuracy", "train_loss") else None

    @property
    def maximized(self) -> bool:
        return self.kind == "accuracy"

    @property
    def of_time(self) -> bool:
        return self.kind in ("time-to-target", "time")

    @property
    def words(self) -> str:
        """The objective in words, such as `virtual time to 95 % accuracy`."""
        if self.target is not None and self.target.accuracy is not None:
            return f"virtual time to {100 * self.target.accuracy:.4g} % accuracy (s)"
        if self.target is not None:
            return f"virtual time to a training loss of {self.target.value:.4g} (s)"
        words = {"accuracy": "accuracy at the end", "train_loss": "training loss at the end"}
        return words.get(self.kind, "virtual time of the run (s)")

    def to_plain(self) -> dict[str, Any]:
        target = None if self.target is None else self.target.value
        return {"kind": self.kind, "quantity": self.quantity, "target": target}

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Objective:
        """Return the objective that `to_plain` described."""
        if plain["target"] is None:
            return Objective(plain["kind"])
        key = "accuracy" if plain["quantity"] == "accuracy" else "loss"
        return Objective(plain["kind"], Target(**{key: plain["target"]}))


@dataclass(frozen=True, slots=True)
class Dimension:
    """A key of the space.

    Attributes:
        law: `log`, `uniform` or `int`; empty for a list.
        values: of a list; the two ends of a range. Read from `sweep.json`, other values than
            numbers are in words.
    """

    key: str
    law: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        values = ", ".join(map(in_one_line, self.values))
        return f"{self.law}({values})" if self.law else values

    def to_plain(self) -> dict[str, Any]:
        return {"law": self.law, "values": list(map(_plain, self.values))}


@dataclass(frozen=True, slots=True)
class SeedRun:
    """A run of a candidate with one seed.

    Attributes:
        time_s: virtual time until the target; without it, until the end of the run.
        reached: the target; False if there is none.
        accuracy, train_loss: the last values that are known.
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
        number: from 0, in the order in which candidates began.
        values: by key.
        status: see `Status`.
        value: the mean of the objective over the seeds; None unless the status is complete.
        low, high: the 95 % interval of the mean; None with one seed.
        ended_at_s: mean virtual time of its runs when they reached the target or ended.
        error: why a run failed, or the values make no configuration.
        runs: one for each seed that was begun.
        curve: pairs of the virtual time, in s, and the quantity of the objective, of the first
            seed.
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
    curve: tuple[tuple[float, float], ...] = ()

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
        found = [getattr(run, name) for run in self.runs]
        return sum(found) / len(found) if found and None not in found else None

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Candidate:
        """Return the candidate that `asdict` described."""
        runs = tuple(SeedRun(**run) for run in plain["runs"])
        curve = tuple((time_s, value) for time_s, value in plain["curve"])
        return Candidate(**{**plain, "runs": runs, "curve": curve})


@dataclass(frozen=True)
class SweepResult:
    """What a sweep has found.

    Attributes:
        source: names the configuration.
        objective: what was looked for.
        space: the keys and their values.
        candidates: those that have ended, by number.
        best: None if no candidate is complete.
        seeds: of the runs of each candidate.
        method: how candidates were chosen and ended, in words.
        status: `complete`; `budget`, if it was spent before all candidates were tried; or
            `interrupted`.
        wall_s: seconds that the sweep took, with earlier sessions.
        cpu_s: processor time of the runs in these seconds.
    """

    source: str
    objective: Objective
    space: tuple[Dimension, ...]
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    seeds: tuple[int, ...]
    method: str
    status: str
    wall_s: float
    cpu_s: float

    def to_plain(self) -> dict[str, Any]:
        """Return the content of `sweep.json`."""
        ranges = {each.key for each in self.space if each.law}
        return {
            "source": self.source,
            "status": self.status,
            "objective": {**self.objective.to_plain(), "words": self.objective.words},
            "space": {each.key: each.to_plain() for each in self.space},
            "method": self.method,
            "seeds": list(self.seeds),
            "best": None if self.best is None else self.best.number,
            "candidates": [
                {
                    **asdict(each),
                    "values": {
                        key: value if key in ranges else _plain(value)
                        for key, value in each.values.items()
                    },
                }
                for each in self.candidates
            ],
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> SweepResult:
        """Return the result that `to_plain` described."""
        names = Candidate.__slots__
        candidates = [
            Candidate.of({name: each[name] for name in names}) for each in plain["candidates"]
        ]
        return SweepResult(
            plain["source"],
            Objective.of(plain["objective"]),
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

    def show(self, value: float) -> str:
        """Return a value of the objective in words."""
        if self.objective.of_time:
            return seconds(value)
        return percent(value) if self.objective.maximized else number(value)

    @property
    def goal(self) -> str:
        """The target in words, such as `95 % accuracy`."""
        assert self.objective.target is not None
        return target_words(self.objective.target)

    def results(self, each: Candidate) -> list[float]:
        """Return the objective of each run of a complete candidate."""
        name = "time_s" if self.objective.of_time else self.objective.quantity or ""
        return [float(getattr(run, name)) for run in each.runs]

    def counted(self, *status: str) -> int:
        return sum(each.status in status for each in self.candidates)


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


def _plain(value: Any) -> Any:
    """Return a value as `sweep.json` has it: other values than numbers in words."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else in_one_line(value)
