"""Saves the checkpoints of a run in its folder, together with the records until then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from msgspec import structs

from outpace.config.experiment import Experiment
from outpace.engine.scripts.anew import REMEDY, begin_anew
from outpace.errors import ConfigError, in_words
from outpace.record.checkpoints import Checkpoint, Checkpoints, Index
from outpace.record.event_log import EventLog
from outpace.record.tables import RunTable
from outpace.record.trace import Trace
from outpace.support.processes.signals import uninterrupted


class CheckpointKeeper:
    """The checkpoints of one run.

    At most one checkpoint is open at a time, from `begin` to `commit` or `abandon`.

    Args:
        run: the folder of the run.
        experiment: the experiment, which has a `checkpoint`.
        trace: the trace of the run, which has a table.
        timing: the times of messages of a real run.
        warn: called if a checkpoint cannot be written, with a line for the user.
        events: the log, which gets an event for each checkpoint.
        last: number of the checkpoint from which the run is resumed; 0: a new run.
        knows_anew: True if the user knows that scripts begin again from their start.

    Attributes:
        last: the number of the last checkpoint of the run; 0: there is none yet.
    """

    def __init__(
        self,
        run: Path,
        experiment: Experiment,
        trace: Trace,
        timing: RunTable | None,
        warn: Callable[[str], None],
        events: EventLog,
        last: int = 0,
        *,
        knows_anew: bool = False,
    ) -> None:
        assert experiment.checkpoint is not None
        self._checkpoints = Checkpoints(run, experiment.checkpoint.keep)
        self._experiment = experiment
        self._trace, self._timing, self._warn, self._events = trace, timing, warn, events
        self.last = last
        self._knows_anew = knows_anew
        self._has_warned = False  # time since the last checkpoint was written
        # Called with each complete checkpoint and the metrics until then.
        self.when_saved: Callable[[Index, pa.Table], None] = lambda taken, metrics: None

    @property
    def folder(self) -> Path | None:
        """The folder of the last checkpoint; None: there is none yet."""
        return self._checkpoints.path(self.last) if self.last else None

    def begin(self, number: int) -> Path:
        """Make the folder for the parts of a checkpoint (`write_shard`). Raises OSError."""
        return self._checkpoints.begin(number)

    def commit(self, taken: Index, metrics: pa.Table) -> None:
        """Complete a checkpoint whose parts are on the disk.

        The trace until the checkpoint is written to the disk as well.

        Args:
            metrics: the result of `Metrics.kept`.

        Raises:
            OSError: if it cannot be written. Then call `abandon`.
        """
        with uninterrupted():  # otherwise rows could be in no file
            segments = self._trace.cut()
            if self._timing is not None:
                segments += self._timing.cut()
            self._checkpoints.commit(structs.replace(taken, segments=segments), metrics)
            self.last, self._has_warned = taken.number, False
        number, updates = taken.number, taken.updates
        self._events.add("checkpoint", number=number, time_ns=taken.now, updates=updates)
        self.when_saved(taken, metrics)
        if taken.anew and not self._knows_anew:
            self._knows_anew = True
            told = begin_anew(taken.anew, "of the checkpoint")
            self._warn(f"if the run continues from a checkpoint, {told}: {REMEDY}")

    def end(self) -> None:
        """Remove the files of an open checkpoint, because the processes of the run have ended."""
        self._checkpoints.end()

    def abandon(self, number: int, why: str = "") -> None:
        """Remove the files of a checkpoint that is not complete.

        why: the problem, which is told to the user; empty if there is none.
        """
        self._checkpoints.abandon(number)
        why = in_words(why)
        if why:
            self._events.add("checkpoint-failed", "warning", number=number, why=why)
        if why and not self._has_warned:
            self._has_warned = True
            last = f"checkpoint {self.last} is kept" if self.last else "there is none yet"
            self._warn(f"cannot write checkpoint {number} ({why}); the run continues, {last}")

    def go_back(self) -> Checkpoint:
        """Reset the records of the run to the last checkpoint, and return it.

        Raises:
            ConfigError: if no checkpoint can be used.
            OSError: if the records cannot be reset.
        """
        checkpoint = self._checkpoints.newest(self._warn)
        if checkpoint is None:
            raise ConfigError("the run has no checkpoint any more from which it can continue")
        number, now = checkpoint.index.number, checkpoint.index.now
        self._checkpoints.clean(after=number)
        self._trace.go_back(checkpoint.index.segments, now)
        if self._timing is not None:
            self._timing.go_back(checkpoint.index.segments, now)
        self.last = number
        return checkpoint
