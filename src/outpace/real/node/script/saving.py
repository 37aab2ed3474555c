"""Saves a script without servers for checkpoints, and restores it.

What a script keeps is copied when it begins the first forward pass of an iteration, as with servers
(`engine.scripts.kept`). What its program has is taken where the program says `may_save`, at the end
of the iteration before. In between, only an average with another worker may change its model.

Workers that average in pairs, or never (`PeerStrategy.saved_apart`), are all asked at one moment,
when no average is under way. A script that computes a gradient then is saved at the end of the
iteration, without what averages have changed since it was asked. So the mean of the models is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.blocks.block import Value
from outpace.config.experiment import Experiment
from outpace.engine.resuming import kept_in, model_of
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.redividing import Redivided
from outpace.optim import OptimizerState
from outpace.real.net.checkpoint_messages import (
    MOST_COPIES,
    MOST_KEPT,
    NotSaved,
    TakeCheckpoint,
)
from outpace.real.node.saving.of_worker import COMMON, SavedModels, WorkerSaver
from outpace.real.node.saving.saver import PartFiles, SavedPart
from outpace.real.node.script.keeping import packed_state
from outpace.real.node.script.parameters import Changes
from outpace.record.checkpoints.trees import Unfit, read_tree
from outpace.record.totals import Totals
from outpace.support.place import HERE
from outpace.support.units import Time
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import common_state, state_of_worker

if TYPE_CHECKING:
    from outpace.real.node.following import FollowingWorker
    from outpace.real.node.peers.peer import PeerWorker


@dataclass(slots=True)
class _Due:
    """The state of a worker's program that waits for the next forward pass of its script.

    Attributes:
        now: the time of the run.
        totals: the sums of this worker until then.
        saved: the worker's part of the checkpoint, without files.
        common: the model that all workers have, if it is asked for.
        own: what the worker has beside it and its script, if anything.
    """

    order: TakeCheckpoint
    now: Time
    totals: Totals
    saved: SavedPart
    common: ShardState | None
    own: ShardState | None


class SavedScript(SavedModels, Protocol):
    """The models of a script; see `ScriptModels`."""

    @property
    def holds_state(self) -> bool: ...

    def common_state(self) -> tuple[Value, OptimizerState, int]: ...

    def restore(self, state: ShardState, own: Value | None) -> None: ...

    def note_changes(self) -> Changes: ...

    def forget(self, changes: Changes) -> None: ...

    def own_without(self, changes: Changes | None) -> Value: ...


class ScriptSaver(WorkerSaver):
    """The requests of the coordinator to save one script.

    Args:
        kept: what the script keeps beside its model.
        is_paused: returns True while a forward pass of this process is not part of the training.
    """

    def __init__(
        self,
        process: PeerWorker | FollowingWorker,
        models: SavedScript,
        experiment: Experiment,
        script: ScriptModel,
        kept: KeptState,
        is_paused: Callable[[], bool],
    ) -> None:
        super().__init__(process, models, experiment)
        self._script, self._kept, self._is_paused = script, kept, is_paused
        self._of_script = models
        self._due: list[_Due] = []  # for the next forward pass
        # Requests that came in the middle of an iteration, and the changes by averages since.
        self._at_end: dict[int, Changes] = {}
        self._is_between = True  # the script has not begun the iteration that comes next
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._tree: dict[str, Any] | None = None  # what the script goes on with
        # Half of what the coordinator takes; the other files have as much of the model at most.
        self._most_bytes = MOST_KEPT + MOST_COPIES // 2 * 8 * sum(script.layers)

    # -- going on --------------------------------------------------------------------

    def _load(
        self, folder: Path, state: ShardState, own: ShardState | None, others: Redivided | None
    ) -> None:
        worker = self._process.worker
        tree = read_tree(folder / kept_in(worker if others is None else others.source(worker)))
        mine = own.parameters if own is not None and own.parameters.nbytes else None
        model = tree.get("model", mine)
        if others is not None:
            tree["kept"] = others.of(worker, tree["kept"])
            if self._of_script.shared is not None:
                model = None  # the steps that only one worker has are left out
        self._tree = tree
        self._of_script.restore(state, model)
        if not self._of_script.holds_state:
            self._script.replace_state(tree["optimizer"])

    def begin(self) -> None:
        """Put the script into the state that it had at a checkpoint, if it goes on from one.

        Raises:
            ConfigError: if it keeps other objects now.
        """
        tree, self._tree = self._tree, None
        if tree is not None:
            self._kept.restore(tree["kept"])
        HERE.data.steps()
        self._is_between = False

    def stepped(self) -> None:
        """A step of the script has ended; it goes on with the next iteration."""
        HERE.data.steps()
        self._is_between = False

    # -- saving ----------------------------------------------------------------------

    def look(
        self,
        iteration: int,
        pending: Callable[[], PendingIteration | None],
        *,
        has_unsent: bool = False,
    ) -> None:
        self._is_between = True
        super().look(iteration, pending, has_unsent=has_unsent)
        waiting, self._at_end = self._at_end, {}
        for number, changes in waiting.items():
            self._of_script.forget(changes)
            if number in self._asked:  # it was not given up
                self._take_now(number, changes)

    def _take(self, number: int) -> None:
        if self._is_between:
            self._take_now(number, None)
        else:
            self._at_end[number] = self._of_script.note_changes()

    def _take_now(self, number: int, changes: Changes | None) -> None:
        """Take what the program has; what the script keeps follows at its next forward pass.

        changes: of the model that are not part of the checkpoint.
        """
        order = self._asked[number]
        common = self.common_state() if order.common else None
        own = None if order.clock == 0 else self._own_of_program(changes)  # 0: the run begins
        now, totals = self._now(), self._totals()
        self._due.append(_Due(order, now, totals, self._saved(), common, own))
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._forward)

    def _own_of_program(self, changes: Changes | None) -> ShardState | None:
        """Return what the worker has beside what the script keeps."""
        pending, process = self._pending(), self._process
        parameters = self._of_script.own_without(changes) if self._strategy.saved_apart else None
        if pending is None and parameters is None:
            return None
        held = () if pending is None else (pending,)
        steps = 0 if self._strategy.has_common else process.version
        return state_of_worker(process.worker, self._begins, {}, held, parameters, steps)

    @_disable_dynamo
    def _forward(self, *_: Any) -> None:
        """Save the script at the first forward pass of the iteration."""
        if not torch.is_grad_enabled() or self._is_paused():
            return
        assert self._hook is not None
        self._hook.remove()
        self._hook, due, self._due = None, self._due, []
        for each in due:
            if each.order.number in self._asked:  # it was not given up
                self._save(each)

    def _save(self, due: _Due) -> None:
        order, process, script = due.order, self._process, self._script
        del self._asked[order.number]
        tree: dict[str, Any] = {"kept": self._kept.state(), "optimizer": {}}
        if not self._of_script.holds_state:
            tree["optimizer"] = script.whole_state()
            if due.own is None or not due.own.parameters.nbytes:
                tree["model"] = script.flat()
        try:
            copy = packed_state(tree, process.name, self._most_bytes)
        except Unfit as error:
            self._send(NotSaved.because(order.number, error))
            return
        process.flush()  # before the message that the script is saved, which may complete it
        due.saved.is_complete, due.saved.kept_at = self._kept.is_complete, self._now()
        write = partial(_write, due, kept_in(process.worker), model_of(process.worker), copy)
        self._write(order, due.now, due.totals, write)

    def common_state(self) -> ShardState:
        """Return the state of the model that all workers have now."""
        process = self._process
        parameters, optimizer, gradients = self._of_script.common_state()
        iterations = {process.worker: self._begins}
        return common_state(iterations, process.results, gradients, parameters, optimizer)


def _write(
    due: _Due, kept: str, model: str, copy: dict[str, torch.Tensor], files: PartFiles
) -> SavedPart:
    """Write what there is of a worker; return its part of the checkpoint.

    kept, model: names of the files with what the script keeps, and with its model.
    """
    saved = due.saved
    if due.common is not None:
        saved.shard = files.add_shard(due.common, COMMON)
    if due.own is not None:
        saved.own = files.add_shard(due.own, model)
    files.add(kept, copy)
    return saved
