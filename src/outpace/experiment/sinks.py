"""The destinations of a run's trace and of its times, in memory or in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.experiment.resuming.point import Resumption
from outpace.real.net import probes
from outpace.record import folder as files
from outpace.record.segments import SegmentedSink
from outpace.record.sinks import MemorySink, NoSink, ParquetSink
from outpace.record.timing import Sampling, schema_of
from outpace.record.trace import SCHEMA

RunSink: TypeAlias = MemorySink | ParquetSink | SegmentedSink | NoSink


def sink_for(
    out: Path | None, experiment: Experiment, resumed: Resumption | None = None
) -> RunSink:
    """Return the sink for the trace of a run with this folder."""
    return _sink(out, files.TRACE, SCHEMA, "the trace of the run", experiment, resumed)


def timing_sink_for(
    experiment: Experiment, out: Path | None, resumed: Resumption | None = None
) -> RunSink:
    """Return the sink for the times of a real run with this folder."""
    sampling = Sampling.of_run(experiment.workers, experiment.servers_in_run)
    probe = {"sizes": probes.SIZES, "at_most_s": probes.PROBE_S} if experiment.probe else None
    schema = schema_of(sampling, probe)
    return _sink(out, files.TIMING, schema, "the times of messages", experiment, resumed)


def _sink(
    out: Path | None,
    name: str,
    schema: pa.Schema,
    what: str,
    experiment: Experiment,
    resumed: Resumption | None,
) -> RunSink:
    if out is None:
        return MemorySink(schema)
    if experiment.checkpoint is None and resumed is None:
        return ParquetSink(out / name, schema, what)
    return SegmentedSink(out / name, schema, what)
