"""How a worker in virtual time computes a gradient: it sleeps for a drawn run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from outpace.blocks.block import Block
from outpace.cluster import RunTime
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, nanoseconds


class Computing:
    """The part of a worker's context that is about its gradients."""

    def __init__(self, run: VirtualRun, worker: int, run_time: RunTime) -> None:
        self.worker = worker
        self._run, self._run_time = run, run_time
        self._kernel, self._recorder = run.kernel, run.recorder
        self.iteration_finished = partial(run.recorder.iteration_finished, worker)
        limit = run.experiment.stop.iterations
        self._last = math.inf if limit is None else limit

    @property
    def now(self) -> Time:
        return self._kernel.now

    def must_stop(self, iteration: int) -> bool:
        return iteration >= self._last

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block]:
        kernel = self._kernel
        duration_s = self._run_time(self.worker, iteration, kernel.now)
        due = kernel.now + nanoseconds(duration_s)
        gradient = self._run.gradients.submit(parameters, self.worker, iteration, due)
        await kernel.sleep(duration_s)
        self._has_computed()
        return gradient

    def _has_computed(self) -> None:
        self._recorder.gradient_computed(self.worker)
        self._run.finished_step()


def run_time_of(experiment: Experiment) -> RunTime:
    """Return the run times of the workers. Raises ConfigError if the experiment has none."""
    if experiment.compute is None:
        raise ConfigError(
            "compute is missing: virtual time needs to know how long a gradient takes; "
            "name a law of run times"
        )
    return experiment.compute.run_time(
        experiment.seed, experiment.workers, experiment.stop.iterations
    )
