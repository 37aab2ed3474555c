"""The common model of scripts without servers, where each worker's own optimizer takes the steps.

All workers step along the same mean gradient. As long as their optimizers have the same settings,
one model stands for all of them. A worker with other settings, because its scheduler has decided
from what this worker alone has seen, continues with a copy, as its model would differ for real. So
does one whose script has set the parameters to other values than the others' scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from outpace.blocks.block import Value, parts
from outpace.sync.peers.parameters import Common, SharedModel
from outpace.sync.peers.strategy import PeerStrategy

if TYPE_CHECKING:
    from outpace.simulation.scripts.without_servers.run import ScriptPeerSimulation


class CommonModels:
    """The models of all workers, which are the same until optimizers take different steps.

    The result of the run, if it ends now, is the model of the lowest worker among those with most
    commits (`PeerSimulation.model`).

    Args:
        apart: True to keep a model for each worker from the start, because only the workers' own
            processes can take the steps.

    Attributes:
        views: each worker's view of its model, by worker.
        are_apart: True once workers have models that may differ.
    """

    def __init__(self, run: ScriptPeerSimulation, strategy: PeerStrategy, *, apart: bool) -> None:
        self._run, self._workers = run, run.experiment.workers
        # All workers have taken the same number of steps whenever one takes a step, so the
        # settings of all are known.
        self._splits = strategy.averages_gradients
        self._has_parted = False
        self.are_apart = apart
        self._stepping = 0  # the worker that takes a step
        self._best = 0, 0  # commits of the chosen model, negated, and its lowest worker
        first = self._first_model(0)
        self.views = [
            ScriptCommon(self, worker, self._first_model(worker) if apart and worker else first)
            for worker in range(self._workers)
        ]

    def _first_model(self, worker: int) -> SharedModel:
        model = self._new_model(worker)
        self._run.begin_with(worker, model)
        return model

    def _new_model(self, worker: int) -> SharedModel:
        block = self._run.new_script_block(worker, lambda: self._run.settings_of(self._stepping))
        return SharedModel(block, self._workers, lambda _: None)

    def about_to_step(self, view: ScriptCommon) -> None:
        """Give a copy of the model to those workers whose steps are others."""
        self._stepping = view.worker
        others = [
            each
            for each in self.views
            if self._splits and self._run.trains(each.worker) and not self._are_alike(each, view)
        ]
        if others and not self._has_parted:
            self.are_apart = self._has_parted = True
            self._run.warn_of_parting(*sorted((view.worker, others[0].worker)))
        others = [each for each in others if each.model is view.model]
        while others:
            first = others[0]
            copy = self._new_model(first.worker)
            copy.continue_from(view.model)
            for each in [each for each in others if self._are_alike(each, first)]:
                each.continue_with(copy)
            others = [each for each in others if each.model is not copy]
        if view.set is not None:
            view.model.replace(view.set)

    def _are_alike(self, one: ScriptCommon, other: ScriptCommon) -> bool:
        """True if two workers take the same step."""
        if self._run.settings_of(one.worker) != self._run.settings_of(other.worker):
            return False
        if one.model is not other.model:  # one of them may have taken the step already
            return True
        if one.set is None or other.set is None:
            return one.set is other.set
        return all(map(torch.equal, parts(one.set), parts(other.set)))

    def result(self) -> Value:
        """Return the parameters of the lowest worker among those with most commits."""
        return self.views[self._best[1]].read()

    def has_stepped(self, view: ScriptCommon, gradients: int) -> None:
        """Note that this worker has taken a step along so many gradients."""
        before, self._best = self._best, min(self._best, (-view.version, view.worker))
        if self._best != before:
            self._run.model = view.model
        if self._best[0] < before[0]:
            self._run.committed(gradients)

    def decides(self, worker: int) -> bool:
        """True if a state that this worker loads is that of its model."""
        model = self.views[worker].model
        sharing = (each.worker for each in self.views if each.model is model)
        return worker == next(filter(self._run.trains, sharing), worker)


class ScriptCommon(Common):
    """One worker's view of its model."""

    def __init__(self, models: CommonModels, worker: int, model: SharedModel) -> None:
        super().__init__(model)
        self._models, self.worker = models, worker
        # What the worker's script has set the parameters to since its last step.
        self.set: Value | None = None

    @property
    def model(self) -> SharedModel:
        return self._model

    def continue_with(self, model: SharedModel) -> None:
        """Take another model, from its newest version on."""
        self._model, self._version = model, model.newest

    def read(self) -> Value:
        return super().read() if self.set is None else self.set

    def commit(self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0) -> None:
        if self._version.following is None:
            self._models.about_to_step(self)
        super().commit(gradient, divisor, gradients, factor)
        self.set = None
        self._models.has_stepped(self, gradients)
