"""Run times of a script's steps, measured on this computer before a run in virtual time.

A process of its own runs the script as worker 0, alone, and takes the first steps without changing
the parameters, unless the script takes its steps itself. It is then ended, and before that if it is
about to write to a file when enough steps are measured. What it prints is discarded. Files that it
writes before are named in a warning, because the run then finds them.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from outpace.blocks.block import Value
from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.record.checkpoints import Part as SavedFile
from outpace.simulation.measured import known_times, remember
from outpace.simulation.scripts.collectives.matching import Part, carry_out_alone
from outpace.simulation.scripts.collectives.memory import CallMemory
from outpace.simulation.scripts.collectives.messages import Awaits, Joined
from outpace.simulation.scripts.host import Host
from outpace.simulation.scripts.messages import Left, Stepped
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.workers import ScriptWorkers
from outpace.support.notices import warn

T = TypeVar("T")
_WARM_UP: Final = 3  # steps
_LEAST: Final = 3  # steps that must be measured, if the script has fewer than are asked for
_NAMED: Final = 3  # files


def with_measured_times(experiment: Experiment) -> Experiment:
    """Return the experiment with its run times measured, if its configuration asks for that.

    They are measured once in a process for each script, with its arguments and seed.

    Raises:
        ConfigError: if the script takes too few steps.
        RunError: if the script fails.
    """
    compute = experiment.compute
    if not isinstance(compute, Measured) or compute.seconds:
        return experiment
    seconds = known_times(experiment, compute)
    if seconds is None:
        seconds = _measured(experiment, compute.samples)
    measured = dataclasses.replace(
        experiment, compute=dataclasses.replace(compute, seconds=seconds)
    )
    remember(measured)
    return measured


def _measured(experiment: Experiment, samples: int) -> tuple[float, ...]:
    with tempfile.TemporaryDirectory(prefix="outpace-") as files:  # for `outpace.output_dir`
        unsaved = dataclasses.replace(experiment, checkpoint=None)
        seconds, written = _seconds(unsaved, Path(files), samples)
    if written:
        warn(_wrote(len(seconds), written))
    if len(seconds) < _WARM_UP + _LEAST:
        raise ConfigError(
            f"compute: the script took {len(seconds)} steps, too few to measure how long one "
            f"takes ({_WARM_UP + _LEAST} are needed): let it take more steps, or name a law, such "
            "as compute.kind=constant compute.mean_s=0.1"
        )
    return tuple(seconds[_WARM_UP:])


def _wrote(steps: int, paths: Sequence[str]) -> str:
    """Return what to say of files that were written while steps were measured."""
    names = [os.path.relpath(path) for path in paths]
    names = [min(pair, key=len) for pair in zip(names, paths, strict=True)]
    shown = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        shown += f" and {len(names) - _NAMED} more"
    return (
        f"measuring the run time of a step ran the script for {steps} steps first, and it "
        f"wrote {shown}, which the run then finds: write to outpace.output_dir(), or name a law, "
        "such as compute.kind=constant compute.mean_s=0.1, and nothing is run beforehand"
    )


def _seconds(experiment: Experiment, files: Path, samples: int) -> tuple[list[float], list[str]]:
    """Return the durations of the first steps, and the files written before there were enough."""
    workers = ScriptWorkers(experiment, files, lambda *_: None, measured=_WARM_UP + _LEAST)
    try:
        (process,) = workers.processes
        process.host = _NoRun(experiment.workers)
        flat = workers.attached[0].parameters
        assert flat is not None
        values = [flat, workers.attached[0].averaged]
        workers.begin([slice(0, flat.numel())])
        seconds: list[float] = []
        if workers.attached[0].is_followed:
            seconds = _seconds_of_steps(process, process.host, _WARM_UP + samples)
            return seconds, process.written
        while len(seconds) < _WARM_UP + samples:
            if at_once(process.go(values, len(seconds))) is None:
                break
            step = at_once(process.finish_step())
            if step is None:
                break
            seconds.append(step.what.computed_s)
    finally:
        workers.close(at_once=True)
    return seconds, process.written


class _NoRun:
    """Takes the place of a run while steps are measured. Implements `Host`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._parts: dict[int, Part] = {}  # collectives that are not awaited yet, by number

    def logged(self, worker: int, values: Mapping[str, float]) -> None:
        pass

    def warned(self, text: str) -> None:
        pass

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        return [{}]

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        pass

    def script_saved(self, worker: int, saved: SavedFile | str) -> None:
        raise NotImplementedError

    def parameters_set(self, worker: int, given: Value, now: torch.Tensor) -> None:
        pass

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        part = self._parts[call.number] = Part(worker, call, memory)
        carry_out_alone(part, self._workers)

    async def result(self, worker: int, number: int) -> Part:  # it alone, so it never waits
        return self._parts.pop(number)


def _seconds_of_steps(process: ScriptProcess, host: Host, count: int) -> list[float]:
    """Return the durations of the first steps of a script that takes them itself."""
    seconds: list[float] = []
    while len(seconds) < count and not isinstance(message := process.receive(), Left):
        if isinstance(message, Joined):
            host.joined(0, message, process.memory)
        elif isinstance(message, Awaits):
            part = at_once(host.result(0, message.number))
            assert part is not None
            process.done(part)
        elif isinstance(message, Stepped):
            seconds.append(message.computed_s)
    return seconds


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never blocks, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    raise AssertionError("it blocks")
