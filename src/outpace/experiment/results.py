"""The results of a run, in memory or read from its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load_file

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.record import folder as files
from outpace.record.timing import read_timing
from outpace.support.regular_files import regular


@dataclass(frozen=True)
class Result:
    """The results of a run.

        result = outpace.simulate("experiment.yaml")
        print(result.summary["virtual_time_s"], result.metrics.to_pandas())

    Attributes:
        experiment: the configuration of the run.
        summary: the content of summary.json.
        metrics: one row per evaluation, or per point that a script logged; see
            `outpace.record.metrics.METRICS`.
        parameters: the model's state_dict; empty for the task `timing`.
        read_trace: returns the table `trace`.
        folder: the run's folder, or None if the run has none.
        read_timing: returns the table `timing`; None for a simulated run.
    """

    experiment: Experiment
    summary: dict[str, Any]
    metrics: pa.Table
    parameters: dict[str, torch.Tensor]
    read_trace: Callable[[], pa.Table]
    folder: Path | None = None
    read_timing: Callable[[], pa.Table] | None = None

    @property
    def trace(self) -> pa.Table:
        """One row per event, see `outpace.record.trace.SCHEMA`.

        If the run has a folder, each access reads the trace from it.
        """
        return self.read_trace()

    @property
    def timing(self) -> pa.Table | None:
        """Times of messages and computations of a real run; None for a simulated run.

        See `outpace.record.timing` for the columns. The table is read from the folder if there is
        one.
        """
        return None if self.read_timing is None else self.read_timing()

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", in {self.folder}"
        return f"<Result: {self.summary['status']}{where}>"

    @staticmethod
    def read(folder: Path) -> Result:
        """Return the result of a run from its folder. Raises ConfigError, and OSError."""
        return Result(
            experiment_from(files.read_config(folder), str(folder / files.CONFIG), folder),
            files.read_summary(folder),
            files.read_table(folder / files.METRICS),
            load_file(regular(folder / files.MODEL)),
            lambda: files.read_table(folder / files.TRACE),
            folder,
            partial(read_timing, folder) if (folder / files.TIMING).exists() else None,
        )
