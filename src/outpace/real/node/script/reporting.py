"""Sends what a script without servers keeps, for a process that may take this one's place.

As with servers (`real.node.script.keeping`), but a checkpoint has it from `ScriptSaver`. The new
process has the model of the other workers, and asks with the first iteration that is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.engine.scripts.kept import KeptState
from outpace.real.net.block_frames import head_of
from outpace.real.net.checkpoint_messages import MOST_REPORTED, ScriptState
from outpace.real.node.peers.peer import PeerWorker
from outpace.real.node.saving.thread import WritingThread
from outpace.real.node.script.pace import Pace
from outpace.real.node.script.packing import packed_state, size_of
from outpace.real.node.script.repeating import Repeating
from outpace.record.checkpoints.tensors import to_bytes
from outpace.record.checkpoints.trees import Unfit
from outpace.record.totals import Totals
from outpace.support.place import HERE


class Reporting(Repeating):
    """The state of a script that is sent as it is when an iteration begins."""

    def __init__(self, process: PeerWorker, kept: KeptState, is_paused: Callable[[], bool]) -> None:
        super().__init__(process, kept, is_paused)
        self._process = process
        self._pace = Pace(reports=True)
        self._began: int | None = None  # the iteration that the script has begun last
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._thread = WritingThread(process.clock)  # makes the content of a file

    def restore(self) -> None:
        super().restore()
        HERE.data.steps()

    def repeat(self) -> bool:
        repeats = super().repeat()
        if repeats:
            HERE.data.steps()
        return repeats

    def begins(self, iteration: int) -> None:
        if self._again:
            return
        is_due = self._pace.is_due(iteration, self._began) and self._kept.is_complete
        self._began = iteration
        if is_due and self._hook is None:
            self._hook = register_module_forward_pre_hook(self._forward)

    @_disable_dynamo
    def _forward(self, *_: Any) -> None:
        """Copy the state at the first forward pass of the iteration."""
        if not torch.is_grad_enabled() or self._is_paused():
            return
        self._forget()
        try:
            with self._pace.measured():
                state = {**self._kept.state(), "iteration": self._began}
                copy = packed_state(state, self._process.name)
        except Unfit:  # a checkpoint says it
            self._pace.stop()
            return
        if size_of(copy) > MOST_REPORTED // 2:  # the rest is for the format
            self._pace.stop()
            return
        assert self._began is not None
        head = partial(ScriptState, 0, 0, Totals(), is_complete=True, done=self._began)
        self._thread.do(
            partial(to_bytes, copy),
            lambda data: self._process.coordinator.send(head(block=head_of(data)), data),
        )

    def _forget(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def end(self) -> None:
        self._forget()
        self._thread.finish()
