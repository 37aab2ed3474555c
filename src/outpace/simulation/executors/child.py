"""A process that computes gradients for a simulation."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Final, TypeAlias

import torch

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError, RunError
from outpace.simulation.executors.arena import Arena
from outpace.tasks import Workload, gradient_of

# Number, slot of the parameters and the version of its contents, worker, iteration, slot of the
# result.
Order: TypeAlias = tuple[int, int, int, int, int, int]
Report: TypeAlias = tuple[int, float | None, str | None]  # number, loss, error
_Seen: TypeAlias = dict[int, tuple[int, list[torch.Tensor]]]  # by slot: version and blocks
NO_TASK: Final = -1  # as number of a report: the task cannot be made


def serve(orders: Connection, arena: Arena, experiment: Experiment) -> None:
    """Carry out orders until the connection is closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the simulation prints what the task prints
    try:
        workload = experiment.task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        )
        workload.cut(experiment.slices(workload.layers))
        seen: _Seen = {}
        while True:
            orders.send(_report(workload, arena, seen, orders.recv()))
    except OutpaceError as error:
        orders.send((NO_TASK, None, str(error)))
    except (EOFError, ConnectionError):
        pass  # the simulation is over


def _report(workload: Workload, arena: Arena, seen: _Seen, order: Order) -> Report:
    """Carry out one order."""
    number, slot, contents, worker, iteration, target = order
    if slot not in seen or seen[slot][0] != contents:
        # New views: the workload identifies parameters that it has loaded by their identity.
        seen[slot] = contents, arena.blocks(slot)
    parameters = seen[slot][1]
    try:
        loss, gradient = gradient_of(workload, parameters, worker, iteration)
    except RunError as error:
        return number, None, str(error)
    arena.write(target, [block for block in gradient if isinstance(block, torch.Tensor)])
    return number, loss, None
