"""Drives one engine to its end and keeps the results, in memory or in a run's folder."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from outpace.blocks.block import parameters_digest
from outpace.config.experiment import Experiment
from outpace.config.reading import to_plain
from outpace.engine.protocol import Engine
from outpace.engine.servers import is_exact, scheduler_number
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.experiment.end_warnings import warnings_at_end
from outpace.experiment.results import Result
from outpace.experiment.resuming.command import began_with
from outpace.experiment.resuming.point import Resumption
from outpace.experiment.resuming.so_far import at_checkpoint, going_on
from outpace.experiment.run_records import RunRecords
from outpace.predict.models import save as save_run_time_model
from outpace.record import folder as files
from outpace.record.checkpoints import RunLock, Taken
from outpace.record.event_log import LAUNCHER, Level
from outpace.record.segments import SegmentedSink
from outpace.record.status import remove_status
from outpace.record.trace import NONE, RESTART
from outpace.simulation.network.links import MessageLog
from outpace.support.notices import warn
from outpace.support.processes.signals import uninterrupted
from outpace.support.units import seconds
from outpace.support.version import __version__


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """An engine and its records. `drive` makes the run's folder.

    Attributes:
        log: the log of network messages, if they are to be kept.
        may_have: name of what the folder may have before `drive`.
        ended: called with the summary of the run, however it ended.
    """

    experiment: Experiment
    engine: Engine
    records: RunRecords
    log: MessageLog | None = None
    may_have: str = ""
    ended: Callable[[dict[str, Any]], object] = lambda _: None

    @property
    def _out(self) -> Path | None:
        return self.records.out

    @property
    def _resumed(self) -> Resumption | None:
        return self.records.resumed

    def drive(self) -> Result:
        """Run the engine once. The folder is complete afterwards, however the run ended."""
        with ExitStack() as held:
            return self._drive(held)

    def _drive(self, held: ExitStack) -> Result:
        """Run the engine once. held: gets the lock of the folder."""
        status, reason = "complete", None
        started, is_open = time.perf_counter(), False
        if self.records.keeper is not None:
            self.records.keeper.when_saved = lambda taken, metrics: self._write_so_far(
                taken, metrics, time.perf_counter() - started
            )
        try:
            with uninterrupted():  # else the folder could stay without records
                self._open(held)
                is_open = True
            started = time.perf_counter()
            self._begin_tracking()
            self.engine.run()
            before = None if self._resumed is None else self._resumed.point.checkpoint.index.workers
            for warning in warnings_at_end(self.experiment, self.engine, before):
                self.records.warnings.add(warning)
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
                if self.records.keeper is not None:
                    self.records.keeper.end()
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
                    f"cannot write to the folder {self._out}: {error.strerror or error}; nothing "
                    "was run: make room there, or choose another folder"
                ) from error
            raise

    def _begin_tracking(self) -> None:
        config = to_plain(self.experiment)
        config.pop("trackers")
        self.records.trackers.config(config)
        self.engine.metrics.observers.append(self.records.trackers.point)

    def _open_folder(self, held: ExitStack) -> None:
        if self._resumed is not None:
            held.callback(self._resumed.lock.release)
            try:
                self._resumed.take_up(self.records.trace, self.records.sink, self.records.timing)
            except OSError as error:
                raise ConfigError(f"the records in {self._out} cannot be used: {error}") from error
        elif self._out is not None:
            files.new_folder(self._out, self.may_have)
            held.enter_context(RunLock(self._out, remove=self.experiment.checkpoint is None))
        if self._out is not None:
            files.write_config(self._out, to_plain(self.experiment))
            files.write_summary(self._out, self._summary("partial", 0.0, files.KILLED))
            if self._resumed is not None:
                point = self._resumed.point
                self._write_so_far(point.checkpoint.index, point.metrics(), 0.0)
            self.records.events.open()
        self._log_begin()

    def _write_so_far(self, taken: Taken, metrics: pa.Table, host_s: float) -> None:
        """Write the summary until a checkpoint, which stays if this process is killed."""
        assert self._out is not None
        summary = self._summary("partial", host_s, files.KILLED, digests=False)
        with contextlib.suppress(OSError):  # the one before stays, and the checkpoint is complete
            files.write_summary(
                self._out,
                at_checkpoint(summary, taken, metrics, self.experiment, self._out),
            )

    def _log_begin(self) -> None:
        known: dict[str, Any] = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "outpace": __version__,
            "workers": self.experiment.workers,
            "servers": self.experiment.servers_in_run,
        }
        if self._resumed is None:
            self.records.events.add("start", role=LAUNCHER, **known)
        else:
            point = self._resumed.point
            at: dict[str, Any] = {
                "number": point.number,
                "time_s": seconds(point.now),
                "first": point.first,
            }
            self.records.events.add("resume", role=LAUNCHER, **known, **at)
            now, begin = point.now, min(point.first)
            rest = NONE, NONE, point.number, NONE, NONE, len(point.checkpoint.index.anew) or NONE
            self.records.trace.row(RESTART, NONE, NONE, begin, now, now, *rest)

    def _finish(self, status: str, host_s: float, error: str | None) -> Result:
        """Complete the folder, and then the trackers, which may take long."""
        try:
            result = self._written(status, host_s, error)
        except RunError:
            self.records.trackers.finish("failed")
            self._log_end("failed", error)
            raise
        self._log_end(status, error)
        known = len(self.records.warnings.texts)
        self.records.trackers.finish(status)
        if len(self.records.warnings.texts) > known:
            result.summary["warnings"] = list(self.records.warnings.texts)
            if self._out is not None:
                with contextlib.suppress(OSError):  # the disk is full: the summary stays as it is
                    files.write_summary(self._out, result.summary)
        self.ended(result.summary)
        return result

    def _log_end(self, status: str, error: str | None) -> None:
        recovery = self.engine.recovery().summary()
        level: Level = "error" if status == "failed" else "info"
        self.records.events.add("end", level, role=LAUNCHER, status=status, error=error, **recovery)

    def _written(self, status: str, host_s: float, error: str | None) -> Result:
        """Return the result, and complete the folder. Raises RunError if it cannot be completed."""
        with uninterrupted():
            try:
                return self._complete(status, host_s, error)
            except (OSError, ConfigError, RunError) as fault:
                reason = f"cannot complete the folder {self._out}: {fault}"
                if error is not None:  # the run had failed before
                    reason = f"{error}; {reason}"
                if self._out is not None:
                    with contextlib.suppress(OSError):
                        files.correct_summary(self._out, self._summary("failed", host_s, reason))
                raise RunError(reason) from fault

    def _complete(self, status: str, host_s: float, error: str | None) -> Result:
        self.engine.close()
        for sink in (self.records.sink, self.records.timing):
            if sink is not None:
                sink.close()
        summary = self._summary(status, host_s, error)
        metrics = self.engine.metrics.table()
        parameters = self.engine.state_dict()
        if self._out is not None:
            files.write_table(self._out / files.METRICS, metrics)
            files.write_model(self._out, parameters)
            if (run_time_model := self.engine.run_time_model()) is not None:
                save_run_time_model(run_time_model, self._out / files.RUN_TIME_MODEL)
            if self.log is not None:
                files.write_table(self._out / files.MESSAGES, self.log.table())
            if (used := self.engine.used_by_script()) is not None:
                files.write_config(self._out, to_plain(self.experiment), in_words(used))
            files.write_summary(self._out, summary)
            for sink in (self.records.sink, self.records.timing):
                if isinstance(sink, SegmentedSink) and status == "complete":
                    sink.remove_segments()
            remove_status(self._out)
            self._report(self._out)
        times = None if self.records.timing is None else self.records.timing.table
        trace = self.records.sink.table
        return Result(self.experiment, summary, metrics, parameters, trace, self._out, times)

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
        last = 0 if self.records.keeper is None else self.records.keeper.last
        return {
            "status": status,
            "error": error,
            "warnings": list(self.records.warnings.texts),
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
            "trace_digest": self.records.trace.digest() if digests else None,
            **going_on(began_with(times), self._out, 0 if status == "complete" else last),
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
