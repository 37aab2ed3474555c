"""The common model of scripts without servers, where each worker's own optimizer takes the steps.

All workers step along the same mean gradient. As long as their optimizers have the same settings,
one model stands for all of them. A worker with other settings, because its scheduler has decided
from what this worker alone has seen, continues with a copy, as its model would differ for real. So
does one whose script has set the parameters to other values than the others' scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from outpace.blocks.block import Value, parts
from outpace.engine.scripts.trailer import Settings
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.peers.parameters import Common, SharedModel

if TYPE_CHECKING:
    from outpace.simulation.peer_parameters import PeerModels
    from outpace.simulation.scripts.blocks import ScriptBlocks


class CommonModels:
    """The models of all workers, which are the same until optimizers take different steps.

    Args:
        before: what each worker had beside the common model at a checkpoint, if anything.

    Attributes:
        model: of the lowest worker among those with most commits.
        views: each worker's view of its model, by worker.
        are_apart: True once workers have models that may differ; from the start if only the
            workers' own processes can take the steps.
    """

    def __init__(
        self, models: PeerModels, blocks: ScriptBlocks, before: Sequence[ShardState | None]
    ) -> None:
        self._models, self._blocks = models, blocks
        # All workers have taken the same number of steps whenever one takes a step, so the
        # settings of all are known.
        self._splits = models.strategy.averages_gradients
        self._has_parted = False
        self.are_apart = blocks.takes_own_steps or any(before)
        self._stepping = 0  # the worker that takes a step
        self.model = models.model
        self._best = 0, 0  # commits of the chosen model, negated, and its lowest worker
        had: dict[int, ShardState | None] = dict(enumerate(before))
        first = self._first_model(0, had)
        self.views = [ScriptCommon(self, 0, first)]
        for worker in range(1, blocks.workers):
            model = self._first_model(worker, had) if self.are_apart else first
            self.views.append(ScriptCommon(self, worker, model))

    def _first_model(self, worker: int, had: Mapping[int, ShardState | None]) -> SharedModel:
        """Return the model of a worker when the run begins, or as it was at a checkpoint.

        had: what each worker had beside the common model then; empty: the run begins.
        """
        model, common = self._new_model(worker), self.model
        if had:
            parameters, optimizer, gradients = common.state()
            if (own := had[worker]) is not None:
                parameters, optimizer = own.parameters, own.optimizer
            model.restore(parameters, optimizer, gradients, common.version)
        return model

    def _new_model(self, worker: int) -> SharedModel:
        block = self._blocks.new(worker, self._settings)
        return SharedModel(block, self._blocks.workers, _uncounted)

    def _settings(self) -> Settings:
        return self._blocks.settings_of(self._stepping)

    def _trains(self, worker: int) -> bool:
        """True if a worker still takes steps."""
        return worker not in self._models.left and not self._blocks.has_left(worker)

    def about_to_step(self, view: ScriptCommon) -> None:
        """Give a copy of the model to those workers whose steps are others."""
        self._stepping = view.worker
        others = [
            each
            for each in self.views
            if self._splits and self._trains(each.worker) and not self._are_alike(each, view)
        ]
        if others and not self._has_parted:
            self.are_apart = self._has_parted = True
            self._blocks.warn_of_parting(*sorted((view.worker, others[0].worker)))
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
        if self._blocks.settings_of(one.worker) != self._blocks.settings_of(other.worker):
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
            self.model = view.model
        if self._best[0] < before[0]:
            self._models.committed(gradients)

    def decides(self, worker: int) -> bool:
        """True if a state that this worker loads is that of its model."""
        model = self.views[worker].model
        sharing = (each.worker for each in self.views if each.model is model)
        return worker == next(filter(self._trains, sharing), worker)


def _uncounted(_: int) -> None:
    """Do nothing at a commit: `CommonModels.has_stepped` counts those of the result."""


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
