"""What the script of a worker without servers adds to the worker's part of a checkpoint.

What a script keeps is copied when it begins the first forward pass of an iteration, as with servers
(`engine.scripts.saved_script`).
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
        is_paused: returns True while a forward pass of this process is not.
    """

    def __init__(self, is_paused: Callable[[], bool]) -> None:
        self._is_paused = is_paused
        self._actions: list[Callable[[], None]] = []
        self._hook: torch.utils.hooks.RemovableHandle | None = None

    def call(self, action: Callable[[], None]) -> None:
        """Call this function then."""
        self._actions.append(action)
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._forward)

    def forget(self) -> list[Callable[[], None]]:
        """Call no function then; return those that would have been called."""
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
    """What a script continues with, beside what the program of its worker has.

    Args:
        kept: what it keeps beside its model.
        is_paused: see `NextForward`.
        holds_state: the state of the optimizer is beside the script's own.

    Attributes:
        is_between: the script has not begun the iteration that comes next.
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
        self._found: dict[str, Any] | None = None  # what the script continues with

    # -- resuming --------------------------------------------------------------------

    def read(self, folder: Path, own: ShardState | None, others: Redivided | None) -> ShardState:
        """Return what a worker had beside the common model, its script's own model included.

        Args:
            folder: of the checkpoint.
            own: what its program had beside the common model, if anything.
            others: if there were other workers at the checkpoint.

        Raises OSError.
        """
        worker = self._worker
        tree = read_tree(folder / kept_in(worker if others is None else others.source(worker)))
        self._found = tree["kept"] if others is None else others.of(worker, tree["kept"])
        model = tree.get("model", None if own is None else own.parameters)
        return state_of_worker(worker, 0, tree["optimizer"], parameters=model)

    def begin(self) -> None:
        """Put the script into the state that it had at a checkpoint, if it continues from one.

        Raises:
            ConfigError: if it keeps other objects now.
        """
        found, self._found = self._found, None
        if found is not None:
            self._kept.restore(found)
        self.stepped()

    def stepped(self) -> None:
        """A step of the script has ended; it continues with the next iteration."""
        HERE.data.steps()
        self.is_between = False

    # -- saving ----------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """See `SavedScript.is_complete`."""
        return self._kept.is_complete

    def copy(self, *, has_model: bool) -> dict[str, torch.Tensor]:
        """Return what the script continues with as tensors, which are copies.

        has_model: the parameters of its model are in another file. Raises Unfit.
        """
        tree: dict[str, Any] = {"kept": self._kept.state(), "optimizer": {}}
        if not self._holds_state:
            tree["optimizer"] = self._script.whole_state()
            if not has_model:
                tree["model"] = self._script.flat()
        return packed_tree(tree, f"what the script of {worker_name(self._worker)} keeps")


def packed_state(state: Any, worker: str) -> dict[str, torch.Tensor]:
    """Return a state, which a message can carry, as tensors that are copies.

    Args:
        worker: name of the worker whose script keeps it.

    Raises:
        Unfit: if a checkpoint cannot keep a part of it, or if it is too large.
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
    """Return the bytes of all these tensors together."""
    return sum(tensor.nbytes for tensor in tensors.values())
