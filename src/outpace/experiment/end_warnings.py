"""Warnings about a script's run that is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from outpace.config.experiment import Experiment
from outpace.engine.protocol import Engine
from outpace.experiment.overwriting import overwritten_by_workers
from outpace.sync.messages import worker_name

_NO_LOG: Final = "the script logged no {0}, so it was never checked: call outpace.log({0}=...)"
_ALIKE: Final = 0.5  # fewest steps of a worker that need no warning, as a share of the most


def warnings_at_end(
    experiment: Experiment, engine: Engine, before: int | None = None
) -> Iterator[str]:
    """Yield what the user of a script should know: a target without values, uneven workers.

    before: the number of workers at the checkpoint from which the run was resumed; None: a new run.
    """
    if experiment.has_script:
        yield from _target_never_checked(experiment, engine)
        yield from overwritten_by_workers(engine.files_written())
        recovery, is_same = engine.recovery(), before in (None, experiment.workers)
        if is_same and not recovery.restarts and not recovery.scalings:
            yield from _uneven_steps(experiment, engine)


def _target_never_checked(experiment: Experiment, engine: Engine) -> Iterator[str]:
    known = engine.metrics.last
    if experiment.accuracies and "accuracy" not in known:
        yield f"{next(iter(experiment.accuracies))}: {_NO_LOG.format('accuracy')}"
    elif experiment.target and experiment.target.loss and "train_loss" not in known:
        yield f"target.loss: {_NO_LOG.format('loss')}"


def _uneven_steps(experiment: Experiment, engine: Engine) -> Iterator[str]:
    """Yield a warning if the scripts have ended after different numbers of steps, or without any.

    A run that ends at a time or an accuracy, and computations that are stopped, make them
    different, too.
    """
    stop, steps = experiment.stop, engine.totals.iterations
    if stop.virtual_time_s or stop.target_accuracy or experiment.cut_off is not None:
        return
    lost = engine.recovery().without
    numbers = {worker: steps.get(worker, 0) for worker in range(experiment.workers)}
    if not any(numbers.values()):
        yield (
            "no worker took a step, so nothing was trained: call optimizer.step() of the optimizer "
            "that was attached, after a forward and a backward pass of its model"
        )
        return
    numbers = {worker: number for worker, number in numbers.items() if worker not in lost}
    if not numbers:
        return
    fewest, longest = min(numbers, key=numbers.__getitem__), max(numbers, key=numbers.__getitem__)
    least, most = numbers[fewest], numbers[longest]
    if least < _ALIKE * most:
        few, many = worker_name(fewest), worker_name(longest)
        yield (
            f"the script of {few} took {least:,} steps and that of {many} took {most:,}: if they "
            "should take equally many, look for workers that end early or have less data"
        )
