"""Records how far a run is, and keeps its status.json up to date, in every runtime."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from outpace.config.experiment import Experiment
from outpace.record.event_log import EventLog
from outpace.record.status import (
    Command,
    Phase,
    ProcessStatus,
    Status,
    write_status,
)
from outpace.record.totals import Totals
from outpace.support.notices import warn

_WINDOW: Final = 10  # number of written statuses over which the rate is averaged


class StatusFile:
    """Records how far a run is, and writes it to status.json.

    If the file cannot be written, the user is warned once, and the run continues.

    Args:
        folder: folder of the run; None: nothing is written.
        command: the command that has started the run.
        events: the log, which knows the checkpoints of this session.

    Attributes:
        latest: the last status that was written; None: there is none yet.
    """

    def __init__(
        self, folder: Path | None, command: Command, experiment: Experiment, events: EventLog
    ) -> None:
        self.events = events
        self.folder = folder
        self.latest: Status | None = None
        self._command, self._experiment = command, experiment
        self._since, self._host = time.time(), socket.gethostname()
        self._known = deque[tuple[float, int]](maxlen=_WINDOW)  # seconds, gradients
        self._has_warned = False

    def write(
        self,
        phase: Phase,
        time_s: float,
        totals: Totals,
        processes: Sequence[ProcessStatus] = (),
        waits_for: str = "",
    ) -> None:
        """Write the status. time_s, totals: time and sums of the run until now."""
        stop, recovery = self._experiment.stop, self.events.recovery
        iterations = [each.iteration for each in processes if each.iteration is not None]
        if not iterations:  # the host time of a simulation
            iterations = [totals.iterations.get(n, 0) for n in range(self._experiment.workers)]
        self.latest = Status(
            command=self._command,
            process=os.getpid(),
            host=self._host,
            since=self._since,
            at=time.time(),
            phase=phase,
            waits_for=waits_for,
            time_s=time_s,
            share=self._share(iterations, time_s),
            iterations=min(iterations),
            most_iterations=stop.iterations,
            gradients=totals.applied,
            gradients_per_s=self._rate(totals.applied),
            processes=list(processes),
            checkpoints=None if self._experiment.checkpoint is None else self.events.checkpoint,
            restarts=recovery.restarts,
            updates_lost=recovery.updates_lost,
            resumed_from=recovery.resumed_from,
            elastic=self.events.elastic,
        )
        if self.folder is None:
            return
        try:
            write_status(self.folder, self.latest)
        except OSError as error:
            if not self._has_warned:
                warn(
                    f"cannot write {error.filename}: {error.strerror}; the run continues without it"
                )
            self._has_warned = True

    def _share(self, iterations: Sequence[int], time_s: float) -> float | None:
        """Return the larger of the completed shares of iterations and time; None: unknown."""
        stop, shares = self._experiment.stop, list[float]()
        if stop.iterations:
            shares.append(sum(iterations) / len(iterations) / stop.iterations)
        if stop.virtual_time_s:
            shares.append(time_s / stop.virtual_time_s)
        return min(1.0, max(shares)) if shares else None

    def _rate(self, gradients: int) -> float | None:
        now, known = time.monotonic(), self._known
        if known and gradients < known[-1][1]:
            known.clear()  # the run has gone back to a checkpoint
        known.append((now, gradients))
        span_s = now - known[0][0]
        return (gradients - known[0][1]) / span_s if span_s > 0 else None
