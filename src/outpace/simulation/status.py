"""Writes how far a simulation is, about once a second of real time."""

from __future__ import annotations

import time
from pathlib import Path

from outpace.config.experiment import Experiment
from outpace.engine.status import StatusFile
from outpace.record.event_log import EventLog
from outpace.record.status import EVERY_S
from outpace.simulation.virtual import Progress, VirtualRun
from outpace.support.units import seconds


class StatusOfSimulation:
    """Is told of the progress of a simulation, and tells it on. A simulation of less than a
    second writes nothing.

    Attributes:
        engine: the simulation, once it is made.

    Args:
        folder: of the run.
        events: knows the checkpoints of this session.
        progress: as for `VirtualRun`.
    """

    def __init__(
        self, folder: Path, experiment: Experiment, events: EventLog, progress: Progress | None
    ) -> None:
        self.engine: VirtualRun | None = None
        self._file = StatusFile(folder, "simulate", experiment, events)
        self._progress = progress or (lambda _: None)
        self._due = time.monotonic() + EVERY_S

    def __call__(self, share: float) -> None:
        self._progress(share)
        engine, now = self.engine, time.monotonic()
        if engine is None or now < self._due:
            return
        self._due = now + EVERY_S
        recovery = engine.recovery()
        self._file.write("training", seconds(engine.kernel.now), engine.totals, recovery)
