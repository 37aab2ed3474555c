"""Run times of a script's steps, measured on this computer before a run in virtual time.

A separate process runs the script alone as worker 0, and takes the first steps without changing the
parameters, unless the script takes its own steps. Then the script is ended; it is ended earlier if
it is about to write to a file when enough steps are measured. Its output is discarded. A warning
names the files that it has written, because the run will find them.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.simulation.scripts.messages import Left, Stepped
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.workers import ScriptWorkers
from outpace.support.notices import warn

T = TypeVar("T")
_WARM_UP: Final = 3  # steps
_LEAST: Final = 3  # least number of measured steps, if the script has fewer than requested
_NAMED: Final = 3  # number of files that a warning names


def times_of_script(experiment: Experiment, samples: int) -> tuple[float, ...]:
    """Return the seconds of a number of steps of a script, or of as many as it takes.

    Raises:
        ConfigError: if the script takes too few steps.
        RunError: if the script fails.
    """
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
    """Return a warning about files that were written while steps were measured."""
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
        first = workers.attached[0]
        assert first.parameters is not None
        values: list[Block] = [first.parameters, first.averaged]
        workers.begin([slice(0, first.parameters.numel())])
        seconds: list[float] = []
        while len(seconds) < _WARM_UP + samples:
            found = _next_step(process, values, len(seconds), is_followed=first.is_followed)
            step = at_once(found)
            if step is None:
                break
            seconds.append(step.computed_s)
    finally:
        workers.close(at_once=True)
    return seconds, process.written


async def _next_step(
    process: ScriptProcess, values: Sequence[Block], iteration: int, *, is_followed: bool
) -> Stepped | None:
    """Return the next step of a script; None if it leaves. is_followed: see `Attached`."""
    if not is_followed:
        if await process.go(values, iteration) is None:
            return None
        return await process.finish_step()
    while not isinstance(message := await process.next_of_step(), Stepped | Left):
        pass
    return message if isinstance(message, Stepped) else None


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never blocks, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    raise AssertionError("it blocks")
