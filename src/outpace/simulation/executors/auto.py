"""Computes gradients serially at first, and in processes once the run turns out to be long.

Both ways give bitwise equal gradients, so a decision that depends on the host's clock does not
change the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from outpace.config.experiment import Experiment
from outpace.simulation.executors.job import Executor, Job, Outcome, SerialExecutor
from outpace.simulation.executors.processes import ProcessExecutor, Unusable, cores
from outpace.tasks import Workload

LONG_S: Final = 30.0  # seconds of remaining gradients; processes need some of this time to start
COSTLY_S: Final = 0.002  # seconds of a gradient; for shorter gradients processes save nothing
# most processes, as each holds the data; `kind: processes` can ask for more
MOST_PROCESSES: Final = 16
_LOOK_EVERY: Final = 16  # gradients


class AutoExecutor:
    """Changes to processes when they are expected to save time.

    `share` returns the completed share of the run, in [0, 1]; 0 if it is unknown. Processes are
    used if at least `long_s` seconds of gradients remain and each takes at least `costly_s`
    seconds.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: Workload,
        initial: Sequence[torch.Tensor],
        share: Callable[[], float],
        long_s: float = LONG_S,
        costly_s: float = COSTLY_S,
    ) -> None:
        self._long_s, self._costly_s = long_s, costly_s
        self._experiment, self._workload, self._initial = experiment, workload, initial
        self._share = share
        self._inner: Executor = SerialExecutor(workload)
        self._undecided = cores() > 1
        self._started = time.perf_counter()
        self._gradients, self._spent_s = 0, 0.0
        self._note: str | None = None

    def expect(self, job: Job) -> None:
        try:
            self._inner.expect(job)
        except Unusable as error:
            self._give_up(error)

    def result(self, job: Job) -> Outcome:
        if not self._undecided:
            try:
                return self._inner.result(job)
            except Unusable as error:
                self._give_up(error)
        before = time.perf_counter()
        outcome = self._inner.result(job)
        self._spent_s += time.perf_counter() - before
        self._gradients += 1
        if self._undecided and self._gradients % _LOOK_EVERY == 0:
            self._decide()
        return outcome

    def close(self) -> None:
        self._inner.close()

    def describe(self) -> dict[str, Any]:
        note = {} if self._note is None else {"note": self._note}
        return {**self._inner.describe(), **note}

    def _decide(self) -> None:
        if self._spent_s < self._costly_s * self._gradients:
            return
        elapsed_s, share = time.perf_counter() - self._started, self._share()
        # A run of unknown length will probably last as long again as it has lasted so far.
        remaining_s = elapsed_s * (1 - share) / share if share else elapsed_s
        if remaining_s * self._spent_s / elapsed_s >= self._long_s:
            self._undecided = False
            try:
                processes = min(cores(), self._experiment.workers, MOST_PROCESSES)
                self._inner = ProcessExecutor(
                    self._experiment, self._workload, self._initial, processes
                )
            except (Unusable, OSError) as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._inner.close()
        self._inner = SerialExecutor(self._workload)
        self._note = f"processes were given up: {error}"
