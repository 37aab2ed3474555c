"""Finds the checkpoint from which the run in a folder is resumed, and its configuration."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.config.reading import to_plain
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.engine.scripts.redividing import PAST_LIMIT, past_limit
from outpace.errors import ConfigError
from outpace.experiment.resuming.command import Began, resume_command
from outpace.experiment.sources import TaskLike, as_experiment
from outpace.record import folder as files
from outpace.record.checkpoints import Checkpoints, RunLock
from outpace.record.event_log import EventLog
from outpace.record.segments import SegmentedSink, segments_of
from outpace.record.status import read_status
from outpace.record.trace import Trace
from outpace.support.notices import warn
from outpace.support.regular_files import regular, require_no_link
from outpace.support.replacing import PARTIAL

# Keys that may be other than before the interruption.
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
_TIMES: Final = {"simulate": "virtual_time_s", "run": "wall_time_s"}  # of the summary, by command
# What a run that was interrupted, but not killed, has written at its end.
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

    def take_up(self, trace: Trace, *sinks: object) -> None:
        """Put the folder back to the checkpoint.

        sinks: of the trace, and of the times of messages of a real run.

        Raises:
            ConfigError: if a segment is damaged; the results in the folder are still there.
            OSError: if a file cannot be read or removed.
        """
        segmented = [sink for sink in sinks if isinstance(sink, SegmentedSink)]
        try:
            for sink in segmented:
                sink.go_back(self.point.checkpoint.index.segments)
                sink.drop_after(self.point.now)
            for sink in segmented[:1]:
                trace.take_up(sink.batches())
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
    """Return the run of a folder, to be resumed from its newest checkpoint.

    Args:
        command: `simulate` or `run`, with which the run began.
        task, changes: as for `simulate`.
        say: called with a line for each damaged checkpoint that is passed over.

    Raises:
        ConfigError: if there is no checkpoint to resume from, a key may not be changed, or the run
            is running.
    """
    if not (folder / files.CONFIG).exists():
        raise ConfigError(_not_of_a_run(folder))
    _require_resumable(folder, command)
    try:
        regular(folder / files.CONFIG)
    except OSError as error:
        raise ConfigError(f"cannot read {folder / files.CONFIG}: {error.strerror}") from None
    experiment = _experiment(folder, task, changes)
    lock = RunLock(folder)
    try:
        for sinks in (files.TRACE, files.TIMING):
            require_no_link((folder / sinks).with_suffix(""))
        _require_resumable(folder, command)  # it may have ended meanwhile
        checkpoint = Checkpoints(folder).newest(say)
        if checkpoint is None:
            raise ConfigError(
                f"{folder}: no checkpoint: the run was made without `checkpoint`, or ended before "
                "the first one; start it again"
            )
        try:
            segments_of(folder, checkpoint.index.segments)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{error.filename} is missing: without the records until {checkpoint.name} the "
                "run cannot be resumed; start it again"
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
        point = ResumePoint.of(checkpoint, experiment)
        if anew := checkpoint.index.anew:
            _count_unrepeated(folder, point)
            say(f"{begin_anew(anew, 'of the checkpoint')}: {REMEDY}")
        if experiment.has_script and (stopped := past_limit(point)):
            say(f"{begin_anew(stopped, 'of the checkpoint')}: {PAST_LIMIT}")
        return Resumption(folder, experiment, point, lock)
    except BaseException:
        lock.release()
        raise


def _not_of_a_run(folder: Path) -> str:
    """Return the error for a folder without a configuration, which may hold several runs."""
    if not folder.is_dir():
        return f"{folder}: there is no such folder"
    run = folder.parent.parent if folder.parent.name == files.CHECKPOINTS else folder.parent
    if files.CHECKPOINTS in (folder.name, folder.parent.name) and (run / files.CONFIG).exists():
        return f"{folder} is a part of the run in {run}: give that folder"
    where = shlex.quote(str(folder))
    if (folder / files.JOURNAL).exists():
        return f"{folder} is of outpace sweep: use outpace sweep CONFIG --out {where} --resume"
    is_no_run = f"{folder} is not the folder of a run: it has no {files.CONFIG}"
    if (folder / files.ADVICE).exists():
        return is_no_run
    compare = f"use outpace compare CONFIG --out {where} --resume"
    if (folder / files.COMPARISON).exists() or any(folder.glob(f"*/seed-*/{files.CONFIG}")):
        return f"{folder} is of outpace compare: {compare}"
    if runs := sorted(folder.glob(f"*/{files.CONFIG}")):
        one = runs[0].parent
        return f"{is_no_run}; give the folder of one run, such as {one}, or {compare}"
    return is_no_run


def _require_resumable(folder: Path, command: str) -> None:
    """Raise ConfigError if the run is complete, or of the other runtime."""
    if not (folder / files.SUMMARY).exists():
        return  # it was killed when it began
    summary = files.read_summary(folder)
    if summary.get("status") == "complete":
        raise ConfigError(f"{folder}: this run is complete; there is nothing to resume")
    other: Began = "run" if command == "simulate" else "simulate"
    if _TIMES[other] in summary and _TIMES[command] not in summary:
        raise ConfigError(f"{folder} is of outpace {other}: use {resume_command(other, folder)}")


def _count_unrepeated(folder: Path, point: ResumePoint) -> None:
    """Add the iterations after the checkpoint that scripts will not repeat to the lost ones."""
    done: Counter[int] = Counter()
    lost = 0
    status = read_status(folder)
    if status is not None:  # the run was killed; else the summary is of its end
        workers = (each.iteration for each in status.processes if each.iteration is not None)
        done |= Counter(dict(enumerate(workers)))
        if status.resumed_from == point.checkpoint.name:
            lost = status.updates_lost
    if (folder / files.SUMMARY).exists():
        summary = files.read_summary(folder)
        done |= Counter(dict(enumerate(summary.get("iterations") or [])))
        if summary.get("resumed_from") == point.checkpoint.name:
            lost = max(lost, summary.get("updates_lost") or 0)
    recovery = point.recovery
    # From the same checkpoint before: what was lost then is not in the checkpoint.
    recovery.updates_lost = max(recovery.updates_lost, lost) + point.unrepeated(done)


def _experiment(folder: Path, task: TaskLike | None, changes: Mapping[str, Any]) -> Experiment:
    config = folder / files.CONFIG
    before = as_experiment(config, task)
    after = as_experiment(config, task, changes)
    for key, was, given in _differences(to_plain(before), to_plain(after)):
        raise ConfigError(
            f"--resume: {key} cannot change ({_word(was)} in {folder}, {_word(given)} given)"
        )
    return after


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], within: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys whose values differ and may not, with both values."""
    keys = [*before, *(key for key in after if key not in before)]
    for key in sorted(keys, key=lambda key: key != "kind"):  # others follow from the kind
        was, given = before.get(key), after.get(key)
        if was == given or (not within and key in _FREE):
            continue
        if isinstance(was, Mapping) and isinstance(given, Mapping):
            yield from _differences(was, given, f"{within}{key}.")
        else:
            yield f"{within}{key}", was, given


def _word(value: Any) -> str:
    return "nothing" if value is None else str(value)


def keeper_of(
    experiment: Experiment,
    out: Path | None,
    trace: Trace,
    sinks: Sequence[object],
    warn: Callable[[str], None],
    events: EventLog,
    resumed: Resumption | None,
) -> CheckpointKeeper | None:
    """Return what keeps the checkpoints of a run; None if it has no folder, or wants none.

    Args:
        out: the folder of the run.
        sinks: of its records.
        warn, trace, events: as for `CheckpointKeeper`.
        resumed: the run that is resumed; None: a new run.
    """
    if out is None or experiment.checkpoint is None:
        return None
    segmented = [sink for sink in sinks if isinstance(sink, SegmentedSink)]
    last, knows_anew = 0, False
    if resumed is not None:
        last, knows_anew = resumed.point.number, bool(resumed.point.checkpoint.index.anew)
    return CheckpointKeeper(
        out, experiment, trace, segmented, warn, events, last, knows_anew=knows_anew
    )
