"""Reads the data for a calibration from the folders of runs.

The run time of an iteration is the time that the worker itself needs: the computation, the time
until its first request is given to the socket, and the time from the last answer that it waited for
to the beginning of the next iteration. Waits, transfers and untimed spans are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.all_reduces import AllReduceTimes
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.calibration.run_times import Recording
from outpace.errors import ConfigError
from outpace.experiment.calibrating.measured import Measured, measured_in
from outpace.experiment.calibrating.without_servers import all_reduces_in
from outpace.record.folder import CONFIG, SUMMARY, TIMING, TRACE, read_config, read_summary
from outpace.record.reading import IterationTimes, read_iterations, reading
from outpace.record.timing import read_timing

LEAST: Final = 20  # least number of iterations


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The arrays of a recorded run, or of the profiler traces of one run.

    Args:
        where: Folder of the run or of the traces.
        measured: None if the run has no servers.
        evaluations: Seconds of the untimed spans before each step, shape (S, N); NaN if there are
            none.
        all_reduces: All-reduces of a run without servers.
        nodes: Node of each server and worker, by its name; empty: all on one machine, or unknown.
        config: Configuration of the run; empty for traces.
        origin: Text of the cluster file that says where the traces come from.
        notes: Sentences about data that are missing in traces.
    """

    where: Path
    recording: Recording
    measured: Measured | None
    evaluations: Floats
    all_reduces: AllReduceTimes | None
    nodes: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def workers(self) -> int:
        return int(self.recording.seconds.shape[1])

    @property
    def is_traced(self) -> bool:
        """True for the profiler traces of a run."""
        return bool(self.origin)

    @property
    def servers(self) -> int:
        """Number of servers; 0 for a run without servers."""
        servers = self.config.get("servers")
        return 0 if self.measured is None else servers if type(servers) is int else 1

    @property
    def push_bytes(self) -> int:
        """Median bytes of a push; 0 if unknown."""
        if self.measured is None or not len(self.measured.requests):
            return 0
        return int(np.median(self.measured.requests.sent_bytes))


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read runs of one cluster.

    Raises:
        ConfigError: with one line, if a folder is not the folder of a run or is damaged, if a run
            lacks data, or if the runs do not belong together.
    """
    names = [folder.resolve() for folder in folders]
    for folder in folders:
        if names.count(folder.resolve()) > 1:
            raise ConfigError(f"{folder}: the run is named twice; name it once")
    runs = [_read(folder) for folder in folders]
    alike: dict[str, Any] = {}
    for run in runs:
        task = run.config.get("task")
        found = {
            "workers": run.config.get("workers"),
            "batch_size": run.config.get("batch_size"),
            "task": task.get("kind") if isinstance(task, Mapping) else task,
        }
        if run.servers:
            found |= {"servers": run.servers, "bytes of a push": run.push_bytes}
        for key, value in found.items():
            if alike.setdefault(key, value) != value:
                raise ConfigError(
                    f"{run.where}: it does not belong together with {runs[0].where}: {key} is "
                    f"{value} instead of {alike[key]}; calibrate them one by one"
                )
    return runs


def _read(folder: Path) -> Run:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder of a run")
    summary, config = read_summary(folder), read_config(folder)
    if "wall_time_s" not in summary:
        status = "simulated" if "virtual_time_s" in summary else summary.get("status", "incomplete")
        raise ConfigError(
            f"{folder}: the run is {status}, so {SUMMARY} has no wall_time_s; choose a real run "
            "that ended"
        )
    if "cut_offs" in summary:
        raise ConfigError(
            f"{folder}: its workers were cut off, so their run times are not known; calibrate on a "
            "run of another strategy, such as bsp"
        )
    workers = config.get("workers")
    if type(workers) is not int or workers < 1:
        raise ConfigError(f"{folder / CONFIG}: workers must be at least 1, not {workers!r}")
    if len(summary.get("iterations", ())) > workers:
        raise ConfigError(
            f"{folder}: workers joined it while it was running (outpace scale), so its iterations "
            "have different numbers of workers; calibrate on a run without that"
        )
    path = folder / TRACE
    table = read_iterations(path, workers)
    count = len(table.started)
    if count < LEAST:
        raise ConfigError(
            f"{folder}: it has {count} iterations, and a calibration needs at least {LEAST}; "
            "record a longer run"
        )
    measured, all_reduces = None, None
    timing = read_timing(folder)
    with reading(folder / TIMING):
        what = np.array(timing["what"].to_pylist())
        every = Requests.of(timing)
        spans = _untimed(every.where(what == "untimed"), (count + 1, table.computed.shape[1]))
        if (every.server >= 0).any():
            measured = measured_in(folder, every, what)
            parts = _around_requests(table, measured.requests)
        else:
            all_reduces, waited = all_reduces_in(folder, every, what, table)
            parts = [table.ended - table.computed - waited]
        between = np.full(table.computed.shape, np.nan)
        between[:-1] = table.started[1:] - table.ended[:-1] - spans[1:-1]
        overhead = np.sum([_filled(part) for part in (*parts, between)], axis=0)
    seconds = table.computed - table.started + overhead
    recording = Recording(table.started, np.where(seconds > 0, seconds, np.nan))
    if np.isnan(recording.seconds).all(axis=0).any():
        raise ConfigError(f"{path}: a worker has no finished iteration; record a longer run")
    return Run(
        folder,
        recording,
        measured,
        np.where(spans > 0, spans, np.nan),
        all_reduces,
        summary.get("nodes") or {},
        config,
    )


def _around_requests(table: IterationTimes, requests: Requests) -> list[Floats]:
    """Return each worker's own time before its first request and after its last answer."""
    shape = table.computed.shape
    first_sent, last_arrived = np.full(shape, np.inf), np.full(shape, -np.inf)
    requests = requests.where((requests.iteration < shape[0]) & (requests.iteration >= 0))
    at = requests.iteration, requests.worker
    np.fmin.at(first_sent, at, requests.sent)
    waited_for = requests.arrived <= table.ended[at]  # NaN gives False
    np.maximum.at(last_arrived, at, np.where(waited_for, requests.arrived, -np.inf))
    before, after = first_sent - table.computed, table.ended - last_arrived
    return [np.where(np.isfinite(part), part, np.nan) for part in (before, after)]


def _filled(times: Floats) -> Floats:
    """Return the times, at least 0, with the median of the known times in place of NaN."""
    known = times[~np.isnan(times)]
    filled = np.where(np.isnan(times), np.median(known) if len(known) else 0.0, times)
    return np.maximum(filled, 0.0)


def _untimed(spans: Requests, shape: tuple[int, ...]) -> Floats:
    """Return the seconds of untimed spans before the gradient of each iteration, shape (T, N).

    In the trace, an iteration begins later by the untimed spans in its computation.
    """
    found = np.zeros(shape)
    spans = spans.where((spans.iteration >= 0) & (spans.iteration < shape[0]))
    np.add.at(found, (spans.iteration, spans.worker), spans.arrived - spans.sent)
    return found


# -- machines that several servers and workers shared --------------------------------


def shared_machines(runs: Sequence[Run], notes: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each machine with several nodes, by name of the machine.

    The result is empty if all nodes were on one machine, because then there are no connections
    between machines. It is also empty, with a note, if servers and workers were on different
    machines in different runs.

    Args:
        notes: Receives a sentence about data that were left out.
    """
    found = []
    for run in [run for run in runs if run.servers] or runs:
        on: dict[str, list[str]] = {}
        for node in sorted(
            run.nodes, key=lambda name: (name.startswith("server"), len(name), name)
        ):
            on.setdefault(run.nodes[node], []).append(node)
        shared = {name: tuple(nodes) for name, nodes in on.items() if len(nodes) > 1}
        found.append(shared if len(on) > 1 else {})
    if any(set(other.values()) != set(found[0].values()) for other in found[1:]):
        notes.append(
            "the runs had their processes on different machines, so that each has a separate "
            "connection in the file: calibrate on one of them to have the machines of that run"
        )
        return {}
    return found[0]
