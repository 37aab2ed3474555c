"""Lets scripts continue with another number of workers than at the checkpoint.

`outpace.sampler` shuffles the data depending only on the epoch, and gives worker r of n the samples
r, r + n, r + 2n and so on. If n workers have had s samples each, the first n * s samples of the
epoch are used, and each of m workers then leaves out n * s / m samples. This is rounded down, so
fewer than m samples are used twice. If workers are at different places, the worker that is furthest
behind counts.

Without servers a file also has the worker's model or the state of its optimizer; a further worker
takes these over as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpace.engine.resuming import ResumePoint, kept_in
from outpace.errors import ConfigError
from outpace.record.checkpoints.trees import read_branch
from outpace.sync.messages import worker_name

PAST_LIMIT: Final = "stop.iterations was reached, or the process was lost, before the checkpoint"


@dataclass(frozen=True, slots=True)
class Redivided:
    """How the scripts of a checkpoint are divided among another number of workers.

    Attributes:
        before: the old number of workers. Worker w begins with the state of the script of worker w
            % before.
        places: epoch and number of samples to leave out, for each sampler.
    """

    before: int
    places: list[tuple[int, int]]

    def source(self, worker: int) -> int:
        """Return the worker whose state this worker begins with."""
        return worker % self.before

    def of(self, worker: int, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state that a worker begins with. state: of worker `worker % before`.

        The random generators of a new worker keep their seeds, because it must not draw the same
        numbers as another worker.
        """
        changed = {**state, "data": self.places}
        if worker >= self.before:
            del changed["random"]
        return changed


def script_files(point: ResumePoint) -> dict[int, Path]:
    """Return the files with which scripts continue, by worker; none for a script that had ended.

    Raises:
        ConfigError: if the number of workers has changed, and one of the scripts had ended.
    """
    before, workers = point.checkpoint.index.workers, len(point.first)
    known = {part.file for part in point.checkpoint.index.parts}
    missing = [worker_name(each) for each in range(before) if kept_in(each) not in known]
    if workers != before and missing:
        raise ConfigError(
            f"--resume: workers cannot change ({before} in the checkpoint, {workers} given): the "
            f"script of {missing[0]} did not train any more, so it is not known how to divide "
            "the data"
        )
    names = {worker: kept_in(worker % before) for worker in range(workers)}
    return {w: (point.path / name).absolute() for w, name in names.items() if name in known}


def past_limit(point: ResumePoint) -> set[int]:
    """Return the workers that were not in training, and whose scripts begin from their start.

    These workers were stopped at stop.iterations, which is higher now, or were lost for good, so
    the checkpoint has no state of their scripts. Without servers no checkpoint is taken once a
    worker has left.
    """
    index, limit = point.checkpoint.index, point.experiment.stop.iterations
    is_same = len(point.first) == index.workers
    if point.experiment.peers is not None or not is_same:
        return set()  # scripts are not divided again once one of them has ended: `script_files`
    known = {part.file for part in index.parts}
    left = {worker for worker in range(index.workers) if kept_in(worker) not in known}
    return {n for n in left - set(index.ended) if limit is None or point.first[n] < limit}


def redivided(point: ResumePoint) -> Redivided | None:
    """Return how scripts continue with another number of workers; None if it is the same.

    Raises:
        ConfigError: for the same reasons as `script_files`, and if a file cannot be read.
    """
    before, workers = point.checkpoint.index.workers, len(point.first)
    if workers == before:
        return None
    files = script_files(point)
    paths = {path.name: path for path in files.values()}
    if before > workers:
        paths = {kept_in(each): point.path / kept_in(each) for each in range(before)}
    try:
        known = [_places_in(path) for path in paths.values()]
    except OSError as error:
        raise ConfigError(f"{point.path}: {error}") from error
    return Redivided(before, _places(known, before, workers))


def _places_in(path: Path) -> list[tuple[int, int]]:
    """Return the epoch and the number of used samples of each sampler of a script."""
    try:  # a real worker without servers also writes its model and optimizer to this file
        found: list[tuple[int, int]] = read_branch(path, "kept", "data")
    except KeyError:
        found = read_branch(path, "data")
    return found


def _places(
    known: Sequence[Sequence[tuple[int, int]]], before: int, workers: int
) -> list[tuple[int, int]]:
    """Return the places of samplers. known: the results of `_places_in` for each old worker."""
    behind = [min(places) for places in zip(*known, strict=False)]
    return [(epoch, samples * before // workers) for epoch, samples in behind]
