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

Order: TypeAlias = tuple[int, int, int]  # place, worker, iteration
Report: TypeAlias = tuple[int, float | None, str | None]  # place, loss, error
NO_TASK: Final = -1  # as place of a report: the task cannot be made


def parameters_at(place: int) -> int:
    """Return the slot that has the parameters of the order at this place."""
    return 2 * place


def gradient_at(place: int) -> int:
    """Return the slot for the gradient of the order at this place."""
    return 2 * place + 1


def serve(orders: Connection, arena: Arena, experiment: Experiment) -> None:
    """Carry out orders until the connection is closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the simulation prints the output of the task
    try:
        workload = experiment.task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        )
        workload.cut(experiment.slices(workload.layers))
        while True:
            orders.send(_report(workload, arena, orders.recv()))
    except OutpaceError as error:
        orders.send((NO_TASK, None, str(error)))
    except (EOFError, ConnectionError):
        pass  # the simulation is over


def _report(workload: Workload, arena: Arena, order: Order) -> Report:
    """Carry out one order."""
    place, worker, iteration = order
    # New views: the workload identifies parameters that it has loaded by their identity.
    parameters = arena.blocks(parameters_at(place))
    try:
        loss, gradient = gradient_of(workload, parameters, worker, iteration)
    except RunError as error:
        return place, None, str(error)
    blocks = [block for block in gradient if isinstance(block, torch.Tensor)]
    arena.write(gradient_at(place), blocks)
    return place, loss, None
