"""Runs one experiment, in virtual time or for real."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.engine.control import ControlFunction
from outpace.errors import ConfigError
from outpace.experiment.results import RecordedRun, Result, sink_for
from outpace.real.run import LEASE_S, Outside, RealRun
from outpace.real.training import ScriptTraining, TaskTraining
from outpace.record.sinks import MemorySink
from outpace.record.trace import Trace
from outpace.simulation.measured import calibrated
from outpace.simulation.network.links import MessageLog
from outpace.simulation.peers import PeerSimulation
from outpace.simulation.servers import Simulation
from outpace.simulation.virtual import Progress, one_thread_own_randomness
from outpace.support.notices import warn
from outpace.support.yaml_files import read_yaml
from outpace.tasks import Script

ExperimentLike = Experiment | Mapping[str, Any] | str | Path


def as_experiment(experiment: ExperimentLike) -> Experiment:
    """Return an Experiment, made from plain data or a YAML file if necessary.

    Raises:
        ConfigError: with all errors in the data.
    """
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, Mapping):
        return experiment_from(experiment, "the configuration")
    path = Path(experiment)
    return experiment_from(read_yaml(path), str(path), path.parent)


def as_one_run(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the data of one run; with `variants: []`, those of a comparison without its variants.

    Raises ConfigError if there are variants or seeds to compare.
    """
    data = dict(data)
    if "variants" in data and data["variants"] == []:
        data = {key: value for key, value in data.items() if key not in ("variants", "seeds")}
    if "variants" in data:
        raise ConfigError(
            f"{source} has variants: use outpace compare {source}, or set variants=[] to run the "
            "experiment once, without them"
        )
    if "seeds" in data:
        raise ConfigError(f"{source}: seeds: only outpace compare runs several seeds; leave it out")
    return data


def check(experiment: Experiment) -> None:
    """Raise ConfigError if the task cannot be made, cut or trained, without running it."""
    with one_thread_own_randomness():
        _simulation(experiment, Trace(MemorySink())).close()


def simulate(
    experiment: ExperimentLike,
    out: str | Path | None = None,
    *,
    progress: Progress | None = None,
    tie_seed: int | None = None,
    control: ControlFunction | None = None,
) -> Result:
    """Run an experiment in virtual time, with real gradients.

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out: a new or empty folder, to which the results are written as well. A run that
            fails or is interrupted leaves it readable, with its `status`.
        progress: called with the share of the run that is done, from 0 to 1.
        tie_seed: shuffles events at equal times; for tests.
        control: called at the start with a `Control`, which observes the run and changes its
            policies.

    Raises:
        ConfigError: before anything is written.
        RunError: if the run fails.
        KeyboardInterrupt: after the folder was completed.
    """
    experiment = as_experiment(experiment)
    out = None if out is None else Path(out)
    sink = sink_for(out)
    trace = Trace(sink)
    log = MessageLog() if experiment.network is not None and experiment.network.log else None
    with one_thread_own_randomness():
        # Made before the folder, so that an invalid experiment leaves no folder.
        simulation = _simulation(
            experiment,
            trace,
            progress=progress,
            message_log=log,
            tie_seed=tie_seed,
            control=control,
        )
        warnings = _warnings(experiment)
        for warning in warnings:
            warn(warning)
        return RecordedRun(
            simulation.experiment, simulation, trace, sink, out, log, warnings
        ).drive()


def run(
    experiment: ExperimentLike,
    out: str | Path | None = None,
    *,
    insecure: bool = False,
    lease_s: float = LEASE_S,
    log: Callable[[str], None] = lambda _: None,
    watch: Callable[[RealRun], None] | None = None,
    outside: Outside | None = None,
    control: ControlFunction | None = None,
) -> Result:
    """Run an experiment for real: one process per server and worker, on this machine.

    A law under `compute` stretches each step to the duration that it draws. Keys that only
    virtual time needs, such as `network`, are ignored.

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out: as for `simulate`.
        insecure: connect without keys and encryption.
        lease_s: seconds of silence of a process after which the run ends.
        log: called with a line for each key that is ignored, and for other notices.
        watch: called once all processes are started.
        outside: address and connect file for workers that Outpace does not start.
        control: called with a `Control` when the training starts.

    Raises: as `simulate`.
    """
    experiment = as_experiment(experiment)
    out = None if out is None else Path(out)
    with one_thread_own_randomness():
        experiment = _without_ignored(experiment, log)
        experiment.load_user_code()
        warnings = _warnings(experiment)
        for warning in warnings:
            log(f"warning: {warning}")

        def warn_of(warning: str) -> None:
            warnings.append(warning)
            log(f"warning: {warning}")

        is_script = isinstance(experiment.task, Script)
        training = ScriptTraining(experiment) if is_script else TaskTraining(experiment)
        sink = sink_for(out)
        trace = Trace(sink)
        engine = RealRun(
            experiment,
            training,
            trace,
            log,
            insecure=insecure,
            lease_s=lease_s,
            watch=watch,
            outside=outside,
            control=control,
            warn=warn_of,
        )
        return RecordedRun(experiment, engine, trace, sink, out, warnings=warnings).drive()


def _simulation(
    experiment: Experiment, trace: Trace, **options: Any
) -> Simulation | PeerSimulation:
    """Return the run of this experiment, with measured run times if it asks for them.

    options: of `VirtualRun`.
    """
    experiment.load_user_code()
    workload = experiment.task.workload(experiment.workers, experiment.batch_size, experiment.seed)
    experiment = calibrated(experiment, workload)
    kind = Simulation if experiment.peers is None else PeerSimulation
    return kind(experiment, workload, trace, **options)


def _warnings(experiment: Experiment) -> list[str]:
    """Return what the policies warn of."""
    return [] if experiment.peers is not None else list(experiment.policies.warnings())


def _without_ignored(experiment: Experiment, log: Callable[[str], None]) -> Experiment:
    """Log the keys that a real run ignores; return the experiment without measured run times."""
    network = experiment.network
    if network is not None and network.stretch and experiment.peers is not None:
        log("all-reduces are stretched to what they would take on this network")
    elif network is not None:
        log("network is ignored: a real run uses the network of its machines")
    if experiment.colocate:
        log("colocate is ignored: a real run places its processes itself")
    for key in ("push_time", "pull_time"):
        if getattr(experiment, key) is not None:
            log(f"{key} is ignored: in a real run servers take the time that they need")
    if not isinstance(experiment.compute, Measured):
        return experiment
    log("compute is ignored: a real run computes as fast as its machines")
    return dataclasses.replace(experiment, compute=None)
