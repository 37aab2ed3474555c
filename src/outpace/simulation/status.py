"""Writes how far a simulation is, about once a second of real time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.config.experiment import Experiment
from outpace.engine.status import StatusFile
from outpace.record.event_log import EventLog
from outpace.record.status import EVERY_S
from outpace.support.units import seconds

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class StatusOfSimulation:
    """Is told now and then that a simulation runs. One of less than a second writes nothing.

    Args:
        folder: of the run.
        events: knows the checkpoints of this session.
    """

    def __init__(self, folder: Path, experiment: Experiment, events: EventLog) -> None:
        self._file = StatusFile(folder, "simulate", experiment, events)
        self._due = time.monotonic() + EVERY_S

    def look(self, run: VirtualRun) -> None:
        """Write the status if it is time to."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + EVERY_S
            self._file.write("training", seconds(run.kernel.now), run.totals, run.recovery())
