"""Estimates the laws of a cluster from the folders of recorded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration.all_reduces import (
    AllReduceFit,
    assumed_all_reduce,
    fit_all_reduces,
)
from outpace.cluster.calibration.evaluation import fit_evaluations
from outpace.cluster.calibration.network import NetworkFit, fit_network, tells_links
from outpace.cluster.calibration.run_times import ASSUMED_CV, fit_run_times
from outpace.cluster.calibration.transits import Transits
from outpace.cluster.network import NetworkLaw
from outpace.config.cluster_files import BUSY
from outpace.errors import ConfigError
from outpace.experiment.calibrating.calibration import Calibration, left_out
from outpace.experiment.calibrating.contention import Contention, fit_contention
from outpace.experiment.calibrating.runs import (
    LEAST,
    RunData,
    machines_differ,
    read_runs,
    shared_machines,
)
from outpace.experiment.calibrating.servers import fit_service, service_size_of
from outpace.experiment.calibrating.words import (
    all_reduce_rows,
    all_reduce_words,
    compute_rows,
    compute_words,
    in_words,
    law_words,
    network_words,
    size_words,
)
from outpace.predict.recorded import too_short
from outpace.real.net.memory.slots import LEAST_BYTES
from outpace.record.folder import read_summary
from outpace.report.calibration import Shown
from outpace.report.words import plural
from outpace.sync.messages import server_name, worker_name

_CONTENDED: Final = 1.25  # times as long as alone, from which on it is said
_OTHERS: Final = 0.1  # share of the cores that other processes may take
_BUSY: Final = 0.6  # share of the cores that may be busy: below, a process hardly waits for a core


def calibrate(folders: Sequence[Path]) -> Calibration:
    """Estimate the laws of the cluster of these runs.

    Raises:
        ConfigError: with one line, as `read_runs`; or if too few iterations are left.
    """
    runs = read_runs(folders)
    first, workers = runs[0], runs[0].workers
    recordings = [run.recording for run in runs]
    fit = fit_run_times(recordings, assumed_cv=ASSUMED_CV if first.is_real else 0.0)
    later = [recording.without(fit.warm_up).seconds for recording in recordings]
    iterations = sum(map(len, later))
    if iterations < LEAST:
        raise ConfigError(
            f"{first.folder}: without the first {fit.warm_up}, which differ, it has "
            f"{iterations} iterations, and a calibration needs at least {LEAST}; "
            "record a longer run"
        )
    short, busy = _too_short(runs), busy_words(folders)
    notes = left_out(fit.warm_up) + _notes(runs, short, busy)
    caveats: list[str] = []
    network = _network(runs, notes, caveats, alike=bool(short))
    with_servers = [run for run in runs if run.servers]
    servers = max(run.servers for run in runs)
    caveats += [_memory_words(run) for run in with_servers if _is_in_memory(run)][:1]
    notes += caveats
    counts = {"run": len(runs), "worker": workers, "server": servers, "iteration": iterations}
    words = {
        "from": ", ".join(plural(count, noun) for noun, count in counts.items()),
        "compute": compute_words(fit, first.overhead_s),
    }
    said: dict[str, Any] = {
        "runs": [str(run.folder.resolve()) for run in runs],
        "workers": workers,
        "servers": servers,
        "iterations": iterations,
        "iterations_left_out": fit.warm_up,
        "push_bytes": max(run.push_bytes for run in runs),
    }
    laws: dict[str, Any] = {}
    contention = times = None
    if network is not None:
        said["network"] = {
            "median_error": network.error,
            "testable": network.testable,
            "to_servers": network.to_server._asdict(),
            "to_workers": network.to_worker._asdict(),
        }
        contention = _contention(network, with_servers, fit.warm_up, notes)
        if contention is not None:
            said["network"] |= {
                "times_slower_in_training": contention.slower,
                "late_messages": contention.late,
                "mean_error_in_training": contention.error,
            }
    if with_servers:
        service, times = fit_service(with_servers, fit.warm_up, notes)
        laws |= service
        words |= {key: law_words(law, "servers") for key, law in service.items()}
        if service and (size := service_size_of(with_servers[0])) is not None:
            laws["service_size"], words["service_size"] = size, size_words(size)
    all_reduces = _all_reduces(runs, notes)
    law = _network_law(runs, network, contention, all_reduces)
    if law is not None:
        laws = {"network": law, **laws}
        if network is not None:
            words["network"] = network_words(law, network) + _origin(runs, with_servers)
        if law.all_reduce is not None:
            others = [run for run in runs if not run.servers]
            words["all_reduce"] = all_reduce_words(law.all_reduce, all_reduces)
            words["all_reduce"] += _origin(runs, others) if all_reduces is not None else ""
    if all_reduces is not None:
        said["all_reduces"] = {
            "median_error": all_reduces.error,
            "testable": all_reduces.testable,
            "times_slower_in_training": all_reduces.slower,
            "recorded_mean_s": all_reduces.training[:, 1].tolist(),
            "fitted_mean_s": all_reduces.training[:, 2].tolist(),
        }
    evaluations = fit_evaluations(np.concatenate([run.evaluations for run in runs]))
    if evaluations is not None:
        laws["evaluation_time"] = evaluations.law
        count, distance = plural(evaluations.count, "evaluation"), evaluations.distance
        words["evaluation_time"] = (
            f"{law_words(evaluations.law)}; {count}, Kolmogorov distance {distance:.3f}"
        )
        said["evaluation_time"] = {
            "evaluations": evaluations.count,
            "kolmogorov_distance": evaluations.distance,
        }
    said |= {BUSY: busy} if busy else {}
    seconds = np.concatenate(later)
    recorded = seconds[~np.isnan(seconds).any(axis=1)]  # iterations that all workers finished
    shown = Shown(
        " and ".join(run.folder.name for run in runs),
        in_words(words),
        compute_rows(fit, recorded),
        notes,
        fit,
        recorded,
        network,
        times,
        all_reduce_rows([run.folder.name for run in runs if not run.servers], all_reduces),
        all_reduces,
    )
    return Calibration(shown, laws, said, caveats)


def _network(
    runs: Sequence[RunData], notes: list[str], caveats: list[str], *, alike: bool
) -> NetworkFit | None:
    """Return the network by the probes, in which each message travels alone; None without any.

    Args:
        notes, caveats: Get sentences about what was assumed.
        alike: True to give no node a link of its own.

    Raises:
        ConfigError: all messages of the probes are of about one size.
    """
    shared = shared_machines(runs, notes)
    measured = [run.measured for run in runs if run.measured is not None]
    if not measured:
        return None
    joined = Transits.joined([each.transits for each in measured])
    if shared and not tells_links(joined, shared):
        caveats.append(
            "no probes of two sizes went between machines, as there was no time for them: "
            "latency and bandwidth between machines are not known. network.machines is left out, "
            "and all links are taken to be like those within a machine, as fast as the messages of "
            "the training were on average"
        )
        shared = {}
    try:
        fit = fit_network(joined, shared, alike=alike)
    except ValueError as error:
        raise ConfigError(
            f"{runs[0].folder}: its network cannot be calibrated: {error}, so latency and "
            "bandwidth cannot be told apart"
        ) from error
    there, back = (line.bandwidth for line in (fit.to_server, fit.to_worker))
    if there and back and max(there, back) > 1.5 * min(there, back):
        notes.append(
            f"bandwidth to servers is {there / 1e6:.4g} MB/s and to workers {back / 1e6:.4g} MB/s; "
            "the file has one value for both directions"
        )
    return fit


def _contention(
    network: NetworkFit, with_servers: Sequence[RunData], warm_up: int, notes: list[str]
) -> Contention | None:
    measured = with_servers[0].measured if with_servers else None
    if measured is None or measured.requests is None:
        return None
    found = fit_contention(network.law, measured, warm_up)
    if found is not None and found.slower > _CONTENDED:
        notes.append(
            f"in the training messages took {found.slower:.3g} times as long as alone; latency and "
            "bandwidth are those of the training"
        )
    if found is not None and found.late:
        notes.append(
            f"{100 * found.late:.2g} % of the messages were late, more than twice as long as most: "
            "they are network.delays, which strategies without servers do not have"
        )
    return found


def _all_reduces(runs: Sequence[RunData], notes: list[str]) -> AllReduceFit | None:
    times = [run.all_reduces for run in runs if run.all_reduces is not None]
    if not times:
        if runs[0].is_real:
            notes.append(
                "all-reduces were not measured: they take what Gloo's protocol needs on these "
                "links; calibrate on a run without servers, such as ssgd, as well"
            )
        return None
    try:
        found = fit_all_reduces(times, runs[0].workers)
    except ValueError as error:
        folder = next(run.folder for run in runs if run.all_reduces is not None)
        raise ConfigError(
            f"{folder}: its all-reduces cannot be calibrated: {error}, so latency and "
            "bandwidth cannot be told apart"
        ) from error
    if found.slower > _CONTENDED:
        notes.append(
            f"in the training all-reduces took {found.slower:.3g} times as long as in the probe; "
            "network.all_reduce is that of the training"
        )
    return found


def _network_law(
    runs: Sequence[RunData],
    network: NetworkFit | None,
    contention: Contention | None,
    all_reduces: AllReduceFit | None,
) -> NetworkLaw | None:
    """Return the law of the network, None if there is none."""
    found = None if network is None else network.law
    if contention is not None:
        found = contention.law
    if all_reduces is not None:
        return replace(found or NetworkLaw(), all_reduce=all_reduces.law)
    if network is None or found is None or not runs[0].is_real:
        return found
    links = found
    if any(map(_is_in_memory, runs)):  # all-reduces go over the network, as the probes do
        loopback = replace(found, loopback=network.law.loopback)
        links = loopback if found.machines else network.law
    size_bytes = max(run.push_bytes * run.servers for run in runs)
    return replace(found, all_reduce=assumed_all_reduce(links, runs[0].workers, size_bytes))


# -- what is said of the runs --------------------------------------------------------


def _notes(runs: Sequence[RunData], short: str, busy: str) -> list[str]:
    notes = [f"{short}. Links are taken to be alike"] if short else []
    notes += [busy] if busy else []
    if any(run.is_real and run.config.get("compute") is not None for run in runs):
        notes.append("the run stretched its steps by a law: the run times are those of the law")
    if any(machines_differ(run.nodes, run.config) for run in runs):
        notes.append(
            "the configuration of the run names other machines under network.machines than the "
            "run had: those that it had count"
        )
    return notes


def _origin(runs: Sequence[RunData], of: Sequence[RunData]) -> str:
    """Return from which runs a law comes, if not from all."""
    return "" if len(of) == len(runs) else f"; from {', '.join(run.folder.name for run in of)}"


def _too_short(runs: Sequence[RunData]) -> str:
    """Return in words that real runs are too short to judge; empty if they are not."""
    if not runs[0].is_real:
        return ""
    iterations = sum(len(run.recording.seconds) for run in runs)
    seconds = sum(run.recording.length_s for run in runs)
    return too_short(seconds, seconds / iterations)


def busy_words(folders: Sequence[Path]) -> str:
    """Return a sentence about the first run beside which other processes took the cores.

    It is empty if there is none, and for runs that do not say: simulated ones, and those whose
    workers were started elsewhere.
    """
    for folder in folders:
        found = read_summary(folder).get("processor")
        values = [found.get(key) for key in ("cores", "busy", "others")] if found else []
        if not values or not all(isinstance(value, int | float) for value in values):
            continue
        cores, busy, others = map(float, values)
        if cores > 0 and others > _OTHERS * cores and busy > _BUSY * cores:
            return (
                f"while the run {folder.name} was recorded, processes that do not belong to it "
                f"kept {others:.1f} of {cores:g} cores busy: its times are those of such a "
                "machine; record a run when the machine is as it will be"
            )
    return ""


def _is_in_memory(run: RunData) -> bool:
    """True if large blocks of requests or answers lay in memory that both processes shared.

    Which of them did is not recorded: those for which there was no memory or no slot did not.
    """
    requests = None if run.measured is None else run.measured.requests
    if requests is None or not run.config.get("shared_memory"):
        return False
    is_large = np.maximum(requests.sent_bytes, requests.answer_bytes) >= LEAST_BYTES
    pairs = np.stack([requests.worker, requests.server], axis=1)[is_large]
    nodes: Mapping[str, str] = run.nodes
    return any(
        nodes.get(worker_name(worker)) == nodes.get(server_name(server))
        for worker, server in np.unique(pairs, axis=0).tolist()
    )


def _memory_words(run: RunData) -> str:
    """Return what must be known of a calibration on a run with blocks in shared memory."""
    return (
        f"the run has shared_memory: true, so blocks of {LEAST_BYTES >> 10} KiB and more did not "
        "travel between processes of one machine: latency and bandwidth there are those of a block "
        f"of {run.push_bytes / 1e6:.3g} MB in memory, too fast for smaller blocks and for runs "
        "without shared_memory; for these calibrate on a run without it"
    )
