"""Starts the fork server of a command as a copy of the command, which has imported torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from outpace.errors import ConfigError

if TYPE_CHECKING:
    from outpace.config.experiment import Experiment

_DYNAMO: Final = "torch._dynamo"  # 1.5 s; torch imports it for the first optimizer
_is_the_command: Final = [False]


def this_process_is_the_command() -> None:
    """Note that this process is the command, and not a program that calls its functions.

    A fork server is a copy of this process only then, because only then it is known what the
    process has done before.
    """
    _is_the_command[0] = True


def fork_server_of_run(experiment: Experiment | None) -> None:
    """Start the fork server of a real run. experiment: None if the run is resumed.

    This is called before any part of the run is made, see `forking.start_fork_server_as_copy`.
    """
    from outpace.config.launchers import Local

    if experiment is None or isinstance(experiment.launcher, Local):
        _start(None if experiment is None else [experiment])


def fork_server_of_simulation(experiment: Experiment | None) -> None:
    """Start the fork server of a simulation with processes. experiment: None if it is resumed."""
    from outpace.config.executors import Processes

    if experiment is None:
        return
    if experiment.has_script or isinstance(experiment.executor, Processes):
        _start([experiment])


def fork_server_of_trials(experiments: Sequence[Experiment] | None, on: object) -> None:
    """Start the fork server of a command that carries out many simulated runs.

    Args:
        experiments: the experiments of the runs; None: they are not known yet.
        on: where the runs are carried out; None: on this machine.
    """
    if on is None:
        _start(experiments)


def _start(experiments: Sequence[Experiment] | None) -> None:
    """Start the fork server of these experiments. None: they are not known yet."""
    from outpace.support.processes.forking import start_fork_server_as_copy

    if not _is_the_command[0]:
        return
    for experiment in experiments or ():
        _load_data(experiment)
    needs_dynamo = experiments is None or any(map(_has_torch_optimizer, experiments))
    start_fork_server_as_copy([_DYNAMO] if needs_dynamo else [])


def _load_data(experiment: Experiment) -> None:
    """Read the task's data set once, for this process and the processes forked from it.

    If it cannot be read, the error is raised when the task is made.
    """
    from outpace.support.repeatable import one_thread
    from outpace.tasks import HasData

    if isinstance(experiment.task, HasData):
        # Only one thread is used: a copy would wait for torch's other threads, which it does not
        # have.
        with one_thread(), suppress(ConfigError):
            experiment.task.load()


def _has_torch_optimizer(experiment: Experiment) -> bool:
    """True if a process of the run uses an optimizer of torch."""
    from outpace.sync.parameter_block import imports_dynamo

    optimizer, peers = experiment.optimizer, experiment.peers
    used = [optimizer] if peers is None else [optimizer, peers.common_optimizer(optimizer)]
    return experiment.has_script or any(map(imports_dynamo, used))
