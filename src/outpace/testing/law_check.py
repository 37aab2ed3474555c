"""The promises of a law of run times."""

from __future__ import annotations

import math
from random import Random
from typing import Protocol

from outpace.cluster.laws import RunTime
from outpace.support.units import SECOND
from outpace.testing.promises import no_error, require


class Law(Protocol):
    """A law of run times, as the key `compute` of a configuration takes it."""

    def run_time(self, seed: int, workers: int, iterations: int | None = None) -> RunTime:
        """Return the function from worker, iteration and its start (ns) to seconds."""


def check_law(
    law: Law, *, workers: int = 4, iterations: int = 100, fixed_workers: bool = False
) -> None:
    """Check that run times are valid, and that they depend only on what they may depend on.

    Every run time is finite and not negative. It depends only on the seed, the worker, the
    iteration and the start of the iteration, and not on earlier calls or on the number of workers.
    A law with random times has other run times for another seed and for another worker.

        check_law(Lognormal(mean_s=0.2, cv=0.5))

    Args:
        law: an object with run_time(seed, workers, iterations), such as an
            `outpace.cluster.laws.RunTimeLaw`.
        workers: number of workers.
        iterations: number of iterations of each worker.
        fixed_workers: True if the law is valid for this number of workers only, such as recorded
            run times.

    Raises:
        AssertionError: for the first promise that is broken.
    """
    name = type(law).__name__
    asked = [(w, i, i * SECOND // 10) for w in range(workers) for i in range(iterations)]

    def times(seed: int, count: int, order: list[tuple[int, int, int]]) -> list[float]:
        case = f"{name}: seed {seed}, {count} workers, {iterations} iterations"
        with no_error("a law has a run time for each iteration", case, "return seconds"):
            run_time = law.run_time(seed, count, iterations)
            found = {each: run_time(*each) for each in order}
        for (worker, iteration, now), time_s in found.items():
            require(
                0 <= time_s < math.inf,  # the comparison is false for NaN as well
                f"a run time is finite and not negative, not {time_s}",
                f"{case}: worker {worker}, iteration {iteration}, start {now} ns",
                "limit what is drawn, for example by max(0, ...)",
            )
        return [found[each] for each in asked if each in found]

    expected = times(1, workers, asked)
    for other, order in enumerate((asked, asked[::-1], Random(1).sample(asked, len(asked)))):
        require(
            times(1, workers, order) == expected,
            "the same seed has the same run times, in whatever order they are asked",
            f"{name}: {workers} workers, asked in order {('again', 'reversed', 'random')[other]}",
            "draw from numpy's generator that `shape` is given, or from "
            "outpace.support.randomness.generator(seed, purpose, worker)",
        )
    if not fixed_workers:
        require(
            times(1, 16 * workers, asked) == expected,
            "more workers do not change the run times of the others",
            f"{name}: {workers} and {16 * workers} workers",
            "draw for each worker from a separate stream",
        )
    if len(set(expected)) > workers:  # otherwise it draws at most a speed for each worker
        require(
            times(2, workers, asked) != expected,
            "another seed has other run times",
            f"{name}: seeds 1 and 2",
            "draw from the seed that run_time is given",
        )
