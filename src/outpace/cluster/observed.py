"""Observed run times: replayed from a file, or measured on this computer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from outpace.cluster.laws import (
    RunTime,
    ServiceLaw,
    Slow,
    drawn_run_times,
    drawn_speed,
    slow_factors,
)
from outpace.cluster.regimes import Regimes
from outpace.errors import ConfigError, RunError
from outpace.predict.recorded import Nodes, read, read_run_times
from outpace.support.checks import (
    KINDS,
    Count,
    NotEmpty,
    NotNegative,
    Number,
    Positive,
    Probability,
    check_ranges,
)
from outpace.support.paths import FILE
from outpace.support.randomness import generator
from outpace.support.units import Time


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Run times that are replayed from a file; `outpace.predict.recorded` lists its formats.

    Attributes:
        scale: Factor of all run times.
        wrap: True: begin again with the first iteration after the last recorded one. False: the run
            ends with an error if a worker has done all recorded iterations.
        recorded_workers: For each worker, the recorded worker whose times it replays; empty: worker
            n replays recorded worker n. Workers that replay the same recorded worker start at
            different iterations, evenly spaced, and begin again with the first iteration after the
            last.
        block: Number of iterations in a block. None: replay the iterations in order. Otherwise
            replay blocks of consecutive iterations, drawn for each seed, the same for all workers:
            see `_Blocks`.
        speed_cv: Relative standard deviation of the speed of all workers from run to run; the speed
            is drawn for each seed.
        slow: Periods in which workers are slower.
        path: file of recorded run times.
    """

    path: NotEmpty = field(metadata=FILE)
    scale: Positive = 1.0
    wrap: bool = False
    recorded_workers: tuple[Number, ...] = ()
    block: Count | None = None
    speed_cv: Probability = 0.0
    slow: tuple[Slow, ...] = field(default=())
    kind: Literal["trace"] = "trace"

    def __post_init__(self) -> None:
        check_ranges(self)

    def nodes(self, workers: int) -> Nodes:
        """Return the node of each worker, shape (N,); the worker's number if the file has no nodes.

        Raises ConfigError if the file cannot be read, or has another number of workers.
        """
        known = read(Path(self.path)).node
        if (known == 0).all():  # the file does not give the nodes
            return np.arange(workers)
        if self.recorded_workers:
            return known[list(self.recorded_workers)]
        if len(known) != workers:
            raise ConfigError(
                f"{self.path}: has run times of {len(known)} workers, and there are {workers}"
            )
        return known

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """Return the run times as `RunTimeLaw.run_time` does.

        Raises ConfigError if the file has another number of workers, or fewer iterations; the
        returned function raises RunError for an iteration that is not recorded.
        """
        recorded = read_run_times(Path(self.path))
        if self.recorded_workers:
            recorded = self._replayed(recorded, workers)
        if wrong := sorted(recorded.keys() ^ set(range(workers))):
            has = "has" if wrong[0] in recorded else "has no"
            raise ConfigError(
                f"{self.path}: {has} run times of worker {wrong[0]}, and there are {workers} "
                "workers, numbered from 0"
            )
        for worker in range(workers):
            count = len(recorded[worker])
            if iterations is not None and count < iterations and not self._repeats:
                raise ConfigError(
                    f"{self.path}: has {count} run times of worker {worker}, fewer than the "
                    f"{iterations} iterations of stop.iterations; "
                    "compute.wrap: true begins again with the first"
                )
        slowness = slow_factors(self.slow, workers)
        scale = self.scale * drawn_speed(self.speed_cv, seed)
        times = [(scale * recorded[worker]).tolist() for worker in range(workers)]
        blocks = None
        if self.block is not None:
            blocks = _Blocks(seed, min(map(len, times)), self.block)

        def run_time(worker: int, iteration: int, now: Time) -> float:
            mine = times[worker]
            if blocks is not None:
                iteration = blocks[iteration]
            elif iteration >= len(mine) and not self.wrap:
                raise RunError(
                    f"compute: {self.path} has {len(mine)} run times of worker {worker}, and it "
                    f"is at iteration {iteration}; wrap: true begins again with the first"
                )
            duration_s: float = mine[iteration % len(mine)]
            return duration_s * slowness(worker, now)

        return run_time

    @property
    def _repeats(self) -> bool:
        """True if a run may be longer than the recording."""
        return self.wrap or self.block is not None

    def _replayed(
        self, recorded: dict[int, NDArray[np.float64]], workers: int
    ) -> dict[int, NDArray[np.float64]]:
        """Return the times that each worker replays. Raises ConfigError."""
        chosen = self.recorded_workers
        if len(chosen) != workers:
            raise ConfigError(
                f"compute.recorded_workers must name one for each of the {workers} workers, "
                f"not {len(chosen)}"
            )
        if unknown := sorted(set(chosen) - recorded.keys()):
            raise ConfigError(
                f"compute.recorded_workers: {self.path} has no run times of worker {unknown[0]}"
            )
        found, uses, replays = {}, Counter[int](), Counter(chosen)
        for worker, source in enumerate(chosen):
            times = recorded[source]
            start = uses[source] * len(times) // replays[source]
            found[worker] = np.roll(times, -start)
            uses[source] += 1
        return found


class _Blocks:
    """Recorded iterations, in an order of blocks that is drawn for a seed.

    This is the moving block bootstrap (Künsch, The jackknife and the bootstrap for general
    stationary observations, Annals of Statistics 17, 1989), applied twice. First as many iterations
    are drawn as were recorded, since another recording would be another sample. Then the iterations
    of the run are drawn from these. So times over several seeds have the variance of runs as well
    as the variance of recordings.
    """

    def __init__(self, seed: int, recorded: int, block: int) -> None:
        self._block = min(block, recorded)
        self._starts = recorded - self._block + 1
        source = generator(seed, "blocks of a recording")
        starts = source.integers(self._starts, size=-(-recorded // self._block))
        self._sample = (starts[:, None] + np.arange(self._block)).ravel()[:recorded].tolist()
        self._drawn = generator(seed, "blocks of a run")
        self._of_run: list[int] = []

    def __getitem__(self, iteration: int) -> int:
        """Return the number of the recorded iteration that is replayed."""
        block, place = divmod(iteration, self._block)
        while block >= len(self._of_run):
            self._of_run.append(int(self._drawn.integers(self._starts)))
        found: int = self._sample[self._of_run[block] + place]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Run times of gradients on this computer.

    They are measured before the run, one after the other. Each iteration takes one of these times,
    drawn at random.

    Args:
        samples: Number of gradients to measure.
        scale: Factor of all run times.
        worker_cv: Standard deviation of the workers' speeds, which have mean 1.
        slow: Periods in which workers are slower.
        seconds: The measured times. They are kept in the configuration of the run, so that it
            can be repeated.
    """

    samples: Annotated[int, Field(ge=1, le=10**6)] = 30
    scale: Positive = 1.0
    worker_cv: NotNegative = 0.0
    slow: tuple[Slow, ...] = field(default=())
    seconds: tuple[Positive, ...] = ()
    kind: Literal["measured"] = "measured"

    def __post_init__(self) -> None:
        check_ranges(self)

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """Return the run times like `RunTimeLaw.run_time`. Raises ConfigError if there are none."""
        if not self.seconds:
            raise ConfigError("compute: nothing was measured yet")
        measured = np.array(self.seconds)
        return drawn_run_times(
            lambda source, n: source.choice(measured, n),
            self.scale,
            self.worker_cv,
            self.slow,
            seed,
            workers,
        )


ComputeLaw: TypeAlias = Annotated[ServiceLaw | Regimes | Recorded | Measured, KINDS]
