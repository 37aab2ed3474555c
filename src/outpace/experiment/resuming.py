"""Resumes an interrupted run, and reads its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import torch

from outpace.blocks.block import Block
from outpace.blocks.naming import state_dict_of
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from, to_plain
from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.engine.scripts.redividing import PAST_LIMIT, past_limit
from outpace.errors import ConfigError
from outpace.experiment.sources import TaskLike, as_experiment
from outpace.experiment.status import began_with, resume_command
from outpace.record import folder as files
from outpace.record.checkpoints import Checkpoint, Checkpoints, Damaged, RunLock
from outpace.record.checkpoints.committed import INDEX
from outpace.record.tables import RunTable, segments_of
from outpace.record.trace import Trace
from outpace.support.notices import warn
from outpace.support.regular_files import regular, require_no_link
from outpace.support.replacing import PARTIAL

# Keys that may differ from those before the interruption.
_FREE: Final = (
    "stop",
    "evaluate",
    "checkpoint",
    "workers",
    "servers",
    "trackers",
    "on_server_loss",
    "on_worker_loss",
    "launcher",
)
# Files that a run has written at its end if it was interrupted but not killed.
_RESULTS: Final = (
    files.METRICS,
    files.TRACE,
    files.TIMING,
    files.MESSAGES,
    files.MODEL,
    files.RUN_TIME_MODEL,
    files.REPORT,
    files.EXPLANATION,
)


class Resumption(NamedTuple):
    """A run that is resumed. Its folder is locked until `lock.release()`."""

    folder: Path
    experiment: Experiment
    point: ResumePoint
    lock: RunLock

    @property
    def workers(self) -> int:
        """The number of workers at the checkpoint."""
        return self.point.checkpoint.index.workers

    def go_back(self, trace: Trace, timing: RunTable | None) -> None:
        """Reset the folder to the checkpoint.

        Raises:
            ConfigError: if a segment is damaged; the results in the folder are then unchanged.
            OSError: if a file cannot be read or removed.
        """
        segments, now = self.point.checkpoint.index.segments, self.point.now
        try:
            trace.go_back(segments, now)
            if timing is not None:
                timing.go_back(segments, now)
        except pa.ArrowException as error:
            raise ConfigError(
                f"the records of the run in {self.folder} are damaged ({error}); without them it "
                "cannot be resumed: restore the file, or start the run again"
            ) from error
        Checkpoints(self.folder).clean(after=self.point.number)
        for left in (*(self.folder / name for name in _RESULTS), *self.folder.glob(f"*{PARTIAL}")):
            left.unlink(missing_ok=True)


def resumption(
    folder: Path,
    command: str,
    task: TaskLike | None,
    changes: Mapping[str, Any],
    say: Callable[[str], None] = warn,
) -> Resumption:
    """Return the run in a folder, to be resumed from its newest checkpoint.

    Args:
        command: the command with which the run began, `simulate` or `run`.
        task, changes: see `simulate`.
        say: called with a line for each damaged checkpoint that is skipped.

    Raises:
        ConfigError: if there is no run or no checkpoint to resume from, a key may not be changed,
            or the run is running.
    """
    config = folder / files.CONFIG
    if not config.exists():
        raise ConfigError(
            f"{folder} is not the folder of a run that can be resumed: it has no {files.CONFIG}; "
            "sweeps and comparisons are resumed by their own --resume"
        )
    _require_resumable(folder, command)
    try:
        regular(config)
    except OSError as error:
        raise ConfigError(f"cannot read {config}: {error.strerror}") from None
    experiment = _experiment(config, task, changes)
    lock = RunLock(folder)
    try:
        for table in (files.TRACE, files.TIMING):
            require_no_link((folder / table).with_suffix(""))
        _require_resumable(folder, command)  # the run may have ended in the meantime
        checkpoint = Checkpoints(folder).newest(say)
        if checkpoint is None:
            raise ConfigError(
                f"{folder}: no checkpoint: the run was made without `checkpoint`, or ended before "
                "the first one; start it again"
            )
        try:
            segments_of(folder, checkpoint.index.segments)
        except OSError as error:
            raise ConfigError(
                f"cannot read {error.filename} ({error.strerror}): without the records until "
                f"{checkpoint.name} the run cannot be resumed; start it again"
            ) from None
        point = ResumePoint.of(checkpoint, experiment)
        if anew := checkpoint.index.anew:
            say(f"{begin_anew(anew, 'of the checkpoint')}: {REMEDY}")
        if experiment.has_script and (stopped := past_limit(point)):
            say(f"{begin_anew(stopped, 'of the checkpoint')}: {PAST_LIMIT}")
        return Resumption(folder, experiment, point, lock)
    except BaseException:
        lock.release()
        raise


def _require_resumable(folder: Path, command: str) -> None:
    """Raise ConfigError if the run is complete, or belongs to the other runtime."""
    if not (folder / files.SUMMARY).exists():
        return  # the run was killed when it began
    summary = files.read_summary(folder)
    if summary.get("status") == "complete":
        raise ConfigError(f"{folder}: this run is complete; there is nothing to resume")
    if (began := began_with(summary)) != command:
        raise ConfigError(f"{folder} is of outpace {began}: use {resume_command(began, folder)}")


def _experiment(config: Path, task: TaskLike | None, changes: Mapping[str, Any]) -> Experiment:
    """Return the experiment with changes. Raises ConfigError if a key may not be changed."""
    before = as_experiment(config, task)
    after = as_experiment(config, task, changes)
    for key, was, given in _differences(to_plain(before), to_plain(after)):
        raise ConfigError(f"--resume: {key} cannot change ({was} in {config}, {given} given)")
    return after


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], within: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys whose values differ and must not, with both values."""
    keys = [*before, *(key for key in after if key not in before)]
    for key in sorted(keys, key=lambda key: key != "kind"):  # other keys follow from the kind
        was, given = before.get(key), after.get(key)
        if was == given or (not within and key in _FREE):
            continue
        if isinstance(was, Mapping) and isinstance(given, Mapping):
            yield from _differences(was, given, f"{within}{key}.")
        else:
            yield f"{within}{key}", was, given


# -- outpace.load_checkpoint -------------------------------------------------------------------


def load_checkpoint(path: str | Path) -> dict[str, torch.Tensor]:
    """Return the parameters in a checkpoint as a plain `state_dict`.

        model.load_state_dict(outpace.load_checkpoint("runs/first"))

    The names, shapes and dtypes are the same as in the model. If the model of a task has more than
    trained parameters, such as BatchNorm's averages, the task is made from the run's configuration
    and computes them, as at the end of a run. For a script, the dictionary has only the trained
    parameters. It is empty for the task `timing`.

    Args:
        path: the folder of a checkpoint, or the folder of a run; of a run, the newest undamaged
            checkpoint is used.

    Raises:
        ConfigError: if there is no such checkpoint, or the task cannot be made.
    """
    try:
        checkpoint = _found(Path(path))
        blocks: Sequence[Block] = checkpoint.blocks()
    except (OSError, Damaged) as error:
        raise ConfigError(str(error)) from error
    layout = checkpoint.index.layout
    if layout and json.loads(layout)["buffers"]:
        run = checkpoint.path.resolve().parent.parent
        experiment = experiment_from(files.read_config(run), str(run / files.CONFIG), run)
        if not experiment.has_script:
            sizes = experiment.workers, experiment.batch_size, experiment.seed
            workload = experiment.task.workload(*sizes)
            workload.cut(checkpoint.index.slices)
            return workload.state_dict(blocks)
    return state_dict_of(layout, blocks)


def _found(folder: Path) -> Checkpoint:
    """Return the checkpoint in this folder, or the newest checkpoint of this run, checked."""
    if (folder / INDEX).exists():
        checkpoint = Checkpoint(folder)
        checkpoint.check()
        return checkpoint
    newest = Checkpoints(folder).newest()
    if newest is None:
        raise ConfigError(
            f"{folder} is no checkpoint, and has no checkpoint in a folder {files.CHECKPOINTS}: "
            "name the folder of a run with checkpoint: in its configuration, or one of its "
            "checkpoints"
        )
    return newest
