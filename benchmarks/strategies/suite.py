"""The cells of the suite: each has a cluster and a task, described in suite.yaml and clusters/."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from benchmarks.released_jobs import read_bytedance

from outpace.errors import ConfigError
from outpace.experiment.advising.candidates import Candidate, candidates
from outpace.predict.recorded import write
from outpace.support.yaml_files import merged, read_yaml
from outpace.tasks.data.files import DATA

HERE: Final = Path(__file__).parent
# In the order of the README's table.
CLUSTERS: Final = (
    "even",
    "slow-workers",
    "bursts",
    "slow-servers",
    "slow-network",
    "recorded",
)
RUNS: Final = Path("runs/strategies")
CONVERTED: Final = RUNS / "recorded.parquet"  # the recorded job, for replay


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the learning rate of a strategy is chosen.

    Attributes:
        runs: number of runs with different rates, on the first seed.
        finalists: number of rates that are also run on the other seeds.
    """

    runs: int
    finalists: int
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cluster and a task, with the settings that all runs on them have in common.

    Attributes:
        data: a configuration without `sync`, `seed` and `stop`.
        target: test accuracy that ends a run.
        limit_s: the longest run of BSP, in virtual time.
        most: the longest run of another strategy, in mean times of BSP.
        patience_s: how long a partial push waits after its quorum, in virtual time.
        only: names of the strategies; empty: all.
    """

    task: str
    cluster: str
    data: Mapping[str, Any]
    seeds: tuple[int, ...]
    tuning: Tuning
    limit_s: float
    most: float
    patience_s: float
    only: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.task}/{self.cluster}"

    @property
    def target(self) -> float:
        return float(self.data["target"]["accuracy"])

    @property
    def first_rate(self) -> float:
        return float(self.data["optimizer"]["lr"])

    def strategies(self) -> list[Candidate]:
        """Return all strategies, BSP first."""
        found = candidates(self.data["workers"], self.patience_s)
        return [each for each in found if not self.only or each.name in self.only]

    def configuration(
        self, strategy: Candidate, rate: float, seed: int, limit_s: float
    ) -> dict[str, Any]:
        """Return the configuration of one run."""
        data = merged(
            self.data,
            {
                "seed": seed,
                "optimizer": {"lr": rate},
                "stop": {"target_accuracy": self.target, "virtual_time_s": limit_s},
            },
        )
        return strategy.applied(data)


def cells(patterns: Sequence[str] = ("*",), source: Path = HERE / "suite.yaml") -> list[Cell]:
    """Return the cells whose name TASK/CLUSTER matches one of the patterns, tasks first.

    A pattern without a slash matches a task or a cluster.

    Raises:
        ConfigError: if a pattern matches no cell, or the file cannot be read.
    """
    suite = read_yaml(source)
    names = [f"{task}/{cluster}" for task in suite["tasks"] for cluster in CLUSTERS]
    chosen = []
    for pattern in patterns:
        found = [name for name in names if _matches(name, pattern)]
        if not found:
            raise ConfigError(
                f"--cells: no cell {pattern}; tasks: {', '.join(suite['tasks'])}; clusters: "
                f"{', '.join(CLUSTERS)}; or TASK/CLUSTER"
            )
        chosen += found
    return [_cell(suite, *name.split("/")) for name in names if name in chosen]


def _matches(name: str, pattern: str) -> bool:
    parts = [name] if "/" in pattern else name.split("/")
    return any(fnmatch(part, pattern) for part in parts)


def _cell(suite: Mapping[str, Any], task: str, cluster: str) -> Cell:
    tuning = suite["tuning"]
    own = dict(suite["tasks"][task])
    most = own.pop("most", suite["most"])
    data = {
        **read_yaml(HERE / "clusters" / f"{cluster}.yaml"),
        "workers": suite["workers"],
        "servers": suite["servers"],
        "executor": {"kind": "serial"},  # one core for each run
        **own,
    }
    return Cell(
        task,
        cluster,
        data,
        tuple(suite["seeds"]),
        Tuning(tuning["runs"], tuning["finalists"], tuple(tuning["seeds"])),
        suite["limit_s"],
        most,
        suite["patience_s"],
    )


def with_data(cell: Cell) -> Cell:
    """Return the cell with the paths of its data sets; convert the recorded job for replay.

    Raises:
        ConfigError: if a file is not in the folder OUTPACE_DATA.
    """
    data = dict(cell.data)
    if "path" in data["task"]:
        data["task"] = {**data["task"], "path": str(_there(data["task"]["path"], cell))}
    if "path" in data["compute"]:
        CONVERTED.parent.mkdir(parents=True, exist_ok=True)
        write(read_bytedance(_there(data["compute"]["path"], cell)), CONVERTED)
        data["compute"] = {**data["compute"], "path": str(CONVERTED.resolve())}
    return replace(cell, data=data)


def _there(name: str, cell: Cell) -> Path:
    folder = os.environ.get(DATA)
    if not folder:
        raise ConfigError(f"{cell.name} needs {name}: set {DATA} to the folder that it is in")
    path = Path(folder).expanduser().resolve() / name
    if not path.is_file():
        raise ConfigError(f"{cell.name} needs {name}, and {DATA} has no such file: {path}")
    return path
