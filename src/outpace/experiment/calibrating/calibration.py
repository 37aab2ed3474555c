"""A calibration: laws of the machines of recorded runs, and how well they describe the runs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration.all_reduces import (
    AllReduceFit,
    assumed_all_reduce,
    fit_all_reduces,
)
from outpace.cluster.calibration.evaluation import EvaluationFit, fit_evaluations
from outpace.cluster.calibration.network import NetworkFit
from outpace.cluster.calibration.run_times import ASSUMED_CV, RunTimeFit, fit_run_times
from outpace.cluster.calibration.service import ServiceTimes
from outpace.cluster.laws import ServiceLaw, ServiceSize
from outpace.cluster.network import NetworkLaw
from outpace.config.cluster_files import BUSY, CALIBRATED
from outpace.errors import ConfigError
from outpace.experiment.calibrating.busy import busy_words
from outpace.experiment.calibrating.contention import Contention, fit_contention
from outpace.experiment.calibrating.machines import machines_differ, shared_machines
from outpace.experiment.calibrating.plain import (
    compute_data,
    fit_data,
    law_data,
    numbers,
    rounded,
    too_short,
)
from outpace.experiment.calibrating.probed import fit_probes
from outpace.experiment.calibrating.runs import LEAST, RunData, read_runs
from outpace.experiment.calibrating.servers import fit_service, service_size_of
from outpace.experiment.calibrating.shared_memory import is_in_memory, memory_words
from outpace.predict.recorded.table import RunTimes

_CONTENDED: Final = 1.25  # times as long as alone, from which on it is said


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Laws of a cluster.

    Args:
        network: Of messages that travel alone. None if the runs have no network: simulated ones
            without the key.
        contention: That of the training; None if it is not known.
        service: Laws by their keys, such as push_time.
        service_times: What they were fitted to; None for simulated runs.
        service_size: The size of the servers that these laws are for; None if unknown.
        evaluations: Of a script; None if it marked none as untimed.
        all_reduces: None unless one of the runs is a real one without servers.
        notes: Sentences about what was assumed or left out.
        caveats: Those of the notes that say where the network of the file is another than that of
            the run.
        busy: Says that other processes took the cores meanwhile; empty if they did not.
    """

    runs: Sequence[RunData]
    compute: RunTimeFit
    network: NetworkFit | None
    contention: Contention | None
    service: dict[str, ServiceLaw]
    service_times: ServiceTimes | None
    service_size: ServiceSize | None
    evaluations: EvaluationFit | None
    all_reduces: AllReduceFit | None
    notes: list[str]
    caveats: list[str]
    busy: str = ""

    @property
    def workers(self) -> int:
        return self.runs[0].workers

    @property
    def servers(self) -> int:
        """Number of servers; 0 if all runs are real ones without."""
        return max(run.servers for run in self.runs)

    @property
    def network_law(self) -> NetworkLaw | None:
        """The law of the network, None if there is none."""
        found = None if self.network is None else self.network.law
        if self.contention is not None:
            found = self.contention.law
        if self.all_reduces is not None:
            return replace(found or NetworkLaw(), all_reduce=self.all_reduces.law)
        if found is None or not self.runs[0].is_real:
            return found
        links = found
        if self.network is not None and any(map(is_in_memory, self.runs)):
            # All-reduces go over the network, as the probes do.
            probed = self.network.law
            links = replace(found, loopback=probed.loopback) if found.machines else probed
        size_bytes = max(run.push_bytes * run.servers for run in self.runs)
        return replace(found, all_reduce=assumed_all_reduce(links, self.workers, size_bytes))

    @property
    def iterations(self) -> int:
        """Iterations of all runs that the compute law was fitted to."""
        return sum(len(run.recording.seconds) - self.compute.warm_up for run in self.runs)

    def recorded(self) -> RunTimes:
        """Return the recorded run times, to be replayed: iterations that all workers finished."""
        parts = [run.recording.seconds[self.compute.warm_up :] for run in self.runs]
        seconds = np.concatenate(parts)
        whole = seconds[~np.isnan(seconds).any(axis=1)]
        node = np.arange(whole.shape[1])
        return RunTimes(whole, np.zeros(whole.shape, np.bool_), node)

    def data(self, run_times: str) -> dict[str, Any]:
        """Return the content of the cluster file.

        Args:
            run_times: Path of the file of recorded run times, for a `trace` law.
        """
        fit = self.compute
        found: dict[str, Any] = {"compute": compute_data(fit, run_times)}
        if self.network_law is not None:
            found["network"] = law_data(self.network_law)
        found |= {key: law_data(law) for key, law in self.service.items()}
        if self.service and self.service_size is not None:
            found["service_size"] = law_data(self.service_size)
        if self.evaluations is not None:
            found["evaluation_time"] = law_data(self.evaluations.law)
        said: dict[str, Any] = {
            "runs": [str(run.folder.resolve()) for run in self.runs],
            "date": datetime.date.today().isoformat(),
            "workers": self.workers,
            "servers": self.servers,
            "iterations": self.iterations,
            "iterations_left_out": fit.warm_up,
            "push_bytes": max(run.push_bytes for run in self.runs),
            "compute": fit_data(fit),
        }
        if self.network is not None:
            said["network"] = {
                "median_error": rounded(self.network.error),
                "testable": self.network.testable,
                "to_servers": rounded(self.network.to_server._asdict()),
                "to_workers": rounded(self.network.to_worker._asdict()),
            }
        if self.contention is not None:
            said["network"]["times_slower_in_training"] = rounded(self.contention.slower)
            said["network"]["late_messages"] = rounded(self.contention.late)
            said["network"]["mean_error_in_training"] = rounded(self.contention.error)
        if self.all_reduces is not None:
            said["all_reduces"] = {
                "median_error": rounded(self.all_reduces.error),
                "testable": self.all_reduces.testable,
                "times_slower_in_training": rounded(self.all_reduces.slower),
                "recorded_mean_s": numbers(self.all_reduces.training[:, 1]),
                "fitted_mean_s": numbers(self.all_reduces.training[:, 2]),
            }
        if self.evaluations is not None:
            said["evaluation_time"] = {
                "evaluations": self.evaluations.count,
                "kolmogorov_distance": rounded(self.evaluations.distance),
            }
        if self.notes:
            said["notes"] = self.notes
        if self.busy:
            said[BUSY] = self.busy
        return {**found, CALIBRATED: said}


def calibrate(folders: Sequence[Path], without_server: int | None = None) -> Calibration:
    """Estimate the laws of the cluster of these runs.

    Args:
        without_server: A server whose messages are left out, since it differs from the others,
            which are taken as alike.

    Raises:
        ConfigError: with one line, as `read_runs`; or if too few iterations are left.
    """
    runs = read_runs(folders)
    if without_server is not None:
        runs = [run.without_server(without_server) for run in runs]
    assumed_cv = ASSUMED_CV if runs[0].is_real else 0.0
    fit = fit_run_times([run.recording for run in runs], assumed_cv=assumed_cv)
    notes: list[str] = []
    iterations = sum(len(run.recording.seconds) - fit.warm_up for run in runs)
    if iterations < LEAST:
        raise ConfigError(
            f"{runs[0].folder}: without the first {fit.warm_up}, which differ, it has "
            f"{iterations} iterations, and a calibration needs at least {LEAST}; "
            "record a longer run"
        )
    if fit.warm_up:
        words = "iteration differs" if fit.warm_up == 1 else f"{fit.warm_up} iterations differ"
        notes.append(f"the first {words} from the others: left out")
    short = _too_short(runs)
    if short:
        notes.append(f"{short}. Links are taken to be alike")
    busy = busy_words([run.folder for run in runs])
    if busy:
        notes.append(busy)
    if any(_is_stretched(run) for run in runs):
        notes.append("the run stretched its steps by a law: the run times are those of the law")
    if any(machines_differ(run.nodes, run.config) for run in runs):
        notes.append(
            "the configuration of the run names other machines under network.machines than the "
            "run had: those that it had count"
        )
    caveats: list[str] = []
    network = fit_probes(runs, shared_machines(runs, notes), notes, caveats, alike=bool(short))
    with_servers = [run for run in runs if run.servers]
    caveats += [memory_words(run) for run in with_servers if is_in_memory(run)][:1]
    notes += caveats
    contention = size = times = None
    service: dict[str, ServiceLaw] = {}
    if with_servers:
        if network is not None:
            contention = _contention(network, with_servers[0], fit.warm_up, notes)
        alike = without_server is not None
        service, times = fit_service(with_servers, fit.warm_up, notes, alike=alike)
        size = service_size_of(with_servers[0])
    return Calibration(
        runs,
        fit,
        network,
        contention,
        service,
        times,
        size,
        fit_evaluations(np.concatenate([run.evaluations for run in runs])),
        _all_reduces(runs, notes),
        notes,
        caveats,
        busy,
    )


def _contention(
    network: NetworkFit, run: RunData, warm_up: int, notes: list[str]
) -> Contention | None:
    if run.measured is None or run.measured.requests is None:
        return None
    found = fit_contention(network.law, run.measured, warm_up)
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
    without = [run for run in runs if run.all_reduces is not None]
    if not without:
        if runs[0].is_real:
            notes.append(
                "all-reduces were not measured: they take what Gloo's protocol needs on these "
                "links; calibrate on a run without servers, such as ssgd, as well"
            )
        return None
    times = [run.all_reduces for run in without if run.all_reduces is not None]
    try:
        found = fit_all_reduces(times, without[0].workers)
    except ValueError as error:
        raise ConfigError(
            f"{without[0].folder}: its all-reduces cannot be calibrated: {error}, so latency and "
            "bandwidth cannot be told apart"
        ) from error
    if found.slower > _CONTENDED:
        notes.append(
            f"in the training all-reduces took {found.slower:.3g} times as long as in the probe; "
            "network.all_reduce is that of the training"
        )
    return found


def _too_short(runs: Sequence[RunData]) -> str:
    """Return in words that real runs are too short to judge; empty if they are not."""
    if not runs[0].is_real:
        return ""
    lengths = [each.recording.seconds.shape[0] for each in runs]
    seconds = sum(run.recording.length_s for run in runs)
    return too_short(seconds, seconds / sum(lengths))


def _is_stretched(run: RunData) -> bool:
    return run.is_real and run.config.get("compute") is not None
