"""The regret of `outpace advise`: how much later its strategy reaches the target than the best.

The suite is an exhaustive search, and the best strategy is the best in its results. Both strategies
are run again on seeds that neither the search nor the advice has seen, because the best of many
strategies on some seeds is partly the best by chance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.recorded import write_json
from benchmarks.rows import table
from benchmarks.strategies import measuring
from benchmarks.strategies.measuring import in_processes, longest_s
from benchmarks.strategies.outcome import Outcome, path_of, plain_time, settings_of, time_of
from benchmarks.strategies.suite import HERE, Cell

from outpace.errors import DivergenceError, RunError
from outpace.support.estimates import Estimate, TimeTo, ratio_of
from outpace.support.yaml_files import merged, read_yaml, write_yaml

GOAL: Final = 0.03
_SEED: Final = 2000  # of the advice's configuration
FOLDER: Final = HERE / "regrets"
_FRESH: Final = (3000, 3001, 3002, 3003, 3004, 3005, 3006, 3007)


@dataclass(frozen=True, slots=True)
class Regret:
    """The advice for a cell, compared with the suite's best strategy.

    Attributes:
        cell: name of the cell.
        best: the best strategy, as text.
        advised: the advised strategy, as text.
        times: times of the advised strategy, on the fresh seeds.
        best_times: times of the best strategy, on the same seeds.
        origin: `date` and `commit`; empty if the result is not saved.
    """

    cell: str
    best: str
    advised: str
    times: tuple[TimeTo, ...]
    best_times: tuple[TimeTo, ...]
    origin: Mapping[str, str]

    @property
    def row(self) -> tuple[str, str, str, str]:
        """A row of the table of regrets."""
        return self.cell, self.best, self.advised, percent(overall([self]))


def advised(cell: Cell, folder: Path, budget: str | None) -> dict[str, Any]:
    """Return the configuration that `outpace advise` recommends for this cell.

    Args:
        cell: the cell with the paths of its data.
        folder: a new folder, for the advice.
        budget: time limit of the advice, as on its command line; None: until it is complete.

    Raises:
        RunError: if there is no advice.
    """
    folder.mkdir(parents=True)
    configuration = folder / "configuration.yaml"
    data = {
        **cell.data,
        "seed": _SEED,
        "sync": {"kind": "bsp"},
        "stop": {"virtual_time_s": cell.limit_s},
    }
    configuration.write_text(write_yaml(data), "utf-8")
    words = [sys.executable, "-m", "outpace", "advise", str(configuration), "--quiet"]
    words += ["--target-accuracy", str(cell.target), "--out", str(folder / "advice")]
    words += [] if budget is None else ["--budget", budget]
    ended = subprocess.run(words, check=False)
    recommended = folder / "advice" / "recommended.yaml"
    if ended.returncode or not recommended.is_file():
        raise RunError(f"{cell.name}: outpace advise ended with code {ended.returncode}")
    return read_yaml(recommended)


def regret(outcome: Outcome, recommended: Mapping[str, Any], cell: Cell, processes: int) -> Regret:
    """Run the recommended configuration and the suite's best strategy on fresh seeds.

    Args:
        cell: the cell of the outcome, with the paths of its data.

    Raises:
        RunError: if the suite has no best strategy on this cell, or a run fails.
    """
    best, bsp = outcome.best, outcome.bsp
    if best is None or bsp is None:
        raise RunError(f"{cell.name}: no strategy of the suite reached the target on all seeds")
    limit_s = longest_s(cell, bsp)
    end = {"target_accuracy": cell.target, "virtual_time_s": limit_s}
    plain = {key: value for key, value in recommended.items() if key != "stop"}
    ours = [cell.configuration(best.candidate, best.tuned.rate, n, limit_s) for n in _FRESH]
    common = {"stop": end, "evaluate": cell.data["evaluate"]}
    theirs = [merged(plain, {"seed": seed, **common}) for seed in _FRESH]
    work = partial(_time_s, target=cell.target, limit_s=limit_s)
    times = list(in_processes(work, [*theirs, *ours], processes))
    sync = ", ".join(f"{key} {value}" for key, value in recommended["sync"].items())
    return Regret(
        cell.name,
        f"{best.name}, rate {best.tuned.rate:g}",
        f"{sync}, rate {recommended['optimizer']['lr']:g}",
        tuple(times[: len(_FRESH)]),
        tuple(times[len(_FRESH) :]),
        {},
    )


def _time_s(data: Mapping[str, Any], target: float, limit_s: float) -> TimeTo:
    try:
        return measuring.time_to_target(data, target, limit_s)
    except DivergenceError:
        return TimeTo(limit_s, reached=False)


def keep(found: Regret, cell: Cell, origin: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Write the file of a regret."""
    data = {
        **origin,
        "settings": settings_of(cell),
        "best": found.best,
        "advised": found.advised,
        "times": [plain_time(time) for time in found.times],
        "best_times": [plain_time(time) for time in found.best_times],
    }
    write_json(path_of(cell, folder), data)


def kept(cells: Sequence[Cell], folder: Path = FOLDER) -> list[Regret]:
    """Return the saved regrets of these cells, in the order of the cells."""
    found = []
    for cell in cells:
        if not (path := path_of(cell, folder)).is_file():
            continue
        data = json.loads(path.read_text("utf-8"))
        if data["settings"] != settings_of(cell):
            continue  # the regret belongs to other runs than the present suite's
        times, best_times = (tuple(map(time_of, data[name])) for name in ("times", "best_times"))
        origin = {name: data[name] for name in ("date", "commit")}
        found.append(Regret(cell.name, data["best"], data["advised"], times, best_times, origin))
    return found


def overall(found: Sequence[Regret]) -> Estimate:
    """Return the time of the advised strategies divided by the best ones', by pairs of seeds."""
    times = [time for each in found for time in each.times]
    return ratio_of(times, [time for each in found for time in each.best_times])


def goal_met(found: Sequence[Regret]) -> bool | None:
    """True if the regret is at most the goal, False if it is more, None if undecided."""
    ratio = overall(found)
    if ratio.high is not None and ratio.high <= 1 + GOAL:
        return True
    return False if ratio.low is not None and ratio.low > 1 + GOAL else None


def judged(found: Sequence[Regret]) -> str:
    """Return all regrets as a table, with a row for all cells together."""
    lines = table(["cell", "best of the suite", "advised", "regret"], [each.row for each in found])
    return "\n".join([*lines, "", f"Together {verdict(found)}"])


def verdict(found: Sequence[Regret]) -> str:
    """Return the regret of all cells together, and whether the goal is met."""
    word = {True: "met", False: "missed", None: "not decided by the seeds"}[goal_met(found)]
    return f"{percent(overall(found))}; goal {100 * GOAL:.0f} %: {word}."


def percent(ratio: Estimate) -> str:
    """Return by how much a ratio is above 1, such as `+3.2 % (-7.8 to +15.5)`."""
    if ratio.mean is None:
        return "not known"
    low, high = (
        "?" if end is None else f"{100 * (end - 1):+.1f}" for end in (ratio.low, ratio.high)
    )
    return f"{100 * (ratio.mean - 1):+.1f} % ({low} to {high})"
