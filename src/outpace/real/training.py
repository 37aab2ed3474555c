"""The task or script that a real run trains, for the coordinator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch

from outpace.blocks.block import Block
from outpace.blocks.naming import state_dict_of
from outpace.blocks.slicing import recut
from outpace.config.experiment import Experiment
from outpace.engine.scripts.requirements import require_script
from outpace.real.node.task import run_task
from outpace.real.process.script import run_script
from outpace.support.processes.forking import preload
from outpace.tasks import Evaluation, evaluation_of, require_accuracy


class Training(Protocol):
    """The task or script of one run."""

    @property
    def initial(self) -> list[Block]:
        """The initial blocks of the run, if this process knows them."""

    @property
    def experiment(self) -> Experiment:
        """The configuration for the processes of the run."""

    @property
    def join_s(self) -> float:
        """Seconds that the workers may take to get ready."""

    @property
    def layout(self) -> str:
        """Names and shapes of the parameters, see `blocks.naming`; empty if unknown here."""

    @property
    def work(self) -> Callable[..., object]:
        """The function that a worker's process runs. Its arguments: link, number, experiment."""

    def evaluate(self, blocks: Sequence[Block]) -> Evaluation | None:
        """Evaluate these parameters; None: this process cannot evaluate."""

    def state_dict(
        self, blocks: Sequence[Block], layout: str, buffers: Block | None
    ) -> dict[str, torch.Tensor]:
        """Return the parameters by name. layout, buffers: as sent by worker 0."""


def script_used(text: str) -> dict[str, Any] | None:
    """Return worker 0's report about its script's optimizer; None if it cannot be read."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])  # strict: no NaN, no infinity
    except (msgspec.DecodeError, RecursionError):
        return None


class TaskTraining:
    """Trains the task of a configuration. Raises ConfigError if the experiment does not fit it."""

    join_s = 120.0
    work = staticmethod(run_task)

    def __init__(self, experiment: Experiment) -> None:
        workers, batch_size = experiment.workers, experiment.batch_size
        workload = self._workload = experiment.task.workload(workers, batch_size, experiment.seed)
        require_accuracy(workload, experiment.accuracies)
        self._slices = experiment.slices(workload.layers)
        workload.cut(self._slices)
        optimizer = experiment.optimizer_in_run(workload.samples)
        self.experiment = dataclasses.replace(experiment, optimizer=optimizer)
        self.initial = workload.initial_parameters()
        self.layout = workload.layout

    def evaluate(self, blocks: Sequence[Block]) -> Evaluation:
        blocks = recut(blocks, self._slices)
        return evaluation_of(self._workload, blocks, self.experiment.evaluate.samples)

    def state_dict(
        self, blocks: Sequence[Block], layout: str, buffers: Block | None
    ) -> dict[str, torch.Tensor]:
        return self._workload.state_dict(recut(blocks, self._slices))


class ScriptTraining:
    """Trains a script's model; the coordinator knows only the layout that worker 0 sends.

    files: the folder for files of the workers' scripts; None: the run has no folder.
    """

    initial: list[Block] = []  # noqa: RUF012  # never changed
    layout = ""
    join_s = 1800.0  # a script may take long before it calls attach

    def __init__(self, experiment: Experiment, files: Path | None = None) -> None:
        script = experiment.script
        path, is_elsewhere = Path(script.path), script.is_elsewhere
        if not is_elsewhere:
            require_script(path)
        # Making a torch optimizer imports more of torch, which takes two seconds in each process.
        preload("torch._dynamo")
        # Absolute, because processes start in the folder in which the fork server was started.
        task = dataclasses.replace(script, path=str(path.absolute()))
        self.experiment = experiment if is_elsewhere else dataclasses.replace(experiment, task=task)
        self.work: Callable[..., object] = partial(run_script, files=files)

    def evaluate(self, blocks: Sequence[Block]) -> None:
        return None

    def state_dict(
        self, blocks: Sequence[Block], layout: str, buffers: Block | None
    ) -> dict[str, torch.Tensor]:
        return state_dict_of(layout, blocks, buffers)
