"""Drives one engine to its end and stores its records, in memory or in a run's folder."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from outpace.blocks.block import parameters_digest
from outpace.config.experiment import Experiment
from outpace.config.reading import to_plain
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.momentum import stale_momentum
from outpace.engine.protocol import Engine
from outpace.engine.servers import is_exact, scheduler_number
from outpace.engine.status import StatusFile
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.experiment.end_warnings import warnings_at_end
from outpace.experiment.results import Result
from outpace.experiment.resuming import Resumption
from outpace.experiment.status import began_with, resume_command
from outpace.predict.models import save as save_run_time_model
from outpace.record import folder as files
from outpace.record.checkpoints import Index, RunLock
from outpace.record.checkpoints.committed import name_of
from outpace.record.event_log import LAUNCHER, EventLog, Level
from outpace.record.folder import LOG
from outpace.record.metrics import Metrics
from outpace.record.status import Command, remove_status
from outpace.record.tables import RunTable
from outpace.record.timing import timing_table
from outpace.record.totals import Totals
from outpace.record.trace import SCHEMA, Trace, trace_table
from outpace.record.trackers import Trackers, trackers_of
from outpace.simulation.network.links import MessageLog
from outpace.support.notices import warn
from outpace.support.processes.signals import uninterrupted
from outpace.support.units import seconds
from outpace.support.version import __version__
from outpace.tasks import Script, Timing


class RunWarnings:
    """The warnings of one run, in order; each is shown to the user and written to the run's log.

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
        """Warn about settings that are allowed, but probably not intended."""
        for text in experiment.policies.warnings():
            self.add(text)
        if not isinstance(experiment.task, Script | Timing):
            for text in stale_momentum(experiment, [getattr(experiment.optimizer, "momentum", 0)]):
                self.add(text)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of one run, made before its engine, in the same way for both runtimes.

    Attributes:
        out: the run's folder, which need not exist yet; None: all records are in memory.
        resumed: the run that is resumed, in its folder; None: a new run.
        timing: times of messages and computations of a real run; None: in virtual time.
        keeper: stores the checkpoints of the run; None: it takes none.
    """

    out: Path | None
    resumed: Resumption | None
    events: EventLog
    warnings: RunWarnings
    status: StatusFile
    trace: Trace
    timing: RunTable | None
    keeper: CheckpointKeeper | None
    trackers: Trackers

    @property
    def tables(self) -> list[RunTable]:
        """The tables that exist: the trace, and the times of messages."""
        return [table for table in (self.trace.table, self.timing) if table is not None]


def records_of(
    experiment: Experiment,
    out: Path | None,
    command: Command,
    tracker: Any,
    resumed: Resumption | None,
    show: Callable[[str], None],
    *,
    name: str = "",
    keep_trace: bool = True,
) -> RunRecords:
    """Return the records of a run; nothing is written before its folder is made.

    Args:
        command: the command that runs the experiment; `simulate` has no times of messages.
        tracker, name: see `trackers_of`.
        show: shows a warning to the user.
        keep_trace: False to drop the trace of a run without a folder.
    """
    point = None if resumed is None else resumed.point
    recovery = None if point is None else point.recovery
    events = EventLog(None if out is None else out / LOG, show, recovery)
    warnings = RunWarnings(events, show)
    in_segments = out is not None and (experiment.checkpoint is not None or resumed is not None)
    trace = Trace()
    if keep_trace:
        path = None if out is None else out / files.TRACE
        trace = Trace(trace_table(path, in_segments=in_segments))
    timing, keeper = None, None
    if command != "simulate":
        path = None if out is None else out / files.TIMING
        timing = timing_table(path, in_segments=in_segments)
    if out is not None and experiment.checkpoint is not None:
        last, anew = (0, False) if point is None else (point.number, point.begins_anew)
        keeper = CheckpointKeeper(
            out, experiment, trace, timing, warnings.add, events, last, knows_anew=anew
        )
    return RunRecords(
        out,
        resumed,
        events,
        warnings,
        StatusFile(out, command, experiment, events),
        trace,
        timing,
        keeper,
        trackers_of(experiment.trackers, tracker, name, out, warnings.add),
    )


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """An engine and its records. `drive` makes the run's folder.

    Attributes:
        log: the log of network messages, if they are recorded.
        may_have: name of an entry that the folder may have before `drive`.
        ended: called with the summary of the run, for every kind of end.
    """

    experiment: Experiment
    engine: Engine
    records: RunRecords
    log: MessageLog | None = None
    may_have: str = ""
    ended: Callable[[dict[str, Any]], object] = lambda _: None

    def drive(self) -> Result:
        """Run the engine once. Afterwards the folder is complete, for every kind of end."""
        records, engine = self.records, self.engine
        with ExitStack() as held:
            began_s, status, reason = time.perf_counter(), "complete", None
            is_open = False
            if records.keeper is not None:
                records.keeper.when_saved = lambda taken, metrics: self._write_partial(
                    time.perf_counter() - began_s, taken, metrics
                )
            try:
                with uninterrupted():  # otherwise the folder could remain without records
                    self._open(held)
                    is_open = True
                began_s = time.perf_counter()
                config = to_plain(self.experiment)
                config.pop("trackers")
                records.trackers.config(config)
                engine.metrics.observers.append(records.trackers.point)
                engine.run()
                before = None if records.resumed is None else records.resumed.workers
                recovery = records.events.recovery
                for warning in warnings_at_end(self.experiment, engine, recovery, before):
                    records.warnings.add(warning)
            except KeyboardInterrupt as interrupt:
                status, reason = "partial", str(interrupt) or "interrupted"
                raise
            except BaseException as error:
                status = "failed"
                reason = str(error) if isinstance(error, OutpaceError) else repr(error)
                if isinstance(error, OSError) and not is_open:
                    raise RunError(
                        f"cannot write to the folder {records.out}: {error.strerror or error}; "
                        "nothing was run: make room there, or choose another folder"
                    ) from error
                raise
            finally:
                if is_open:
                    result = self._finish(status, time.perf_counter() - began_s, reason)
                else:
                    engine.close()
            return result

    def _open(self, held: ExitStack) -> None:
        """Make the folder, or reset it to its checkpoint. held: receives the lock of the folder."""
        resumed, out, experiment = self.records.resumed, self.records.out, self.experiment
        known: dict[str, Any] = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "outpace": __version__,
            "workers": experiment.workers,
            "servers": experiment.servers_in_run,
        }
        if resumed is not None:
            held.callback(resumed.lock.release)
            try:
                resumed.go_back(self.records.trace, self.records.timing)
            except OSError as error:
                raise ConfigError(f"the records in {out} cannot be used: {error}") from error
            point = resumed.point
            known |= {"number": point.number, "time_ns": point.now, "first": point.first}
            known["anew"] = len(point.checkpoint.index.anew)
        elif out is not None:
            files.new_folder(out, self.may_have)
            held.enter_context(RunLock(out, remove=experiment.checkpoint is None))
        if out is not None:
            files.write_config(out, to_plain(experiment))
            if resumed is None:
                files.write_summary(out, self._summary("partial", 0.0, files.KILLED))
            else:
                self._write_partial(0.0, resumed.point.checkpoint.index, resumed.point.metrics())
            self.records.events.open()
        self.records.events.add("start" if resumed is None else "resume", role=LAUNCHER, **known)

    def _write_partial(self, host_s: float, taken: Index, metrics: pa.Table) -> None:
        """Write the summary at a checkpoint; it remains if this process is killed."""
        assert self.records.out is not None
        known = Metrics()
        known.take_up(metrics)
        # the previous summary remains, and the checkpoint is complete
        with contextlib.suppress(OSError):
            summary = self._summary("partial", host_s, files.KILLED, taken, known)
            files.write_summary(self.records.out, summary)

    def _finish(self, status: str, host_s: float, error: str | None) -> Result:
        """Complete the records, for every kind of end. Raises RunError if that is impossible."""
        records, fault = self.records, None
        if records.keeper is not None:
            records.keeper.end()
        with contextlib.suppress(KeyboardInterrupt):  # trackers may take long
            records.trackers.finish(status)
        try:
            with uninterrupted():
                result = self._complete(status, host_s, error)
        except (OSError, ConfigError, RunError) as found:
            fault, status = found, "failed"
            error = f"{error}; " if error else ""  # the run had failed before
            error += f"cannot complete the folder {records.out}: {found}"
            if records.out is not None:
                with contextlib.suppress(OSError):
                    files.correct_summary(records.out, self._summary(status, host_s, error))
        level: Level = "error" if status == "failed" else "info"
        known = {"status": status, "error": error, **records.events.recovery.summary()}
        records.events.add("end", level, role=LAUNCHER, **known)
        if fault is not None:
            raise RunError(str(error)) from fault
        self.ended(result.summary)
        return result

    def _complete(self, status: str, host_s: float, error: str | None) -> Result:
        records, engine, out = self.records, self.engine, self.records.out
        engine.close()
        for table in records.tables:
            table.close()
        summary = self._summary(status, host_s, error)
        metrics, parameters = engine.metrics.table(), engine.state_dict()
        if out is not None:
            files.write_table(out / files.METRICS, metrics)
            files.write_model(out, parameters)
            if (run_time_model := engine.run_time_model()) is not None:
                save_run_time_model(run_time_model, out / files.RUN_TIME_MODEL)
            if self.log is not None:
                files.write_table(out / files.MESSAGES, self.log.table())
            files.write_summary(out, summary)
            for table in records.tables if status == "complete" else ():
                table.remove_segments()
            remove_status(out)
            self._report(out)
        kept = records.trace.table
        trace = SCHEMA.empty_table if kept is None else kept.table
        times = None if records.timing is None else records.timing.table
        return Result(self.experiment, summary, metrics, parameters, trace, out, times)

    def _report(self, folder: Path) -> None:
        """Write the report. A run without a report is complete, as the report can be made later."""
        from outpace.report.page import write_report  # imports plotly, which takes a second

        try:
            write_report([folder], folder / files.REPORT)
        except (OSError, ConfigError) as fault:
            warn(f"{fault}; the run is complete: `outpace report {folder}` makes its report")

    def _summary(
        self,
        status: str,
        host_s: float,
        error: str | None,
        taken: Index | None = None,
        metrics: Metrics | None = None,
    ) -> dict[str, Any]:
        """Return the summary of the run now, or at a checkpoint.

        Args:
            taken, metrics: data of the checkpoint, which has no digests.
        """
        engine, experiment, out = self.engine, self.experiment, self.records.out
        times, recovery = engine.times(host_s), self.records.events.recovery
        totals, places = engine.totals, engine.places
        number = 0 if self.records.keeper is None else self.records.keeper.last
        command = began_with(times)
        if taken is not None:
            totals, places, recovery = taken.totals, experiment.workers, taken.recovery
            number = taken.number
            times["virtual_time_s" if command == "simulate" else "wall_time_s"] = seconds(taken.now)
        peers, has_digests = experiment.peers, taken is None
        can_resume = out is not None and number > 0 and status != "complete"
        return {
            "status": status,
            "error": error,
            "warnings": list(self.records.warnings.texts),
            **times,
            **totals.summary(places),
            **({} if peers is None else totals.summary_of_peers()),
            **({} if peers is None else {"exchanges": peers.exchanges}),
            "servers": [] if peers is not None else self._servers(totals),
            "scheduler_shard": scheduler_number(experiment) if peers is None else None,
            "lockstep": is_exact(experiment),
            **recovery.summary(),
            **({} if not (nodes := engine.nodes()) else {"nodes": dict(sorted(nodes.items()))}),
            **(metrics or engine.metrics).summary(experiment.goal),
            **({} if (used := engine.used_by_script()) is None else {"script": used}),
            "parameters_digest": parameters_digest(engine.parameters()) if has_digests else None,
            "trace_digest": self.records.trace.digest() if has_digests else None,
            "checkpoint": name_of(number) if can_resume else None,
            "resume": resume_command(command, out.absolute()) if out and can_resume else None,
        }

    def _servers(self, totals: Totals) -> list[dict[str, Any]]:
        """Return each server's initial policy and its sums."""
        policies = to_plain(self.experiment)["sync"]
        return [
            {
                "policy": policies[server] if isinstance(policies, list) else policies,
                **totals.summary_of(server),
            }
            for server in range(self.experiment.servers)
        ]
