"""Runs one experiment, in virtual time or for real."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from outpace.cluster.observed import Measured
from outpace.config.experiment import SERVICE_TIMES, Experiment
from outpace.engine.control import ControlFunction
from outpace.engine.output import OnOutput, print_line
from outpace.errors import ConfigError
from outpace.experiment.results import RecordedRun, Result, sink_for, timing_sink_for
from outpace.experiment.sources import ExperimentLike, TaskLike, as_experiment
from outpace.experiment.tracking import Tracking, require_usable, trackers_of
from outpace.real.net.zeromq.transport import LOOPBACK
from outpace.real.process.launcher import MakeLauncher
from outpace.real.run import LEASE_S, Outside, RealRun
from outpace.real.training import ScriptTraining, TaskTraining
from outpace.record.folder import SCRIPT_FILES, SCRIPT_OUTPUT, files_of_scripts
from outpace.record.sinks import MemorySink
from outpace.record.timing import Timing
from outpace.record.trace import Trace
from outpace.simulation.measured import calibrated
from outpace.simulation.network.links import MessageLog
from outpace.simulation.peers import PeerSimulation
from outpace.simulation.scripts.making import require_script, simulation_of_script
from outpace.simulation.scripts.runs import ScriptRun
from outpace.simulation.servers import Simulation
from outpace.simulation.virtual import Progress, VirtualRun, one_thread_own_randomness
from outpace.support.notices import warn
from outpace.sync.messages import worker_name
from outpace.tasks import GivenTask, Script


def check(experiment: Experiment) -> None:
    """Raise ConfigError if the task cannot be made, cut or trained, without running it.

    A script is only looked for.
    """
    require_usable(experiment)
    if isinstance(experiment.task, Script):
        experiment.load_user_code()
        require_script(experiment.task)
        return
    with one_thread_own_randomness():
        _simulation(experiment, Trace(MemorySink())).close()


def simulate(
    experiment: ExperimentLike,
    out: str | Path | None = None,
    *,
    progress: Progress | None = None,
    tie_seed: int | None = None,
    control: ControlFunction | None = None,
    task: TaskLike | None = None,
    tracker: Any = None,
    **changes: Any,
) -> Result:
    """Run an experiment in virtual time, with real gradients.

        outpace.simulate("experiment.yaml", task=make_task, workers=8, sync={"kind": "asp"})

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out: a new or empty folder, to which the results are written as well. A run that
            fails or is interrupted leaves it readable, with its `status`.
        progress: called with the share of the run that is done, from 0 to 1.
        tie_seed: shuffles events at equal times; for tests.
        control: called at the start with a `Control`, which observes the run and changes its
            policies.
        task: in place of the experiment's: an `outpace.Task`, a function that returns one, or
            plain data. A function is called with the generators seeded, so the seed decides the
            initial weights; a Task is copied, and keeps its weights whatever the seed.
        tracker: an experiment tracker for this run, or a list of them, beside the experiment's
            `trackers`: a SummaryWriter, a run of wandb or mlflow, a tracker of accelerate, a
            logger of Lightning, or an object with the methods config(values), log(values, step)
            and finish(status). It is called in this thread.
        changes: values of other keys, as in the YAML file or as objects. A mapping replaces one if
            it has a `kind`, and is merged with it otherwise.

    Raises:
        ConfigError: before anything is written.
        RunError: if the run fails.
        KeyboardInterrupt: after the folder was completed.
    """
    experiment = as_experiment(experiment, task, changes)
    out = None if out is None else Path(out)
    require_usable(experiment)
    tracking = Tracking.of(tracker, out)
    sink = sink_for(out)
    trace = Trace(sink)
    log = MessageLog() if experiment.network is not None and experiment.network.log else None
    is_script = isinstance(experiment.task, Script)
    free = nullcontext() if out is None or not is_script else files_of_scripts(out)
    warnings = _warnings(experiment)

    def warn_of(warning: str) -> None:
        warnings.append(warning)
        warn(warning)

    with one_thread_own_randomness():
        # Made before the folder, so that an invalid experiment leaves no folder.
        with free, ExitStack() as begun:
            simulation = _simulation(
                experiment,
                trace,
                None if out is None else out / SCRIPT_FILES,
                # A comparison gives a Tracking with the name of this run.
                _output_of(tracking.name, out) if isinstance(tracker, Tracking) else print_line,
                progress=progress,
                message_log=log,
                tie_seed=tie_seed,
                control=control,
            )
            begun.callback(simulation.close)
            for warning in warnings:
                warn(warning)
            trackers = trackers_of(experiment, tracking, out, warn_of)
            begun.pop_all()
        if isinstance(simulation, ScriptRun):
            simulation.warn = warn_of
        return RecordedRun(
            simulation.experiment,
            simulation,
            trace,
            sink,
            out,
            log,
            warnings,
            warn,
            trackers=trackers,
            may_have=SCRIPT_FILES if is_script else "",
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
    launcher: MakeLauncher | None = None,
    address: str = LOOPBACK,
    task: TaskLike | None = None,
    tracker: Any = None,
    **changes: Any,
) -> Result:
    """Run an experiment for real: one process per server and worker, on this machine.

    A law under `compute` stretches each step to the duration that it draws. Keys that only
    virtual time needs, such as `network`, are ignored.

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out: as for `simulate`.
        insecure: connect without encryption; processes show the number of the run instead of a key.
        lease_s: seconds of silence of a process after which the run ends.
        log: called with a line for each key that is ignored, and for other notices.
        watch: called once all processes are started.
        outside: address and connect file for workers that Outpace does not start.
        control: called with a `Control` when the training starts.
        launcher: makes the launcher of the processes; None: they are started on this machine.
        address: of this machine, at which processes of another launcher reach this one.
        task: in place of the experiment's, as plain data: other processes make it as well.
        tracker, changes: as for `simulate`.

    Raises: as `simulate`.
    """
    experiment = as_experiment(experiment, task, changes, for_real=log)
    if isinstance(experiment.task, GivenTask):
        raise ConfigError(
            f"task: {experiment.task.name} exists in this process only, and a real run has others: "
            "put it into a file, and name it: "
            "task={'kind': 'python', 'target': 'my_task.py:make_task'}"
        )
    out = None if out is None else Path(out)
    require_usable(experiment)
    tracking = Tracking.of(tracker, out)
    with one_thread_own_randomness():
        experiment = _without_ignored(experiment, log)
        experiment.load_user_code()
        warnings = _warnings(experiment)

        def show(warning: str) -> None:
            log(f"warning: {warning}")

        def warn_of(warning: str) -> None:
            warnings.append(warning)
            show(warning)

        for warning in warnings:
            show(warning)
        is_script = isinstance(experiment.task, Script)
        files = None if out is None else out.absolute() / SCRIPT_FILES
        training = ScriptTraining(experiment, files) if is_script else TaskTraining(experiment)
        sink, times = sink_for(out), timing_sink_for(experiment, out)
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
            launcher=launcher,
            address=address,
            warn=warn_of,
            files=files,
            timing=Timing(times),
        )
        trackers = trackers_of(experiment, tracking, out, warn_of)
        return RecordedRun(
            experiment,
            engine,
            trace,
            sink,
            out,
            warnings=warnings,
            warn=show,
            timing=times,
            trackers=trackers,
        ).drive()


def _simulation(
    experiment: Experiment,
    trace: Trace,
    files: Path | None = None,
    show: OnOutput = print_line,
    **options: Any,
) -> VirtualRun:
    """Return the run of this experiment, with measured run times if it asks for them.

    Args:
        files: the folder for files of scripts.
        show: called with each line that scripts print.
        options: of `VirtualRun`.
    """
    experiment.load_user_code()
    if isinstance(experiment.task, Script):
        return simulation_of_script(experiment, trace, files, show, **options)
    workload = experiment.task.workload(experiment.workers, experiment.batch_size, experiment.seed)
    experiment = calibrated(experiment, workload)
    kind = Simulation if experiment.peers is None else PeerSimulation
    return kind(experiment, workload, trace, **options)


def _output_of(run: str, out: Path | None) -> OnOutput:
    """Return what takes the lines that scripts print in one of the runs of a comparison.

    With a folder for the run they are kept in it, for each worker, and only those of standard error
    are printed as well, after the names of run and worker.
    """

    def show(worker: str, line: str, error: bool) -> None:
        if out is not None:
            folder = out / SCRIPT_FILES / (worker or worker_name(0))
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / SCRIPT_OUTPUT).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        if out is None or error:
            print_line(f"{run}/{worker}" if worker else run, line, error)

    return show


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
    if experiment.evaluation_time is not None:
        log("evaluation_time is ignored: in a real run an evaluation takes the time that it needs")
    for key in SERVICE_TIMES:
        if getattr(experiment, key) is not None:
            log(f"{key} is ignored: in a real run servers take the time that they need")
    if not isinstance(experiment.compute, Measured):
        return experiment
    log("compute is ignored: a real run computes as fast as its machines")
    return dataclasses.replace(experiment, compute=None)
