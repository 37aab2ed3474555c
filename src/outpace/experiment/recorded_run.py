"""Drives one engine to its end and keeps the results, in memory or in a run's folder."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from outpace.blocks.block import parameters_digest
from outpace.config.experiment import Experiment
from outpace.config.reading import to_plain
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.protocol import Engine
from outpace.engine.servers import is_exact, scheduler_number
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.experiment.end_warnings import warnings_at_end
from outpace.experiment.results import Result
from outpace.experiment.resuming.command import began_with
from outpace.experiment.resuming.point import Resumption
from outpace.experiment.resuming.so_far import at_checkpoint, going_on
from outpace.predict.models import save as save_run_time_model
from outpace.real.net import probes
from outpace.record import folder as files
from outpace.record.checkpoints import RunLock, Taken
from outpace.record.event_log import LAUNCHER, EventLog, Level
from outpace.record.segments import SegmentedSink
from outpace.record.sinks import MemorySink, NoSink, ParquetSink
from outpace.record.status import remove_status
from outpace.record.timing import Sampling, schema_of
from outpace.record.trace import NONE, RESTART, SCHEMA, Trace
from outpace.record.trackers.feeding import Trackers
from outpace.simulation.network.links import MessageLog
from outpace.support.notices import warn
from outpace.support.processes.signals import uninterrupted
from outpace.support.units import seconds
from outpace.support.version import __version__

RunSink: TypeAlias = MemorySink | ParquetSink | SegmentedSink | NoSink


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """An engine and the destinations of its results.

    Attributes:
        log: the log of network messages, if they are to be kept.
        timing: the times of messages and computations of a real run.
        out: the run's folder, which `drive` makes; None keeps the results in memory.
        warnings: for the summary; the engine's owner may add to them during the run.
        warn: called with a warning that is found during the run, to show it.
        trackers: are told of the configuration, the metrics and the end of the run.
        may_have: name of what the folder may have before `drive`.
        ended: called with the summary of the run, however it ended.
        resumed: the run that is resumed, in its folder; None: a new run.
        events: the log of what happens to the run.
        keeper: keeps the checkpoints of the run; None: it takes none.
    """

    experiment: Experiment
    engine: Engine
    trace: Trace
    sink: RunSink
    out: Path | None
    log: MessageLog | None = None
    warnings: list[str] = field(default_factory=list)
    warn: Callable[[str], None] = warn
    timing: RunSink | None = None
    trackers: Trackers = field(default_factory=Trackers)
    may_have: str = ""
    ended: Callable[[dict[str, Any]], object] = lambda _: None
    resumed: Resumption | None = None
    events: EventLog = field(default_factory=EventLog)
    keeper: CheckpointKeeper | None = None

    def drive(self) -> Result:
        """Run the engine once. The folder is complete afterwards, however the run ended."""
        with ExitStack() as held:
            return self._drive(held)

    def _drive(self, held: ExitStack) -> Result:
        """Run the engine once. held: gets the lock of the folder."""
        status, reason = "complete", None
        started, is_open = time.perf_counter(), False
        if self.keeper is not None:
            self.keeper.when_saved = lambda taken, metrics: self._write_so_far(
                taken, metrics, time.perf_counter() - started
            )
        try:
            with uninterrupted():  # else the folder could stay without records
                self._open(held)
                is_open = True
            started = time.perf_counter()
            self._begin_tracking()
            self.engine.run()
            before = None if self.resumed is None else self.resumed.point.checkpoint.index.workers
            for warning in warnings_at_end(self.experiment, self.engine, before):
                self.warnings.append(warning)
                self.warn(warning)
        except KeyboardInterrupt as interrupt:
            status, reason = "partial", str(interrupt) or "interrupted"
            raise
        except BaseException as error:
            status, reason = (
                "failed",
                str(error) if isinstance(error, OutpaceError) else repr(error),
            )
            raise
        finally:
            if is_open:
                if self.keeper is not None:
                    self.keeper.end()
                result = self._finish(status, time.perf_counter() - started, reason)
        return result

    def _open(self, held: ExitStack) -> None:
        """Open the folder, or close the engine and say why not."""
        try:
            self._open_folder(held)
        except BaseException as error:
            self.engine.close()
            if isinstance(error, OSError):
                raise RunError(
                    f"cannot write to the folder {self.out}: {error.strerror or error}; nothing "
                    "was run: make room there, or choose another folder"
                ) from error
            raise

    def _begin_tracking(self) -> None:
        config = to_plain(self.experiment)
        config.pop("trackers")
        self.trackers.config(config)
        self.engine.metrics.observers.append(self.trackers.point)

    def _open_folder(self, held: ExitStack) -> None:
        if self.resumed is not None:
            held.callback(self.resumed.lock.release)
            try:
                self.resumed.take_up(self.trace, self.sink, self.timing)
            except OSError as error:
                raise ConfigError(f"the records in {self.out} cannot be used: {error}") from error
        elif self.out is not None:
            files.new_folder(self.out, self.may_have)
            held.enter_context(RunLock(self.out, remove=self.experiment.checkpoint is None))
        if self.out is not None:
            files.write_config(self.out, to_plain(self.experiment))
            files.write_summary(self.out, self._summary("partial", 0.0, files.KILLED))
            if self.resumed is not None:
                point = self.resumed.point
                self._write_so_far(point.checkpoint.index, point.metrics(), 0.0)
            self.events.open()
        self._log_begin()

    def _write_so_far(self, taken: Taken, metrics: pa.Table, host_s: float) -> None:
        """Write the summary until a checkpoint, which stays if this process is killed."""
        assert self.out is not None
        summary = self._summary("partial", host_s, files.KILLED, digests=False)
        with contextlib.suppress(OSError):  # the one before stays, and the checkpoint is complete
            files.write_summary(
                self.out, at_checkpoint(summary, taken, metrics, self.experiment, self.out)
            )

    def _log_begin(self) -> None:
        known: dict[str, Any] = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "outpace": __version__,
            "workers": self.experiment.workers,
            "servers": self.experiment.servers_in_run,
        }
        if self.resumed is None:
            self.events.add("start", role=LAUNCHER, **known)
        else:
            point = self.resumed.point
            at: dict[str, Any] = {
                "number": point.number,
                "time_s": seconds(point.now),
                "first": point.first,
            }
            self.events.add("resume", role=LAUNCHER, **known, **at)
            now, begin = point.now, min(point.first)
            rest = NONE, NONE, point.number, NONE, NONE, len(point.checkpoint.index.anew) or NONE
            self.trace.row(RESTART, NONE, NONE, begin, now, now, *rest)

    def _finish(self, status: str, host_s: float, error: str | None) -> Result:
        """Complete the folder, and then the trackers, which may take long."""
        try:
            result = self._written(status, host_s, error)
        except RunError:
            self.trackers.finish("failed")
            self._log_end("failed", error)
            raise
        self._log_end(status, error)
        known = len(self.warnings)
        self.trackers.finish(status)
        if len(self.warnings) > known:
            result.summary["warnings"] = list(self.warnings)
            if self.out is not None:
                with contextlib.suppress(OSError):  # the disk is full: the summary stays as it is
                    files.write_summary(self.out, result.summary)
        self.ended(result.summary)
        return result

    def _log_end(self, status: str, error: str | None) -> None:
        recovery = self.engine.recovery().summary()
        level: Level = "error" if status == "failed" else "info"
        self.events.add("end", level, role=LAUNCHER, status=status, error=error, **recovery)

    def _written(self, status: str, host_s: float, error: str | None) -> Result:
        """Return the result, and complete the folder. Raises RunError if it cannot be completed."""
        with uninterrupted():
            try:
                return self._complete(status, host_s, error)
            except (OSError, ConfigError, RunError) as fault:
                reason = f"cannot complete the folder {self.out}: {fault}"
                if error is not None:  # the run had failed before
                    reason = f"{error}; {reason}"
                if self.out is not None:
                    with contextlib.suppress(OSError):
                        files.correct_summary(self.out, self._summary("failed", host_s, reason))
                raise RunError(reason) from fault

    def _complete(self, status: str, host_s: float, error: str | None) -> Result:
        self.engine.close()
        for sink in (self.sink, self.timing):
            if sink is not None:
                sink.close()
        summary = self._summary(status, host_s, error)
        metrics = self.engine.metrics.table()
        parameters = self.engine.state_dict()
        if self.out is not None:
            files.write_table(self.out / files.METRICS, metrics)
            files.write_model(self.out, parameters)
            if (run_time_model := self.engine.run_time_model()) is not None:
                save_run_time_model(run_time_model, self.out / files.RUN_TIME_MODEL)
            if self.log is not None:
                files.write_table(self.out / files.MESSAGES, self.log.table())
            if (used := self.engine.used_by_script()) is not None:
                files.write_config(self.out, to_plain(self.experiment), in_words(used))
            files.write_summary(self.out, summary)
            for sink in (self.sink, self.timing):
                if isinstance(sink, SegmentedSink) and status == "complete":
                    sink.remove_segments()
            remove_status(self.out)
            self._report(self.out)
        times = None if self.timing is None else self.timing.table
        trace = self.sink.table
        return Result(self.experiment, summary, metrics, parameters, trace, self.out, times)

    def _report(self, folder: Path) -> None:
        """Write the report; a run whose report is missing is complete: it can be made again."""
        from outpace.report.page import write_report  # imports plotly, which takes a second

        try:
            write_report([folder], folder / files.REPORT)
        except (OSError, ConfigError) as fault:
            warn(f"{fault}; the run is complete: `outpace report {folder}` makes its report")

    def _summary(
        self, status: str, host_s: float, error: str | None, *, digests: bool = True
    ) -> dict[str, Any]:
        engine, peers = self.engine, self.experiment.peers
        times = engine.times(host_s)
        last = 0 if self.keeper is None else self.keeper.last
        return {
            "status": status,
            "error": error,
            "warnings": list(self.warnings),
            **times,
            **engine.totals.summary(engine.places),
            **({} if peers is None else engine.totals.summary_of_peers()),
            **({} if peers is None else {"exchanges": peers.exchanges}),
            "servers": self._servers() if peers is None else [],
            "scheduler_shard": scheduler_number(self.experiment) if peers is None else None,
            "lockstep": is_exact(self.experiment),
            **engine.recovery().summary(),
            **({} if not (nodes := engine.nodes()) else {"nodes": dict(sorted(nodes.items()))}),
            **engine.metrics.summary(self.experiment.goal),
            **({} if (used := engine.used_by_script()) is None else {"script": used}),
            "parameters_digest": parameters_digest(engine.parameters()) if digests else None,
            "trace_digest": self.trace.digest() if digests else None,
            **going_on(began_with(times), self.out, 0 if status == "complete" else last),
        }

    def _servers(self) -> list[dict[str, Any]]:
        """Return each server's initial policy and its sums."""
        policies = to_plain(self.experiment)["sync"]
        return [
            {
                "policy": policies[server] if isinstance(policies, list) else policies,
                **self.engine.totals.summary_of(server),
            }
            for server in range(self.experiment.servers)
        ]


def in_words(used: Mapping[str, Any]) -> list[str]:
    """Return lines that say what a script trained with; used: see `ScriptModel.used`."""
    groups = used.get("groups")
    size = used.get("batch_size")
    batches = "" if size is None else f" in batches of {size} per worker"
    lines = [f"The script trained with {used.get('optimizer')}{batches}. Settings at the start:"]
    for group in groups if isinstance(groups, list) else ():
        known = {} if not isinstance(group, Mapping) else dict(group)
        tensors = known.pop("tensors", "?")
        said = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
        lines.append(f"  {tensors} tensors: {said}")
    return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


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
