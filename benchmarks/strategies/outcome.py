"""The measurements of the strategies of a cell, and the file that has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.recorded import write_json
from benchmarks.strategies.rates import Tried, Tuned
from benchmarks.strategies.suite import HERE, Cell

from outpace.experiment.advising.candidates import BSP, Candidate
from outpace.support.estimates import NOTHING, Estimate, TimeTo, mean_time, ratio_of

FOLDER: Final = HERE / "results"


@dataclass(frozen=True, slots=True)
class Measured:
    """A strategy on a cell.

    Attributes:
        times: for each seed, the virtual time to the target, or the length of the run without it.
        cpu_s: processor time of all its runs, in seconds.
        diverged: number of runs that diverged, mostly in the search for the rate.
    """

    candidate: Candidate
    tuned: Tuned
    times: tuple[tuple[int, TimeTo], ...]
    cpu_s: float = 0.0
    diverged: int = 0

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def reached(self) -> int:
        """The number of seeds on which the target was reached."""
        return sum(time.reached for _, time in self.times)

    @property
    def time_s(self) -> Estimate:
        return mean_time([time for _, time in self.times])

    def relative_to(self, other: Measured) -> Estimate:
        """Return the time divided by the other strategy's, over pairs of equal seeds."""
        return ratio_of([time for _, time in self.times], [time for _, time in other.times])

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "family": self.candidate.family,
            "sync": dict(self.candidate.sync),
            "beside": dict(self.candidate.beside),
            "rate": self.tuned.rate,
            "at_edge": self.tuned.at_edge,
            "times": [{"seed": seed, **plain_time(time)} for seed, time in self.times],
            "tuning": [
                {"rate": each.rate, "seed": each.seed, **plain_time(each.time)}
                for each in self.tuned.tried
            ],
            "cpu_s": round(self.cpu_s, 1),
            "diverged": self.diverged,
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        tried = [Tried(row["rate"], row["seed"], time_of(row)) for row in data["tuning"]]
        return cls(
            Candidate(data["name"], data["family"], data["sync"], data["beside"]),
            Tuned(data["rate"], data["at_edge"], tuple(tried)),
            tuple((row["seed"], time_of(row)) for row in data["times"]),
            data["cpu_s"],
            data["diverged"],
        )


def plain_time(time: TimeTo) -> dict[str, Any]:
    """Return a time for a file; see `time_of`."""
    return {"time_s": round(time.time_s, 6), "reached": time.reached}


def time_of(data: Mapping[str, Any]) -> TimeTo:
    """Return a time that was read from a file."""
    return TimeTo(data["time_s"], data["reached"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a cell.

    Attributes:
        origin: `date` and `commit` of its runs; several commits if other code continued it.
        strategies: in the order of the candidates; some may be missing.
    """

    cell: Cell
    origin: Mapping[str, str]
    strategies: tuple[Measured, ...] = ()

    @property
    def missing(self) -> list[Candidate]:
        """The strategies that were not measured."""
        known = {each.name for each in self.strategies}
        return [each for each in self.cell.strategies() if each.name not in known]

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def bsp(self) -> Measured | None:
        return next((each for each in self.strategies if each.name == BSP), None)

    @property
    def best(self) -> Measured | None:
        """The strategy with the smallest mean time, among those that always reached the target."""
        sure = [each for each in self.strategies if each.reached == len(each.times)]
        return min(sure, key=lambda each: each.time_s.mean or 0.0, default=None)

    @property
    def alike(self) -> list[Measured]:
        """The strategies, without the best, that these seeds do not distinguish from the best.

        The interval of their time divided by the best one's contains 1.
        """
        winner = self.best
        if winner is None:
            return []
        others = [each for each in self.strategies if each.name != winner.name]
        return [each for each in others if not each.relative_to(winner).excludes(1.0)]

    def relative(self, strategy: Measured) -> Estimate:
        """Return the time of a strategy divided by BSP's."""
        return NOTHING if self.bsp is None else strategy.relative_to(self.bsp)

    def having(self, measured: Measured) -> Outcome:
        found = {each.name: each for each in (*self.strategies, measured)}
        order = [each.name for each in self.cell.strategies()]
        return replace(self, strategies=tuple(found[name] for name in order if name in found))


def path_of(cell: Cell, folder: Path) -> Path:
    return folder / f"{cell.task}.{cell.cluster}.json"


def save(outcome: Outcome, folder: Path = FOLDER) -> None:
    cell = outcome.cell
    data = {
        **outcome.origin,
        "task": cell.task,
        "cluster": cell.cluster,
        "settings": settings_of(cell),
        "strategies": [each.plain() for each in outcome.strategies],
    }
    write_json(path_of(cell, folder), data)


def read(cell: Cell, folder: Path = FOLDER) -> Outcome | None:
    """Return the recorded outcome of a cell; None if there is none, or only with other settings."""
    path = path_of(cell, folder)
    if not path.is_file():
        return None
    data = json.loads(path.read_text("utf-8"))
    if data["settings"] != settings_of(cell):
        return None
    names = {each.name: each for each in cell.strategies()}
    found = [Measured.of(row) for row in data["strategies"]]
    same = [each for each in found if _same(each.candidate, names.get(each.name))]
    return Outcome(cell, {key: data[key] for key in ("date", "commit")}, tuple(same))


def _same(one: Candidate, other: Candidate | None) -> bool:
    return other is not None and (one.sync, one.beside) == (other.sync, other.beside)


def settings_of(cell: Cell) -> dict[str, Any]:
    """Return the settings that the results of a cell depend on, as plain data."""
    settings = {
        "configuration": dict(cell.data),
        "seeds": cell.seeds,
        "tuning": asdict(cell.tuning),
        "limit_s": cell.limit_s,
        "most": cell.most,
    }
    return dict(json.loads(json.dumps(settings)))


def results(cells: Sequence[Cell], folder: Path = FOLDER) -> list[Outcome]:
    """Return the recorded outcomes of these cells, without cells that have none."""
    return [found for cell in cells if (found := read(cell, folder)) is not None]
