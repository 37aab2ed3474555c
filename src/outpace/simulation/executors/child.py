"""A process that computes gradients and evaluations for a simulation."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Final, TypeAlias

import torch

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError, RunError
from outpace.simulation.executors.arena import Arena
from outpace.simulation.executors.job import EVALUATION
from outpace.tasks import Evaluation, evaluation_of, gradient_of

# Number, slot of the parameters and the version of its contents, worker (or EVALUATION),
# iteration (or number of samples), slot of the result.
Order: TypeAlias = tuple[int, int, int, int, int, int]
# Number, loss or evaluation, error.
Report: TypeAlias = tuple[int, float | Evaluation | None, str | None]
NO_TASK: Final = -1  # as number of a report: the task cannot be made


def compute(orders: Connection, arena: Arena, experiment: Experiment) -> None:
    """Carry out orders until the connection is closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the simulation prints what the task prints
    try:
        carry_out = _Computer(experiment, arena).carry_out
        while True:
            orders.send(carry_out(orders.recv()))
    except OutpaceError as error:
        orders.send((NO_TASK, None, str(error)))
    except (EOFError, ConnectionError):
        pass  # the simulation is over


class _Computer:
    """Raises ConfigError if the task cannot be made here."""

    def __init__(self, experiment: Experiment, arena: Arena) -> None:
        self._arena = arena
        self._workload = experiment.task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        )
        self._workload.cut(experiment.slices(self._workload.layers))
        self._seen: dict[int, tuple[int, list[torch.Tensor]]] = {}  # by slot

    def carry_out(self, order: Order) -> Report:
        number, slot, contents, worker, iteration, target = order
        if slot not in self._seen or self._seen[slot][0] != contents:
            # New views: the workload identifies parameters that it has loaded by their identity.
            self._seen[slot] = contents, self._arena.blocks(slot)
        parameters = self._seen[slot][1]
        try:
            if worker == EVALUATION:
                return number, evaluation_of(self._workload, parameters, iteration or None), None
            loss, gradient = gradient_of(self._workload, parameters, worker, iteration)
        except RunError as error:
            return number, None, str(error)
        self._arena.write(target, [block for block in gradient if isinstance(block, torch.Tensor)])
        return number, loss, None
