"""Runs one experiment, in virtual time or for real."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.config.keys import FORWARD_SHARE, SERVICE_TIMES
from outpace.config.launchers import Local
from outpace.engine.control import ControlFunction
from outpace.errors import ConfigError
from outpace.experiment.launching import launch_of
from outpace.experiment.recorded_run import RecordedRun, records_of
from outpace.experiment.results import Result
from outpace.experiment.resuming import Resumption, resumption
from outpace.experiment.simulating import recorded_run
from outpace.experiment.sources import (
    ExperimentLike,
    TaskLike,
    as_experiment,
)
from outpace.experiment.status import resume_command
from outpace.real.net.addresses import LOOPBACK
from outpace.real.process.launcher import MakeLauncher
from outpace.real.process.rendezvous import Outside
from outpace.real.run import LEASE_S, RealRun
from outpace.real.training import ScriptTraining, TaskTraining
from outpace.record.checkpoints.committed import name_of
from outpace.record.folder import SCRIPT_FILES
from outpace.record.status import Command
from outpace.record.timing import Timing
from outpace.record.trackers import require_usable
from outpace.simulation.virtual import Progress
from outpace.support.repeatable import one_thread_own_randomness
from outpace.tasks import GivenTask

# Keys of virtual time.
_VIRTUAL: Final = ("network", "colocate", "faults", "evaluation_time", *SERVICE_TIMES)


def simulate(
    experiment: ExperimentLike | None = None,
    out: str | Path | None = None,
    *,
    resume: str | Path | None = None,
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
        out: a new or empty folder, to which the results are written as well. If a run fails or is
            interrupted, the folder is readable, with the `status` of the run.
        resume: the folder of a run with `checkpoint` in its configuration that was interrupted. It
            is resumed from its last checkpoint, in its folder and with its configuration:
            experiment and out are left out. Only stop, evaluate, checkpoint, workers, servers,
            trackers, launcher, on_worker_loss and on_server_loss can change.
        progress: called with the completed share of the run, from 0 to 1.
        tie_seed: shuffles events at equal times; for tests.
        control: called at the start with a `Control`, which observes the run and changes its
            policies.
        task: replaces the experiment's task: an `outpace.Task`, a function that returns one, or
            plain data. A function is called with seeded generators, so the seed decides the initial
            weights; a Task is copied, and has the same weights for every seed.
        tracker: an experiment tracker for this run, or a list of them, in addition to the
            experiment's `trackers`: an object with the methods config(values), log(values, step)
            and finish(status). It is called in this thread.
        changes: values of other keys, as in the YAML file or as objects. A mapping with a `kind`
            replaces the old mapping; without a `kind` it is merged with it.

    Returns:
        The results of the run, which are also in `out`.

    Raises:
        ConfigError: before anything is written.
        RunError: if the run fails.
        KeyboardInterrupt: after the folder was completed.
    """
    options = {"progress": progress, "tie_seed": tie_seed, "control": control, "tracker": tracker}
    if resume is None:
        found = as_experiment(_given(experiment), task, changes)
        with one_thread_own_randomness():
            return recorded_run(found, None if out is None else Path(out), **options).drive()
    _require_alone(experiment, out)
    resumed = resumption(Path(resume), "simulate", task, changes)
    with resumed.lock, one_thread_own_randomness():
        return recorded_run(resumed.experiment, resumed.folder, resumed=resumed, **options).drive()


def run(
    experiment: ExperimentLike | None = None,
    out: str | Path | None = None,
    *,
    resume: str | Path | None = None,
    lease_s: float = LEASE_S,
    log: Callable[[str], None] = lambda _: None,
    watch: Callable[[RealRun], None] | None = None,
    outside: Outside | None = None,
    control: ControlFunction | None = None,
    launcher: MakeLauncher | str | Mapping[str, Any] | None = None,
    address: str = LOOPBACK,
    task: TaskLike | None = None,
    tracker: Any = None,
    **changes: Any,
) -> Result:
    """Run an experiment for real: one process per server and worker, on this machine.

        outpace.run("experiment.yaml", out="runs/first", workers=4)

    A law under `compute` stretches each step to the duration that it draws. Keys that only
    virtual time needs, such as `network`, are ignored.

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out, resume: see `simulate`.
        lease_s: seconds of silence of a process after which the run ends.
        log: called with a line for each key that is ignored, and for other notices.
        watch: called once all processes are started.
        outside: address and connect file for workers that Outpace does not start.
        control: called with a `Control` when the training starts.
        launcher: "ray", or the key `launcher` of the configuration as a mapping; or a function that
            makes the launcher of the processes, which reach this machine at `address`. None: the
            launcher of the configuration.
        task: replaces the experiment's task, as plain data, because other processes make it as
            well.
        tracker, changes: see `simulate`.

    Returns:
        The results of the run, which are also in `out`.

    Raises:
        ConfigError, RunError, KeyboardInterrupt: see `simulate`.
    """
    if isinstance(launcher, str | Mapping):
        changes["launcher"] = {"kind": launcher} if isinstance(launcher, str) else launcher
        launcher = None
    start = partial(
        _run,
        lease_s=lease_s,
        log=log,
        watch=watch,
        outside=outside,
        control=control,
        launcher=launcher,
        address=address,
        tracker=tracker,
    )
    if resume is None:
        found = as_experiment(_given(experiment), task, changes, for_real=log)
        return start(found, None if out is None else Path(out))
    _require_alone(experiment, out)
    resumed = resumption(Path(resume), "run", task, changes, log)
    with resumed.lock:
        if outside is None and resumed.experiment.is_elsewhere:
            raise ConfigError(
                f"the workers of the run in {resume} were started elsewhere: use "
                f"{resume_command('run', resumed.folder)}, and start them again"
            )
        point = resumed.point
        log(f"resumed from {name_of(point.number)}, at iteration {min(point.first)}")
        return start(resumed.experiment, resumed.folder, resumed=resumed)


def _run(
    experiment: Experiment,
    out: Path | None,
    *,
    log: Callable[[str], None],
    tracker: Any,
    resumed: Resumption | None = None,
    **options: Any,
) -> Result:
    """Run an experiment for real. options: options of `RealRun`."""
    if isinstance(experiment.task, GivenTask):
        raise ConfigError(
            f"task: {experiment.task.name} exists in this process only, and a real run has others: "
            "put it into a file, and name it: "
            "task={'kind': 'python', 'target': 'my_task.py:make_task'}"
        )
    require_usable(experiment.trackers)
    command: Command = "run" if options.get("outside") is None else "serve"

    def show(warning: str) -> None:
        log(f"warning: {warning}")

    with one_thread_own_randomness(), ExitStack() as held:
        records = records_of(experiment, out, command, tracker, resumed, show)

        def tell(text: str) -> None:
            records.events.add_text("notice", text)
            log(text)

        experiment = _without_ignored(experiment, tell)
        experiment.load_user_code()
        records.warnings.add_settings(experiment)
        is_script = experiment.has_script
        files = None if out is None else out.absolute() / SCRIPT_FILES
        training = ScriptTraining(experiment, files) if is_script else TaskTraining(experiment)
        if options["launcher"] is None:
            if command == "serve" and not isinstance(experiment.launcher, Local):
                raise ConfigError("outpace serve starts its servers itself: leave launcher out")
            options |= held.enter_context(
                launch_of(experiment, out, tell, resumes=resumed is not None)
            )
        assert records.timing is not None
        engine = RealRun(
            experiment,
            training,
            records.trace,
            tell,
            warn=records.warnings.add,
            files=files,
            timing=Timing(records.timing.add),
            resume=None if resumed is None else resumed.point,
            keeper=records.keeper,
            status=records.status,
            **options,
        )
        return RecordedRun(experiment, engine, records).drive()


def _given(experiment: ExperimentLike | None) -> ExperimentLike:
    if experiment is None:
        raise ConfigError("give an experiment, or resume=FOLDER, the folder of a run to resume")
    return experiment


def _require_alone(experiment: object, out: object) -> None:
    """Raise ConfigError if an experiment is given for a run that is resumed in its folder."""
    if experiment is not None or out is not None:
        raise ConfigError(
            "resume takes the configuration from the run's folder, and continues in it: leave "
            "experiment and out out"
        )


def _without_ignored(experiment: Experiment, log: Callable[[str], None]) -> Experiment:
    """Log the keys that a real run ignores; return the experiment without measured run times."""
    network = experiment.network
    is_stretched = network is not None and network.stretch and experiment.peers is not None
    if is_stretched:
        log("all-reduces are stretched to what they would take on this network")
    keys = [key for key in _VIRTUAL if not (key == "network" and is_stretched)]
    ignored = [key for key in keys if getattr(experiment, key)]
    if experiment.forward_share != FORWARD_SHARE and experiment.overlap == "none":
        ignored.append("forward_share")
    if isinstance(experiment.compute, Measured):
        ignored.append("compute")
        experiment = dataclasses.replace(experiment, compute=None)
    if ignored:
        log(f"ignored, since a real run takes what its machines do: {', '.join(ignored)}")
    return experiment
