"""Runs with servers whose gradients and parameters travel in bfloat16 (`sync.wire`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from outpace.blocks.block import Block, Value
from outpace.blocks.narrowing import LastNarrowed
from outpace.config.experiment import Experiment
from outpace.sync.programs.context import AbortableContext
from outpace.sync.programs.narrowing import NarrowingWorker, Restored
from outpace.sync.programs.parameter_server import as_they_are

_Program: TypeAlias = Callable[[AbortableContext], Coroutine[Any, Any, None]]


def is_narrow(experiment: Experiment) -> bool:
    """True if gradients and parameters travel in bfloat16; only for a run with servers."""
    return experiment.policies.strategy.wire == "bf16"


def narrowing(program: _Program, experiment: Experiment) -> _Program:
    """Return the program of the workers for the messages of this run."""
    return partial(_narrowing, program, Restored()) if is_narrow(experiment) else program


async def _narrowing(program: _Program, restored: Restored, me: AbortableContext) -> None:
    await program(NarrowingWorker(me, restored))


def answers_of(experiment: Experiment) -> Callable[[Value], Block]:
    """Return what makes the parameters that a server sends out of its own."""
    return LastNarrowed() if is_narrow(experiment) else as_they_are
