"""TensorBoard, through torch's SummaryWriter."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outpace.record.trackers.values import is_time, time_of
from outpace.support.yaml_files import write_yaml


class Writer:
    """A SummaryWriter as a tracker.

    The wall time of a point is the start of the run plus the time of the run. TensorBoard's
    horizontal axis *Relative* so is the time of the run, also in virtual time.
    """

    def __init__(self, writer: Any) -> None:
        self._writer, self._began = writer, time.time()

    def config(self, values: dict[str, Any]) -> None:
        lines = write_yaml(values).splitlines()
        self._writer.add_text("config.yaml", "\n".join(f"    {line}" for line in lines))

    def log(self, values: Mapping[str, float], step: int) -> None:
        at = self._began + time_of(values)
        for name, value in values.items():
            if not is_time(name):
                self._writer.add_scalar(name, value, step, walltime=at)

    def finish(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()


def begin(folder: Path) -> Writer:
    """Return a tracker that writes into this folder."""
    from torch.utils.tensorboard import SummaryWriter  # slow, and it needs a package

    return Writer(SummaryWriter(str(folder)))
