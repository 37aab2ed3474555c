"""Simulates the times of a script for DistributedDataParallel without failures.

Its buckets are all-reduced beside the backward pass, which `undisturbed_rate` does not know. So the
messages of the scripts are noted by iteration, and repeated in place of scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from outpace.config.experiment import Experiment
from outpace.config.goals import Evaluate, Stop
from outpace.record.sinks import NoSink
from outpace.record.trace import Trace
from outpace.simulation.scripts.collectives.messages import Awaits, Joined, Reaches
from outpace.simulation.scripts.collectives.run import FollowedSimulation
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.messages import (
    Attached,
    Computes,
    FromScript,
    Gradient,
    Left,
    Stepped,
)
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import Time, seconds

_Noted: TypeAlias = Computes | Reaches | Joined | Awaits
_STEPPED = Stepped(Gradient.READY, [], [], 0.0)
_COMPUTES = Computes(abortable=False, evaluated=False)


class Iterations:
    """The messages of one script by iteration.

    Of an iteration that is done again those of the first time stay, because a new process of
    DistributedDataParallel forms its buckets anew. Numbers of calls are counted from the first one
    of an iteration. So most iterations are alike, and kept once.
    """

    def __init__(self) -> None:
        self._all: dict[int, tuple[_Noted, ...]] = {}
        self._known: dict[tuple[_Noted, ...], tuple[_Noted, ...]] = {}
        self.begin(0)

    def begin(self, iteration: int) -> None:
        """A process begins with this iteration."""
        self._iteration, self._present = iteration, list[_Noted]()
        self._before: int | None = None  # number of its first call in this iteration
        self._calls = 0  # in this iteration

    def add(self, message: FromScript) -> None:
        """Take the next message of the script."""
        match message:
            case Joined() | Awaits():
                if self._before is None:
                    self._before = message.number
                self._calls += isinstance(message, Joined)
                self._present.append(replace(message, number=message.number - self._before))
            case Computes():
                self._present.append(_COMPUTES)
            case Reaches():
                self._present.append(message)
            case Stepped():
                found = tuple(self._present)
                self._all.setdefault(self._iteration, self._known.setdefault(found, found))
                self._iteration, self._present = self._iteration + 1, []
                if self._before is not None:
                    self._before, self._calls = self._before + self._calls, 0

    def __len__(self) -> int:
        return 1 + max(self._all, default=-1)

    def repeated(self, count: int, *, has_ended: bool) -> Iterator[FromScript]:
        """Yield the messages of the first iterations again.

        has_ended: True if the script has come to its end, behind its last step.
        """
        before, last = 0, self._all[len(self) - 1]
        for iteration in range(count):
            # Of an earlier session nothing is known: its iterations were as the last one.
            messages = self._all.get(iteration, last)
            yield from _from(messages, before)
            yield _STEPPED
            before += sum(isinstance(message, Joined) for message in messages)
        if has_ended:
            yield from _from(self._present, before)
        yield Left(False, torch.empty(0))


def _from(messages: Sequence[_Noted], before: int) -> Iterator[FromScript]:
    """Yield messages; before: the number of the first call in them."""
    for message in messages:
        if isinstance(message, Joined | Awaits):
            yield replace(message, number=message.number + before)
        else:
            yield message


def rate_of_steps(
    experiment: Experiment,
    attached: Attached,
    scripts: Sequence[Iterations],
    until: Time | None,
    *,
    have_ended: bool,
) -> float:
    """Return the gradients per second that are applied without failures; 0 if there are none.

    Args:
        experiment: of a run with failures.
        attached: by the script of worker 0.
        scripts: by worker.
        until: as for `undisturbed_rate`.
        have_ended: True if all scripts have come to their end.
    """
    count = min(map(len, scripts))
    if not count:
        return 0.0
    stop = Stop(iterations=count, virtual_time_s=None if until is None else seconds(until))
    plain = replace(
        experiment, faults=None, checkpoint=None, evaluate=Evaluate(), target=None, stop=stop
    )
    messages = [each.repeated(count, has_ended=have_ended) for each in scripts]
    workload: Any = ScriptWorkload(_Repeating(attached, messages))  # type: ignore[arg-type]
    run = _Undisturbed(plain, workload, Trace(NoSink()))
    try:
        VirtualRun.run(run)
        return run.totals.applied / seconds(run.kernel.now) if run.kernel.now else 0.0
    finally:
        run.close()


class _Repeated:
    """Takes the place of a script's process."""

    memory = None
    has_left = False

    def __init__(self, worker: int, messages: Iterator[FromScript]) -> None:
        self.worker, self._messages = worker, messages

    def receive(self) -> FromScript:
        return next(self._messages)

    def computes(self, message: Computes) -> None:
        """Nothing is saved."""

    def done(self, part: Any) -> None:
        """The next message is known already."""

    def stop(self, reason: str) -> None:
        """It has left."""


class _Repeating:
    """Takes the place of `ScriptWorkers`."""

    files = None

    def __init__(self, attached: Attached, messages: Sequence[Iterator[FromScript]]) -> None:
        self.attached = [attached]
        self.processes = [_Repeated(worker, each) for worker, each in enumerate(messages)]

    def begin(self, slices: Sequence[slice]) -> None:
        """Nothing is told."""

    def close(self) -> None:
        """Nothing is open."""


class _Undisturbed(FollowedSimulation):
    def _collectives_of(self, experiment: Experiment) -> SimulatedCollectives:
        found = super()._collectives_of(experiment)
        found.carries_out = False
        return found
