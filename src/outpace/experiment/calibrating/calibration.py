"""Estimates the laws of a cluster from recorded runs or from profiler traces, by one function."""

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
from outpace.cluster.calibration.independent import evaluation_law
from outpace.cluster.calibration.network import NetworkFit, fit_network
from outpace.cluster.calibration.run_times import ASSUMED_CV, RunTimeFit, fit_run_times
from outpace.cluster.calibration.transits import Transits
from outpace.cluster.network import NetworkLaw
from outpace.config.cluster_files import BUSY
from outpace.errors import ConfigError
from outpace.experiment.calibrating.cluster_file import Calibration, plain
from outpace.experiment.calibrating.contention import Contention, fit_contention
from outpace.experiment.calibrating.runs import Run, read_runs, shared_machines
from outpace.experiment.calibrating.servers import fit_service, service_size_of
from outpace.experiment.calibrating.trace_ranks import read_traces
from outpace.predict.recorded import too_short
from outpace.real.memory.slots import LEAST_BYTES
from outpace.record.folder import read_summary
from outpace.report.words import plural

_CONTENDED: Final = 1.25  # ratio to the time alone above which a note is made
_OVERLAPPED: Final = 0.9  # ratio to the time alone up to which all-reduces are said to overlap
_BOTH_WAYS: Final = 1.5  # ratio of bandwidths to servers and to workers above which a note is made
_FEW: Final = 50  # number of iterations below which a note is made
_OTHERS: Final = 0.1  # share of the cores that other processes may take
_BUSY: Final = 0.6  # share of busy cores below which a process hardly waits for a core


def calibrate(folders: Sequence[Path]) -> Calibration:
    """Estimate the laws of the cluster of these runs.

    Raises:
        ConfigError: with one line, see `read_runs`.
    """
    found: dict[str, Any] = {"runs": [str(folder.resolve()) for folder in folders]}
    busy = busy_words(folders)
    runs = read_runs(folders)
    found |= {
        "servers": max(run.servers for run in runs),
        "push_bytes": max(run.push_bytes for run in runs),
    }
    return _calibrated(runs, found | ({BUSY: busy} if busy else {}))


def calibrate_traces(paths: Sequence[Path]) -> Calibration:
    """Estimate the laws of the machines of a run from its torch.profiler traces.

    They predict times but no losses, because a trace does not contain the model.

    Raises:
        ConfigError: with one line, see `read_traces`.
    """
    run = read_traces(paths)
    return _calibrated([run], run.origin)


def _calibrated(runs: Sequence[Run], origin: Mapping[str, Any]) -> Calibration:
    """Estimate the laws of a cluster from the arrays of its runs.

    Args:
        origin: Text of the cluster file about the origin of the arrays.
    """
    first, servers = runs[0], max(run.servers for run in runs)
    fit = fit_run_times([run.recording for run in runs], assumed_cv=ASSUMED_CV)
    with_servers = [run for run in runs if run.measured is not None]
    short = _too_short(runs)
    notes, caveats = _notes(runs, fit, short), list[str]()
    notes += [origin[BUSY]] if BUSY in origin else []
    laws: dict[str, Any] = {}
    network, contention = None, None
    if with_servers:
        laws |= fit_service(with_servers, fit.warm_up, notes)
        if (size := service_size_of(with_servers[0])) is not None:
            laws["service_size"] = size
        network = _network(with_servers, notes, caveats, alike=bool(short))
        contention = fit_contention(network.law, with_servers[0], fit.warm_up)
    all_reduces = _all_reduces(runs)
    law = _network_law(runs, network, contention, all_reduces)
    evaluations = evaluation_law(np.concatenate([run.evaluations for run in runs]))
    if evaluations is not None:
        laws["evaluation_time"] = evaluations
    notes += _notes_of_training(contention, all_reduces)
    caveats += [_memory_words(run) for run in with_servers if _may_be_in_memory(run)][:1]
    counts = {
        "run": len(runs),
        "worker": first.workers,
        "server": servers,
        "iteration": fit.iterations,
    }
    words = {
        "from": ", ".join(plural(count, noun) for noun, count in counts.items() if count),
        "compute": _compute_words(fit),
    }
    if network is not None or first.is_traced:
        words["network"] = law_words(replace(law, all_reduce=None)) + _error_words(network)
    if law.all_reduce is not None:
        words["all_reduce"] = law_words(law.all_reduce) + _error_words(all_reduces)
    words |= {key: law_words(each) for key, each in laws.items()}
    said = {
        **origin,
        "workers": first.workers,
        "iterations": fit.iterations,
        "iterations_left_out": fit.warm_up,
        **_said(network, contention, all_reduces),
    }
    without_servers = [str(run.where) for run in runs if run.all_reduces is not None]
    return Calibration(
        words, notes + caveats, fit, all_reduces, without_servers, law, laws, said, caveats
    )


# -- the network -----------------------------------------------------------------------


def _network(
    runs: Sequence[Run], notes: list[str], caveats: list[str], *, alike: bool
) -> NetworkFit:
    """Return the network from the probes, in which each message travels alone.

    Args:
        notes, caveats: Receive sentences about assumptions.
        alike: True to give no node a separate link.

    Raises:
        ConfigError: if all messages of the probes have about the same size.
    """
    shared = shared_machines(runs, notes)
    transits = [run.measured.transits for run in runs if run.measured is not None]
    try:
        fit = fit_network(Transits.joined(transits), shared, alike=alike)
    except ValueError as error:
        raise ConfigError(
            f"{runs[0].where}: its network cannot be calibrated: {error}, so latency and "
            "bandwidth cannot be told apart"
        ) from error
    if shared and not fit.law.machines:
        caveats.append(
            "no probes of two sizes went between machines, as there was no time for them: "
            "latency and bandwidth between machines are not known. network.machines is left out, "
            "and all links are taken to be like those within a machine, as fast as the messages of "
            "the training were on average"
        )
    there, back = (line.bandwidth for line in (fit.to_server, fit.to_worker))
    if there and back and max(there, back) > _BOTH_WAYS * min(there, back):
        notes.append(
            f"bandwidth to servers is {there / 1e6:.4g} MB/s and to workers {back / 1e6:.4g} MB/s; "
            "the file has one value for both directions"
        )
    return fit


def _all_reduces(runs: Sequence[Run]) -> AllReduceFit | None:
    times = [run.all_reduces for run in runs if run.all_reduces is not None]
    return fit_all_reduces(times, runs[0].workers) if times else None


def _network_law(
    runs: Sequence[Run],
    network: NetworkFit | None,
    contention: Contention | None,
    all_reduces: AllReduceFit | None,
) -> NetworkLaw:
    """Return the law of the network.

    Links of traces are assumed to be as fast as all-reduces. A file from runs without servers has
    no links, and is refused if a strategy needs them.
    """
    found = NetworkLaw() if network is None else network.law
    found = found if contention is None else contention.law
    if all_reduces is not None:
        if runs[0].is_traced:
            link = all_reduces.law_alone
            found = NetworkLaw(link.latency_s or 0.0, link.bandwidth_bytes_per_s)
        return replace(found, all_reduce=all_reduces.law)
    # All-reduces use the network, as the probes do.
    assert network is not None
    links = network.law if any(map(_may_be_in_memory, runs)) else found
    size_bytes = max(run.push_bytes * run.servers for run in runs)
    return replace(found, all_reduce=assumed_all_reduce(links, runs[0].workers, size_bytes))


def _may_be_in_memory(run: Run) -> bool:
    """True if blocks were large enough for shared memory, and processes shared a machine."""
    places = list(run.nodes.values())
    shares = not places or len(set(places)) < len(places)
    return bool(run.config.get("shared_memory")) and shares and run.push_bytes >= LEAST_BYTES


# -- what is said ----------------------------------------------------------------------


def law_words(law: object) -> str:
    """Return a law as text: `lognormal, mean_s 0.0574, cv 0.207, factors 0.89 to 1.32`.

    For a list of numbers the text has the smallest and the largest one, for a mapping the keys.
    """
    parts = []
    for key, value in plain(law).items():
        if isinstance(value, Mapping):
            value = " and ".join(value)
        elif isinstance(value, list):
            value = f"{min(value):.3g} to {max(value):.3g}"
        elif isinstance(value, float):
            value = f"{value:.3g}"
        parts.append(str(value) if key == "kind" else f"{key} {value}")
    return ", ".join(parts)


def _compute_words(fit: RunTimeFit) -> str:
    if fit.law is None:
        return (
            f"trace: the recorded run times are replayed, since the best law ({fit.tried.kind}) "
            f"does not describe them: {'; '.join(fit.reasons)}"
        )
    error = "" if fit.errors is None else f"; standard error {100 * fit.errors.mean_s:.2g} %"
    return law_words(fit.law) + error


def _error_words(fit: NetworkFit | AllReduceFit | None) -> str:
    """Return the median error of a line, or that it has as many parameters as measured times."""
    if fit is None:
        return ""
    if fit.testable:
        return f"; median error of the line {100 * fit.error:.1f} %"
    return "; fit not testable: it has as many parameters as times (record messages of more sizes)"


def _notes(runs: Sequence[Run], fit: RunTimeFit, short: str) -> list[str]:
    notes = [note for run in runs for note in run.notes]
    if fit.warm_up:
        notes.append(
            f"the first {plural(fit.warm_up, 'iteration is', 'iterations are')} left out, because "
            "run times differ there"
        )
    if short:
        notes.append(f"{short}. Links are taken to be alike")
    if fit.iterations < _FEW:
        notes.append(
            f"{fit.iterations} iterations are few: do not trust differences between strategies "
            "that are smaller than the errors above; record more, of traces schedule(..., "
            "active=100)"
        )
    if any(run.config.get("compute") is not None for run in runs):
        notes.append("the run stretched its steps by a law: the run times come from the law")
    return notes


def _notes_of_training(contention: Contention | None, fit: AllReduceFit | None) -> list[str]:
    notes = []
    if contention is not None and contention.slower > _CONTENDED:
        notes.append(
            f"in the training messages took {contention.slower:.3g} times as long as alone; "
            "latency and bandwidth come from the training"
        )
    if fit is None:
        notes.append(
            "all-reduces were not measured: they take what Gloo's protocol needs on these links; "
            "calibrate on a run without servers, such as ssgd, as well"
        )
    elif not fit.line.latency_s:
        notes.append("all all-reduces have about one size, so their latency is taken to be 0")
    if fit is not None and not _OVERLAPPED < fit.slower < _CONTENDED:
        notes.append(
            f"in the training all-reduces cost {fit.slower:.3g} times what they take alone, and "
            "network.all_reduce comes from the training. Below 1 they overlapped with computation: "
            "for strategies that compute nothing meanwhile, such as local SGD, set "
            f"network.all_reduce to {plain(fit.law_alone)}"
        )
    return notes


def _too_short(runs: Sequence[Run]) -> str:
    """Return a text that says why runs are too short to judge; empty if they are not."""
    iterations = sum(len(run.recording.seconds) for run in runs)
    seconds = sum(run.recording.length_s for run in runs)
    return too_short(seconds, seconds / iterations)


def busy_words(folders: Sequence[Path]) -> str:
    """Return a sentence about the first run during which other processes used the cores.

    It is empty if there is none, and for runs that do not record it: simulated runs, and runs whose
    workers were started elsewhere.
    """
    for folder in folders:
        found = read_summary(folder).get("processor") or {}
        values = [found.get(key) for key in ("cores", "busy", "others")]
        known = [float(value) for value in values if isinstance(value, int | float)]
        if len(known) < len(values):
            continue
        cores, busy, others = known
        if cores > 0 and others > _OTHERS * cores and busy > _BUSY * cores:
            return (
                f"while the run {folder.name} was recorded, processes that do not belong to it "
                f"kept {others:.1f} of {cores:g} cores busy: its times are right for such a "
                "machine; record a run when the machine is in its usual state"
            )
    return ""


def _memory_words(run: Run) -> str:
    """Return a caveat about a calibration from a run with blocks in shared memory."""
    return (
        f"the run has shared_memory: true, so blocks of {LEAST_BYTES >> 10} KiB and more did not "
        "travel between processes of one machine: latency and bandwidth there were measured with "
        f"a block of {run.push_bytes / 1e6:.3g} MB in memory, too fast for smaller blocks and for "
        "runs without shared_memory; for these calibrate on a run without it"
    )


def _said(
    network: NetworkFit | None, contention: Contention | None, all_reduces: AllReduceFit | None
) -> dict[str, Any]:
    """Return the cluster file's data about how well lines describe messages and all-reduces."""
    said: dict[str, Any] = {}
    if network is not None:
        said["network"] = {"median_error": network.error, "testable": network.testable}
    if contention is not None:
        said["network"]["times_slower_in_training"] = contention.slower
        said["network"]["mean_error_in_training"] = contention.error
    if (fit := all_reduces) is not None:
        said["all_reduces"] = {
            **fit.line._asdict(),
            "median_error": fit.error,
            "testable": fit.testable,
            "times_slower_in_training": fit.slower,
            "bytes": fit.training[:, 0].round().astype(np.int64).tolist(),
            "recorded_mean_s": fit.training[:, 1].tolist(),
            "fitted_mean_s": fit.training[:, 2].tolist(),
        }
    return said
