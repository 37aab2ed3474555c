"""Where one run keeps what happens: made before its engine, in the same way for both runtimes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from outpace.config.experiment import Experiment
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.momentum import stale_momentum
from outpace.engine.status import StatusFile
from outpace.experiment.resuming.point import Resumption, keeper_of
from outpace.experiment.tracking import Tracking, trackers_of
from outpace.real.net import probes
from outpace.record import folder as files
from outpace.record.event_log import LOG, EventLog
from outpace.record.segments import SegmentedSink
from outpace.record.sinks import MemorySink, NoSink, ParquetSink
from outpace.record.status import Command
from outpace.record.timing import Sampling, schema_of
from outpace.record.trace import SCHEMA, Trace
from outpace.record.trackers.feeding import Trackers
from outpace.tasks import Script, Timing

RunSink: TypeAlias = MemorySink | ParquetSink | SegmentedSink | NoSink


class RunWarnings:
    """The warnings of one run, in order; each is shown, and noted in the log of the run.

    Args:
        show: shows a warning to the user.
    """

    def __init__(self, events: EventLog, show: Callable[[str], None]) -> None:
        self.texts: list[str] = []
        self._events, self._show = events, show

    def add(self, text: str) -> None:
        self.texts.append(text)
        self._events.add_text("warning", text)
        self._show(text)

    def add_settings(self, experiment: Experiment) -> None:
        """Warn of what is allowed in a configuration, but probably not meant."""
        for text in experiment.policies.warnings():
            self.add(text)
        if not isinstance(experiment.task, Script | Timing):
            for text in stale_momentum(experiment, [getattr(experiment.optimizer, "momentum", 0)]):
                self.add(text)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of one run.

    Attributes:
        out: the run's folder, which need not exist yet; None: all is kept in memory.
        resumed: the run that is resumed, in its folder; None: a new run.
        events: the log of what happens to the run.
        timing: for times of messages and computations of a real run; None: in virtual time.
        keeper: keeps the checkpoints of the run; None: it takes none.
        trackers: are told of the configuration, the metrics and the end of the run.
    """

    out: Path | None
    resumed: Resumption | None
    events: EventLog
    warnings: RunWarnings
    status: StatusFile
    trace: Trace
    sink: RunSink
    timing: RunSink | None
    keeper: CheckpointKeeper | None
    trackers: Trackers


def records_of(
    experiment: Experiment,
    out: Path | None,
    command: Command,
    tracking: Tracking,
    resumed: Resumption | None,
    show: Callable[[str], None],
    *,
    keep_trace: bool = True,
) -> RunRecords:
    """Return the records of a run; nothing is written before its folder is made.

    Args:
        command: that runs the experiment; `simulate` has no times of messages, and a log of events
            only if something can happen to its run.
        show: shows a warning to the user.
        keep_trace: False to drop the trace of a run without a folder.
    """
    is_virtual = command == "simulate"
    can_fail = experiment.checkpoint is not None or experiment.faults is not None
    has_log = out is not None and (can_fail or not is_virtual)
    events = EventLog(out / LOG if out is not None and has_log else None, show)
    warnings = RunWarnings(events, show)
    sink = trace_sink(out, experiment, resumed) if keep_trace else NoSink()
    timing = None if is_virtual else timing_sink(out, experiment, resumed)
    trace = Trace(sink)
    return RunRecords(
        out,
        resumed,
        events,
        warnings,
        StatusFile(out, command, experiment, events),
        trace,
        sink,
        timing,
        keeper_of(experiment, out, trace, [sink, timing], warnings.add, events, resumed),
        trackers_of(experiment, tracking, out, warnings.add),
    )


def trace_sink(out: Path | None, experiment: Experiment, resumed: Resumption | None) -> RunSink:
    """Return the sink for the trace of a run with this folder."""
    return _sink(out, files.TRACE, SCHEMA, "the trace of the run", experiment, resumed)


def timing_sink(
    out: Path | None, experiment: Experiment, resumed: Resumption | None = None
) -> RunSink:
    """Return the sink for the times of a real run with this folder."""
    sampling = Sampling.of_run(experiment.workers, experiment.servers_in_run)
    probe: dict[str, Any] | None = None
    if experiment.probe:
        probe = {"sizes": probes.SIZES, "at_most_s": probes.PROBE_S}
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
