"""Runs one experiment and gives back what came out; with a folder, writes it there too."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from outpace.blocks.digest import parameters_digest
from outpace.cluster import Measured
from outpace.config.experiment import Experiment, experiment_from, to_plain
from outpace.engine.control import ControlFunction
from outpace.engine.protocol import Engine
from outpace.errors import ConfigError, OutpaceError, RunError
from outpace.predict.models import save as save_run_time_model
from outpace.record import folder as files
from outpace.record.recorder import Totals
from outpace.record.trace import MemorySink, ParquetSink, Trace
from outpace.simulation.measured import calibrated
from outpace.simulation.network.message_log import MessageLog
from outpace.simulation.peers import PeerSimulation
from outpace.simulation.run import Simulation
from outpace.simulation.virtual import Progress, one_thread_own_randomness
from outpace.support.yaml_files import read_yaml
from outpace.tasks import Script

if TYPE_CHECKING:
    from outpace.real.run import Outside, RealRun
    from outpace.real.training import Training

ExperimentLike = Experiment | Mapping[str, Any] | str | Path


@dataclass(frozen=True)
class Result:
    """What came out of a run.

    summary: as in summary.json. metrics: one row per evaluation (`metrics.METRICS`).
    parameters: the model's state_dict; empty for `timing`. trace: one row per event
    (`trace.SCHEMA`), read from the folder if there is one. `folder` is None if the run
    was kept in memory.
    """

    experiment: Experiment
    summary: dict[str, Any]
    metrics: pa.Table
    parameters: dict[str, torch.Tensor]
    read_trace: Callable[[], pa.Table]
    folder: Path | None = None

    @property
    def trace(self) -> pa.Table:
        return self.read_trace()


def as_experiment(experiment: ExperimentLike) -> Experiment:
    """An Experiment from one, from plain data, or from a YAML file. Raises ConfigError."""
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, Mapping):
        return experiment_from(experiment, "the configuration")
    path = Path(experiment)
    return experiment_from(read_yaml(path), str(path), path.parent)


def check(experiment: Experiment) -> None:
    """Raise ConfigError if its task cannot be made, cut or trained; runs nothing."""
    with one_thread_own_randomness():
        workload = experiment.task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        )
        experiment = calibrated(experiment, workload)
        _engine_of(experiment)(experiment, workload, Trace(MemorySink())).close()


def _engine_of(experiment: Experiment) -> type[Simulation] | type[PeerSimulation]:
    """Of virtual time."""
    return Simulation if experiment.peers is None else PeerSimulation


def simulate(
    experiment: ExperimentLike,
    out: str | Path | None = None,
    *,
    progress: Progress | None = None,
    tie_seed: int | None = None,
    control: ControlFunction | None = None,
) -> Result:
    """Run an experiment in virtual time, with real gradients.

    With `out`, a folder that is new or empty, everything is written there as well; an
    interrupted or failed run leaves it valid, with its `status`. (report.html needs the
    extra `report`; without it that file is left out.) `progress` is called
    with the share done. `control` is called at the start with a `Control`, to look at the run
    and change its policies as it goes. `tie_seed` shuffles what happens at equal times, for
    tests.

    Raises ConfigError before anything is written, RunError if the run fails;
    KeyboardInterrupt passes through after the folder was completed.
    """
    experiment = as_experiment(experiment)
    out = None if out is None else Path(out)
    with one_thread_own_randomness():
        workload = experiment.task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        )
        experiment = calibrated(experiment, workload)
        sink = MemorySink() if out is None else ParquetSink(out / files.TRACE)
        trace = Trace(sink)
        log = MessageLog() if experiment.network is not None and experiment.network.log else None
        # All that can be wrong with the experiment shows before the folder is made.
        simulation = _engine_of(experiment)(
            experiment,
            workload,
            trace,
            progress=progress,
            message_log=log,
            tie_seed=tie_seed,
            control=control,
        )
        return _Run(experiment, simulation, trace, sink, log, out).drive()


def run(
    experiment: ExperimentLike,
    out: str | Path | None = None,
    *,
    insecure: bool = False,
    lease_s: float = 10.0,
    log: Callable[[str], None] = lambda _: None,
    watch: Callable[[RealRun], None] | None = None,
    outside: Outside | None = None,
    control: ControlFunction | None = None,
) -> Result:
    """Run an experiment for real: a process for each server and worker, on this machine.

    As `simulate`, but in real time. `network` is ignored (with a notice to `log`); a
    `compute` law stretches each step to the duration drawn. `insecure`: without keys. A
    process that says nothing for `lease_s` seconds ends the run. `watch` is called once
    all processes are started, `control` with a `Control` when the training starts.
    `outside`: somebody else starts the workers. Needs the extra `real`.
    """
    experiment = as_experiment(experiment)
    out = None if out is None else Path(out)
    try:
        from outpace.real.run import RealRun
    except ModuleNotFoundError as error:
        raise ConfigError(f"real runs need the extra 'real': {error}") from None
    with one_thread_own_randomness():
        experiment = _as_it_is(experiment, log)
        if experiment.peers is None:  # raises if they cannot be made
            experiment.policies.initial(), experiment.policies.later()
        training = _training(experiment)
        sink = MemorySink() if out is None else ParquetSink(out / files.TRACE)
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
        )
        return _Run(experiment, engine, trace, sink, None, out).drive()


def _as_it_is(experiment: Experiment, log: Callable[[str], None]) -> Experiment:
    """For a real run, which has what virtual time has to be told; says what is ignored."""
    network = experiment.network
    if network is not None and network.stretch and experiment.peers is not None:
        log("all-reduces are stretched to what they would take on this network")
    elif network is not None:
        log("network is ignored: this is a real run, over the network there is")
    if experiment.colocate:
        log("colocate is ignored: this is a real run, on the machines there are")
    for key in ("push_time", "pull_time"):
        if getattr(experiment, key) is not None:
            log(f"{key} is ignored: this is a real run, servers take the time they take")
    if not isinstance(experiment.compute, Measured):
        return experiment
    log("compute is ignored: measured run times are for virtual time, this run takes its own")
    return dataclasses.replace(experiment, compute=None)


def _training(experiment: Experiment) -> Training:
    from outpace.real.training import ScriptTraining, TaskTraining

    if isinstance(experiment.task, Script):
        return ScriptTraining(experiment)
    workload = experiment.task.workload(experiment.workers, experiment.batch_size, experiment.seed)
    return TaskTraining(experiment, workload)


@dataclass(frozen=True, slots=True)
class _Run:
    """An engine with the places its results go to."""

    experiment: Experiment
    engine: Engine
    trace: Trace
    sink: MemorySink | ParquetSink
    log: MessageLog | None
    out: Path | None

    def drive(self) -> Result:
        try:
            self._open_folder()
        except BaseException:
            self.engine.close()
            raise
        started = time.perf_counter()
        try:
            self.engine.run()
        except KeyboardInterrupt:
            self._finish("partial", time.perf_counter() - started, "interrupted")
            raise
        except BaseException as error:
            reason = str(error) if isinstance(error, OutpaceError) else repr(error)
            self._finish("failed", time.perf_counter() - started, reason)
            raise
        return self._finish("complete", time.perf_counter() - started, None)

    def _open_folder(self) -> None:
        """Make it; what is there if we are killed says that the run was not completed."""
        if self.out is not None:
            files.new_folder(self.out)
            files.write_config(self.out, to_plain(self.experiment))
            files.write_summary(self.out, self._summary("partial", 0.0, "the run was killed"))

    def _finish(self, status: str, host_s: float, error: str | None) -> Result:
        with uninterrupted():
            try:
                return self._complete(status, host_s, error)
            except (OSError, ConfigError) as fault:
                reason = f"cannot complete the folder {self.out}: {fault}"
                if self.out is not None:
                    with contextlib.suppress(OSError):
                        files.write_summary(self.out, self._summary("failed", host_s, reason))
                raise RunError(reason) from fault

    def _complete(self, status: str, host_s: float, error: str | None) -> Result:
        self.engine.close()
        self.sink.close()
        summary = self._summary(status, host_s, error)
        metrics = self.engine.metrics.table()
        parameters = self.engine.state_dict()
        if self.out is not None:
            files.write_table(self.out / files.METRICS, metrics)
            files.write_model(self.out, parameters)
            run_time_model = self.engine.run_time_model()
            if run_time_model is not None:
                save_run_time_model(run_time_model, self.out / files.RUN_TIME_MODEL)
            if self.log is not None:
                files.write_table(self.out / files.MESSAGES, self.log.table())
            files.write_summary(self.out, summary)
            report_on([self.out], self.out / files.REPORT)
        return Result(self.experiment, summary, metrics, parameters, self.sink.table, self.out)

    def _summary(self, status: str, host_s: float, error: str | None) -> dict[str, Any]:
        engine = self.engine
        return {
            "status": status,
            "error": error,
            **engine.times(host_s),
            **engine.totals.summary(self.experiment.workers),
            **({} if self.experiment.peers is None else engine.totals.summary_of_peers()),
            "servers": self._servers(engine.totals),
            **engine.metrics.summary(self.experiment.stop.target_accuracy),
            "parameters_digest": parameters_digest(engine.parameters()),
            "trace_digest": self.trace.digest(),
        }

    def _servers(self, totals: Totals) -> list[dict[str, Any]]:
        """Of each: what it followed at the start, and what came of it."""
        if self.experiment.peers is not None:
            return []
        policies = to_plain(self.experiment)["sync"]
        return [
            {
                "policy": policies[server] if isinstance(policies, list) else policies,
                **totals.summary_of(server),
            }
            for server in range(self.experiment.servers)
        ]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the block is done; in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _: late.append(n))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if late and sys.exc_info()[0] is None:
        raise KeyboardInterrupt


def report_on(folders: Sequence[Path], path: Path) -> None:
    """Write the report over these runs, if the extra `report` is installed."""
    if importlib.util.find_spec("plotly") is not None:
        from outpace.report import write_report

        write_report(folders, path)
