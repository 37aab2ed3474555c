"""The result of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.experiment import display
from outpace.experiment.sweeping.candidate import Candidate
from outpace.experiment.sweeping.objective import Objective
from outpace.experiment.sweeping.space import Dimension, in_words

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy

_COLUMNS: Final = ("number", "status", "value", "low", "high", "ended_at_s", "error")


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        objective: what was looked for.
        source: names the configuration.
        space: the keys and their values.
        candidates: those that have ended, by number.
        best: None if no candidate is complete.
        experiment: of the best candidate.
        seeds: of the runs of each candidate.
        method: how candidates were chosen and ended, in words.
        status: `complete`; `budget`, if it was spent before all candidates were tried; or
            `interrupted`.
        wall_s: seconds that the sweep took, with earlier sessions.
        cpu_s: processor time of the runs in these seconds.
        study: the study in Optuna.
        folder: None if the sweep was kept in memory.
    """

    source: str
    objective: Objective
    space: tuple[Dimension, ...]
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    experiment: Experiment | None
    seeds: tuple[int, ...]
    method: str
    status: str
    wall_s: float
    cpu_s: float
    study: OptunaStudy
    folder: Path | None = None

    def __repr__(self) -> str:
        found = "no complete candidate" if self.best is None else in_words(self.best.values)
        return f"<Sweep of {len(self.candidates)} candidates, {self.objective.words}: {found}>"

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row per candidate. Raises ConfigError without pandas."""
        rows = [
            {**each.values, **{k: v for k, v in each.plain().items() if k in _COLUMNS}}
            for each in self.candidates
        ]
        return display.pandas().DataFrame(rows)
