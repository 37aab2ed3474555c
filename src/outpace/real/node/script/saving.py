"""Saves a script without servers for checkpoints, and restores it.

The models of a script are in its own model, and what its optimizer remembers is in its optimizer.
All workers say `may_save` at the same iterations (`PeerStrategy.saved_alike`), and the script's
model does not change from there to the first forward pass that follows. There everything is copied,
as with servers (`engine.scripts.kept`), and written by another thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.config.experiment import Experiment
from outpace.engine.resuming import kept_in, state_of
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import RunError
from outpace.real.net.checkpoint_messages import CheckpointFailed
from outpace.real.node.saving.of_worker import (
    COMMON,
    Restored,
    SavedModels,
    SavedWorker,
    WorkerSaver,
    WorkerView,
)
from outpace.record.checkpoints import Checkpoint, write_shard, write_tensors
from outpace.record.checkpoints.index import Damaged
from outpace.record.checkpoints.trees import Unfit, packed_tree, read_tree
from outpace.support.place import HERE
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.checkpoint.workers import common_state
from outpace.sync.messages import worker_name


class ScriptSaver(WorkerSaver):
    """The requests of the coordinator to save one script.

    Args:
        kept: what the script keeps beside its model.
        is_paused: returns True while a forward pass of this process is not part of the training.
    """

    def __init__(
        self,
        view: WorkerView,
        models: SavedModels,
        experiment: Experiment,
        script: ScriptModel,
        kept: KeptState,
        is_paused: Callable[[], bool],
    ) -> None:
        super().__init__(view, models, experiment)
        self._script, self._kept, self._is_paused = script, kept, is_paused
        self._due: list[int] = []  # requests for the next forward pass
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._tree: dict[str, Any] | None = None  # what the script goes on with

    # -- going on --------------------------------------------------------------------

    def restore(self, first: int, resume: Path | None) -> Restored:
        self._first = self._begins = first
        if resume is None:
            return Restored()
        name = worker_name(self._view.worker)
        try:
            checkpoint = Checkpoint(resume)
            state = state_of(checkpoint, self._experiment, 0)
            tree = self._tree = read_tree(resume / kept_in(self._view.worker))
        except (OSError, Damaged) as error:
            raise RunError(f"{name} cannot read its checkpoint: {error}") from error
        if (outer := self._models.shared) is not None:
            outer.restore(state.parameters, state.optimizer, state.pushes, state.version)
        self._script.load([tree["model"]])
        self._script.replace_state(tree["optimizer"])
        return Restored(state.version, checkpoint.index.updates)

    def begin(self) -> None:
        """Put the script into the state that it had at a checkpoint, if it goes on from one.

        Raises:
            ConfigError: if it keeps other objects now.
        """
        tree, self._tree = self._tree, None
        if tree is not None:
            self._kept.restore(tree["kept"])
        HERE.data.steps()

    def stepped(self) -> None:
        """A step of the script has ended."""
        HERE.data.steps()

    # -- saving ----------------------------------------------------------------------

    def _take(self, number: int) -> None:
        self._due.append(number)
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._forward)

    def _forward(self, *_: Any) -> None:
        """Save the script at the first forward pass of the iteration."""
        if not torch.is_grad_enabled() or self._is_paused():
            return
        assert self._hook is not None
        self._hook.remove()
        self._hook, due, self._due = None, self._due, []
        for number in due:
            if number in self._asked:  # it was not given up
                self._save(number)

    def _save(self, number: int) -> None:
        order, view = self._asked.pop(number), self._view
        script, name = self._script, worker_name(view.worker)
        tree = {
            "kept": self._kept.state(),
            "model": script.flat(),
            "optimizer": script.whole_state(),
        }
        try:
            copy = packed_tree(tree, f"what the script of {name} keeps")
        except Unfit as error:
            view.send(CheckpointFailed(number, str(error)))
            return
        common = self._common_state() if order.common else None
        write = partial(_write, Path(order.folder), self._saved(), common, copy)
        self._write(number, write)

    def _saved(self) -> SavedWorker:
        saved = super()._saved()
        saved.is_complete = self._kept.is_complete
        return saved

    def _common_state(self) -> ShardState:
        """Return the state of the model that all workers have now."""
        if self._models.shared is not None:
            return super()._common_state()
        view = self._view
        return common_state({view.worker: self._begins}, view.results(), 0, self._script.flat(), {})


def _write(
    folder: Path, saved: SavedWorker, common: ShardState | None, copy: dict[str, torch.Tensor]
) -> SavedWorker:
    """Write what there is of a worker; return `saved` with the records."""
    if common is not None:
        saved.common, part = write_shard(folder, common, name=COMMON)
        saved.parts.append(part)
    saved.parts.append(write_tensors(folder / kept_in(saved.worker), copy))
    return saved
