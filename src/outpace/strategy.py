"""Which programs a configuration asks for: the same in every runtime."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from outpace.config import Experiment
from outpace.programs.context import WorkerContext
from outpace.programs.parameter_server import parameter_server_worker
from outpace.programs.partial_pull import partial_pull_worker

WorkerProgram: TypeAlias = Callable[[WorkerContext], Coroutine[Any, Any, None]]


def worker_program(experiment: Experiment) -> WorkerProgram:
    """What every worker of this run does."""
    if experiment.pull is not None:
        return partial(partial_pull_worker, pull=experiment.pull)
    return parameter_server_worker


def most_unanswered(experiment: Experiment) -> int:
    """How many pulls of one worker a server may owe it, if the worker keeps to its program."""
    return 1 if experiment.pull is None else experiment.pull.ahead
