"""Reads what a calibration needs from the folders of runs.

The run time of an iteration is the time that the worker itself needs: computing, then until its
first request is given to the socket, and from the last answer that it waited for to the begin of
the next iteration. Waits, transfers and untimed spans are no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.cluster.calibration import Floats
from outpace.cluster.calibration.all_reduces import AllReduceTimes
from outpace.cluster.calibration.run_times import Recording
from outpace.errors import ConfigError
from outpace.experiment.calibrating.measured import Measured, logged_in, measured_in, requests_in
from outpace.experiment.calibrating.without_servers import all_reduces_of
from outpace.record.folder import CONFIG, SUMMARY, TIMING, TRACE, read_config, read_summary
from outpace.record.reading import Columns, read_event, reading
from outpace.record.timing import read_timing
from outpace.record.trace import NONE
from outpace.record.traits import has_cut_offs
from outpace.sync.messages import server_name, worker_name

LEAST: Final = 20  # iterations


@dataclass(frozen=True, slots=True, eq=False)
class RunData:
    """A recorded run.

    Args:
        overhead_s: Mean per iteration of the part of the run times that is not computing.
        measured: None if the run has no network: a simulated one without the key; or no servers.
        evaluations: Seconds of the untimed spans before each step, shape (S, N); NaN where there
            are none.
        all_reduces: Those of a real run without servers.
        nodes: Where each server and worker ran, by its name; empty: on one machine, or unknown. If
            the run did not record it, those of `network.machines` in its configuration.
    """

    folder: Path
    config: Mapping[str, Any]
    is_real: bool
    recording: Recording
    overhead_s: float
    measured: Measured | None
    evaluations: Floats
    all_reduces: AllReduceTimes | None
    nodes: Mapping[str, str]

    @property
    def workers(self) -> int:
        return int(self.recording.seconds.shape[1])

    @property
    def servers(self) -> int:
        """Number of servers; 0 of a real run without."""
        if self.all_reduces is not None:
            return 0
        servers = self.config.get("servers")
        return servers if type(servers) is int else 1

    @property
    def push_bytes(self) -> int:
        """Median bytes of a push; 0 if unknown."""
        requests = None if self.measured is None else self.measured.requests
        if requests is None or not len(requests):
            return 0
        return int(np.median(requests.sent_bytes))


def read_runs(folders: Sequence[Path]) -> list[RunData]:
    """Read runs of one cluster.

    Raises:
        ConfigError: with one line, if a folder is not that of a run or is damaged, a run does not
            say enough, or the runs do not belong together.
    """
    names = [folder.resolve() for folder in folders]
    for folder in folders:
        if names.count(folder.resolve()) > 1:
            raise ConfigError(f"{folder}: the run is named twice; name it once")
    runs = [_read(folder) for folder in folders]
    _require_alike(runs, _alike)
    _require_alike([run for run in runs if run.servers], _alike_servers)
    return runs


def _require_alike(runs: Sequence[RunData], alike: Callable[[RunData], Mapping[str, Any]]) -> None:
    """Raise ConfigError if what `alike` returns differs."""
    for other in runs[1:]:
        first, found = alike(runs[0]), alike(other)
        for key in first:
            if first[key] != found[key]:
                raise ConfigError(
                    f"{other.folder}: it does not belong together with {runs[0].folder}: {key} is "
                    f"{found[key]} instead of {first[key]}; calibrate them one by one"
                )


def _alike(run: RunData) -> dict[str, Any]:
    """Return what all runs must have in common."""
    return {
        "workers": run.config.get("workers"),
        "batch_size": run.config.get("batch_size"),
        "task": _task(run.config),
        "real or simulated": run.is_real,
    }


def _alike_servers(run: RunData) -> dict[str, Any]:
    """Return what all runs with servers must have in common."""
    return {"servers": run.config.get("servers"), "bytes of a push": run.push_bytes}


def _task(config: Mapping[str, Any]) -> Any:
    task = config.get("task")
    return task.get("kind") if isinstance(task, Mapping) else task


def _read(folder: Path) -> RunData:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder of a run")
    summary, config = read_summary(folder), read_config(folder)
    is_real = "wall_time_s" in summary
    if not is_real and "virtual_time_s" not in summary:
        status = summary.get("status", "not complete")
        raise ConfigError(
            f"{folder}: the run is {status}, and {SUMMARY} has no times; choose a run that ended"
        )
    if has_cut_offs(config, summary):
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
    iterations = read_event(
        path, "iteration", ("worker", "iteration", "start_ns", "computed_ns", "end_ns", "bound")
    )
    count = int(iterations["iteration"].max(initial=-1)) + 1
    if count < LEAST:
        raise ConfigError(
            f"{folder}: it has {count} iterations, and a calibration needs at least {LEAST}; "
            "record a longer run"
        )
    with reading(path):
        table = _by_iteration(iterations, workers)
    overhead = np.zeros_like(table.computed)
    measured, all_reduces, evaluations = None, None, overhead[:0]
    if is_real:
        timing = read_timing(folder)
        with reading(folder / TIMING):
            if (timing["server"].to_numpy() >= 0).any():
                measured = measured_in(folder, timing)
                overhead = _overheads(table, measured, timing)
            else:
                ends = table.computed, table.ended
                all_reduces, waited = all_reduces_of(folder, path, timing, *ends)
                overhead = _overheads_without_servers(table, waited, timing)
            spans = _untimed(timing, (len(overhead) + 1, overhead.shape[1]))
            evaluations = np.where(spans > 0, spans, np.nan)
    elif config.get("network") is not None:
        measured = logged_in(folder)
    seconds = table.computed - table.started + overhead
    recording = Recording(table.started, np.where(seconds > 0, seconds, np.nan))
    if np.isnan(recording.seconds).all(axis=0).any():
        raise ConfigError(f"{path}: a worker has no finished iteration; record a longer run")
    mean = float(np.nanmean(overhead))
    nodes = summary.get("nodes") or nodes_of(config)
    return RunData(
        folder, config, is_real, recording, mean, measured, evaluations, all_reduces, nodes
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Iterations:
    """Times of each iteration, in s, shape (T, N); NaN where there is none."""

    started: Floats
    computed: Floats
    ended: Floats


def _by_iteration(rows: Columns, workers: int) -> _Iterations:
    at = rows["iteration"], rows["worker"]
    shape = int(rows["iteration"].max()) + 1, max(workers, int(rows["worker"].max()) + 1)
    columns = []
    for found in (rows["start_ns"], rows["computed_ns"], rows["end_ns"]):
        times = np.full(shape, np.nan)
        times[at] = np.where(found == NONE, np.nan, found * 1e-9)
        columns.append(times)
    return _Iterations(*columns)


def _overheads(table: _Iterations, measured: Measured, timing: pa.Table) -> Floats:
    """Return each worker's own time beside computing and untimed spans, in s, shape (T, N)."""
    requests = measured.requests
    assert requests is not None
    shape = table.computed.shape
    first_sent, last_arrived = np.full(shape, np.inf), np.full(shape, -np.inf)
    there = (requests.iteration < shape[0]) & (requests.iteration >= 0)
    at = requests.iteration[there], requests.worker[there]
    np.minimum.at(first_sent, at, np.nan_to_num(requests.sent[there], nan=np.inf))
    arrived = requests.arrived[there]
    waited_for = arrived <= table.ended[at]  # False where NaN
    np.maximum.at(last_arrived, at, np.where(waited_for, arrived, -np.inf))
    before = np.where(np.isfinite(first_sent), first_sent - table.computed, np.nan)
    after = np.where(np.isfinite(last_arrived), table.ended - last_arrived, np.nan)
    parts = before, after, _between(table, timing)
    return np.asarray(sum(np.maximum(_filled(part), 0.0) for part in parts))


def _overheads_without_servers(table: _Iterations, waited: Floats, timing: pa.Table) -> Floats:
    """Return each worker's own time beside computing, waits and untimed spans, shape (T, N)."""
    parts = table.ended - table.computed - waited, _between(table, timing)
    return np.asarray(sum(np.maximum(_filled(part), 0.0) for part in parts))


def _between(table: _Iterations, timing: pa.Table) -> Floats:
    """Return the seconds between an iteration and the next, without untimed spans, shape (T, N)."""
    shape = table.computed.shape
    between = np.full(shape, np.nan)
    between[:-1] = table.started[1:] - table.ended[:-1] - _untimed(timing, shape)[1:]
    return between


def _filled(times: Floats) -> Floats:
    """Return the times with the median of the known ones in place of NaN."""
    known = times[~np.isnan(times)]
    return np.where(np.isnan(times), np.median(known) if len(known) else 0.0, times)


def _untimed(timing: pa.Table, shape: tuple[int, ...]) -> Floats:
    """Return the seconds of untimed spans before the gradient of each iteration, shape (T, N).

    The trace has iterations begin later by the untimed spans in their computation.
    """
    found = np.zeros(shape)
    rows = requests_in(timing).where(np.array(timing["what"].to_pylist()) == "untimed")
    there = (rows.iteration >= 0) & (rows.iteration < shape[0])
    at = rows.iteration[there], rows.worker[there]
    np.add.at(found, at, (rows.arrived - rows.sent)[there])
    return found


# -- machines that several servers and workers shared --------------------------------


def nodes_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the machine of each node by `network.machines` of a configuration.

    Nodes that it does not name have one of their own. Empty if it names none.
    """
    network = config.get("network")
    machines = network.get("machines") if isinstance(network, Mapping) else None
    if not machines:
        return {}
    names = [worker_name(n) for n in range(config.get("workers", 0))]
    names += [server_name(m) for m in range(config.get("servers", 1))]
    named = {node: name for name, nodes in machines.items() for node in nodes}
    return {name: named.get(name, name) for name in names}


def machines_differ(nodes: Mapping[str, str], config: Mapping[str, Any]) -> bool:
    """True if a configuration names other machines than those that a run recorded."""
    named = nodes_of(config)
    both = sorted(nodes.keys() & named.keys())
    pairs = [(one, other) for one in both for other in both]
    return any((nodes[one] == nodes[other]) != (named[one] == named[other]) for one, other in pairs)


def shared_machines(runs: Sequence[RunData], notes: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of machines with several, by the names of machines.

    Empty if all were on one machine: then there are no connections between machines. Also empty if
    the runs had their servers and workers on different machines, with a note.

    Args:
        notes: Gets a sentence about what was left out.
    """
    runs = [run for run in runs if run.servers] or list(runs)
    found = [_shared(run.nodes) for run in runs]
    if any(set(other.values()) != set(found[0].values()) for other in found[1:]):
        notes.append(
            "the runs had their processes on different machines, so that each has a connection of "
            "its own in the file: calibrate on one of them to have the machines of that run"
        )
        return {}
    return found[0]


def _shared(nodes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    if len(set(nodes.values())) < 2:
        return {}
    on: dict[str, list[str]] = {}
    for node in sorted(nodes, key=_order):
        on.setdefault(nodes[node], []).append(node)
    return {name: tuple(found) for name, found in on.items() if len(found) > 1}


def _order(node: str) -> tuple[bool, str, int]:
    """Workers come before servers, each in the order of their numbers."""
    kind, _, number = node.rpartition("-")
    return kind != "worker", kind, int(number) if number.isdigit() else 0
