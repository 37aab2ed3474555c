"""The script's addition to its worker's part of a checkpoint, without servers.

The state of a script is copied when the script begins the first forward pass of an iteration, as
with servers (`engine.scripts.saved_script`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.engine.resuming import kept_in
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.redividing import Redivided
from outpace.engine.scripts.saved_script import SavedScript
from outpace.real.net.checkpoint_messages import MOST_KEPT
from outpace.record.checkpoints.trees import Unfit, packed_tree, read_tree
from outpace.support.place import HERE
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.checkpoint.workers import state_of_worker
from outpace.sync.messages import worker_name


class NextForward:
    """Calls functions at the next forward pass that is part of the training.

    Args:
        is_paused: returns True during forward passes of this process that are not part of the
            training.
    """

    def __init__(self, is_paused: Callable[[], bool]) -> None:
        self._is_paused = is_paused
        self._actions: list[Callable[[], None]] = []
        self._hook: torch.utils.hooks.RemovableHandle | None = None

    def call(self, action: Callable[[], None]) -> None:
        """Call this function at the next forward pass."""
        self._actions.append(action)
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._forward)

    def forget(self) -> list[Callable[[], None]]:
        """Call no functions at the next forward pass; return the functions that were waiting."""
        actions, self._actions = self._actions, []
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        return actions

    @_disable_dynamo
    def _forward(self, *_: Any) -> None:
        if torch.is_grad_enabled() and not self._is_paused():
            for action in self.forget():
                action()


class ScriptPart:
    """The state with which a script continues, in addition to its worker's program.

    Args:
        kept: the script's state besides its model.
        is_paused: see `NextForward`.
        holds_state: True: there is an optimizer's state in addition to the script's own.

    Attributes:
        is_between: True: the script has not begun the next iteration.
    """

    def __init__(
        self,
        worker: int,
        script: ScriptModel,
        kept: SavedScript,
        is_paused: Callable[[], bool],
        *,
        holds_state: bool,
    ) -> None:
        self._worker, self._script, self._kept = worker, script, kept
        self._holds_state = holds_state
        self.forward = NextForward(is_paused)
        self.is_between = True
        self._found: dict[str, Any] | None = None  # the state with which the script continues

    # -- resuming --------------------------------------------------------------------

    def read(self, folder: Path, own: ShardState | None, others: Redivided | None) -> ShardState:
        """Return a worker's state besides the common model, including its script's own model.

        Args:
            folder: folder of the checkpoint.
            own: the program's state besides the common model, if any.
            others: True: the checkpoint had another number of workers.

        Raises OSError.
        """
        worker = self._worker
        tree = read_tree(folder / kept_in(worker if others is None else others.source(worker)))
        self._found = tree["kept"] if others is None else others.of(worker, tree["kept"])
        model = tree.get("model", None if own is None else own.parameters)
        return state_of_worker(worker, 0, tree["optimizer"], parameters=model)

    def begin(self) -> None:
        """Restore the script's state at a checkpoint, if it continues from one.

        Raises:
            ConfigError: if the script keeps other objects now.
        """
        found, self._found = self._found, None
        if found is not None:
            self._kept.restore(found)
        self.stepped()

    def stepped(self) -> None:
        """Note that a step has ended, and the script continues with the next iteration."""
        HERE.data.steps()
        self.is_between = False

    # -- saving ----------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """See `SavedScript.is_complete`."""
        return self._kept.is_complete

    def copy(self, *, has_model: bool) -> dict[str, torch.Tensor]:
        """Return the state with which the script continues, as tensors that are copies.

        has_model: True: the parameters of its model are in another file. Raises Unfit.
        """
        tree: dict[str, Any] = {"kept": self._kept.state(), "optimizer": {}}
        if not self._holds_state:
            tree["optimizer"] = self._script.whole_state()
            if not has_model:
                tree["model"] = self._script.flat()
        return packed_tree(tree, f"what the script of {worker_name(self._worker)} keeps")


def packed_state(state: Any, worker: str) -> dict[str, torch.Tensor]:
    """Return a state as tensors that are copies, so that a message can carry it.

    Args:
        worker: name of the script's worker.

    Raises:
        Unfit: if a checkpoint cannot store a part of it, or if it is too large.
    """
    copy = packed_tree(state, f"what the script of {worker} keeps")
    size = size_of(copy)
    if size > MOST_KEPT:
        raise Unfit(
            f"the script of {worker} keeps {size:,} bytes, and {MOST_KEPT:,} are possible: give "
            "outpace.attach smaller objects"
        )
    return copy


def size_of(tensors: dict[str, torch.Tensor]) -> int:
    """Return the total number of bytes of these tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())
