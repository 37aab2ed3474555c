"""Warnings at the end of runs of scripts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from outpace.config.experiment import Experiment
from outpace.engine.protocol import Engine
from outpace.record.event_log import Recovery
from outpace.sync.messages import worker_name

_NO_LOG: Final = "the script logged no {0}, so it was never checked: call outpace.log({0}=...)"
_MOST_NAMED: Final = 3  # most scripts or files that are named
# ratio of the smallest to the largest number of steps below which there is a warning
_ALIKE: Final = 0.5


def warnings_at_end(
    experiment: Experiment, engine: Engine, recovery: Recovery, before: int | None = None
) -> Iterator[str]:
    """Yield warnings for the user of a script: a target without values, uneven workers.

    before: the number of workers at the checkpoint from which the run was resumed; None: a new run.
    """
    if experiment.has_script:
        yield from _target_never_checked(experiment, engine)
        named = {worker_name(each): paths for each, paths in sorted(engine.files_written().items())}
        for group, paths in overwritten(named):
            yield (
                f"the scripts of {group} wrote the same files, each over the files of the others: "
                f"{paths}; write them in worker 0 alone (if outpace.rank() == 0), or to "
                "outpace.output_dir()"
            )
        is_same = before in (None, experiment.workers)
        if is_same and not recovery.restarts and not recovery.scalings:
            yield from _uneven_steps(experiment, engine, recovery.without)


def overwritten(written: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yield a text about each group of scripts that have written the same files.

    written: by the name of a script's worker or run, the files that it has written.
    """
    writers = defaultdict(list)
    for name, paths in written.items():
        for path in paths:
            writers[path].append(name)
    groups = defaultdict(list)
    for path, names in sorted(writers.items()):
        if len(names) > 1:
            groups[tuple(names)].append(Path(path).name)
    for group, files in groups.items():
        yield _some(group), _some(files)


def _some(names: Sequence[str]) -> str:
    """Return text with the first of the names and the number of the others."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _target_never_checked(experiment: Experiment, engine: Engine) -> Iterator[str]:
    known = engine.metrics.last
    if experiment.accuracies and "accuracy" not in known:
        yield f"{next(iter(experiment.accuracies))}: {_NO_LOG.format('accuracy')}"
    elif experiment.target and experiment.target.loss and "train_loss" not in known:
        yield f"target.loss: {_NO_LOG.format('loss')}"


def _uneven_steps(experiment: Experiment, engine: Engine, lost: Sequence[int]) -> Iterator[str]:
    """Yield a warning if the scripts have ended after different numbers of steps, or without any.

    There is none if the run ends at a time or an accuracy, or if computations are stopped, because
    these also make the numbers differ.
    """
    stop, steps = experiment.stop, engine.totals.iterations
    if stop.virtual_time_s or stop.target_accuracy or experiment.cut_off is not None:
        return
    numbers = {worker: steps.get(worker, 0) for worker in range(experiment.workers)}
    if not any(numbers.values()):
        yield (
            "no worker took a step, so nothing was trained: call optimizer.step() of the optimizer "
            "that was attached, after a forward and a backward pass of its model"
        )
        return
    stayed = set(numbers) - set(lost)
    fewest = min(stayed, key=numbers.__getitem__, default=0)
    longest = max(stayed, key=numbers.__getitem__, default=0)
    if numbers[fewest] < _ALIKE * numbers[longest]:
        yield (
            f"the script of {worker_name(fewest)} took {numbers[fewest]:,} steps and the script "
            f"of {worker_name(longest)} took {numbers[longest]:,}: if they should take equally "
            "many, look for workers that end early or have less data"
        )
