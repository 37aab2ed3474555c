"""Saves a script whose own collectives do the training, and restores it.

All workers have the same parameters between two steps, and the same number of steps. So they are
saved as with `ssgd`: after the same step, each with the state of its own optimizer, and with what
its script keeps at the next forward pass.
"""

from __future__ import annotations

import torch

from outpace.blocks.block import Value
from outpace.engine.scripts.model import ScriptModel
from outpace.optim import OptimizerState
from outpace.real.node.script.parameters import Changes
from outpace.sync.checkpoint.state import ShardState


class FollowedModel:
    """The model of a script that trains it itself. Implements `SavedScript`."""

    shared = None
    own_block = None
    holds_state = False

    def __init__(self, script: ScriptModel) -> None:
        self._script = script

    def common_state(self) -> tuple[Value, OptimizerState, int]:
        return self._script.flat(), {}, 0

    def restore(self, state: ShardState, own: Value | None) -> None:
        self._script.load([state.parameters if own is None else own])

    def note_changes(self) -> Changes:
        raise AssertionError("no averages change it")

    def forget(self, changes: Changes) -> None:
        raise AssertionError("no averages change it")

    def own_without(self, changes: Changes | None) -> torch.Tensor:
        raise AssertionError("all workers have the same")
