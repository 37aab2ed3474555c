"""A run on real processes: an `Engine`."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.control import ControlFunction
from outpace.engine.cut_offs import cut_off_rule
from outpace.engine.outcome import require_trained
from outpace.engine.output import print_line
from outpace.engine.scripts.model import with_batch_size
from outpace.errors import ConfigError, OutpaceError
from outpace.predict.interface import Model, Rule
from outpace.real.control import RealControl
from outpace.real.coordinator.coordinator import EARLY_END_S, Coordinator
from outpace.real.coordinator.evaluation.evaluations import Evaluations
from outpace.real.coordinator.fitting import FittingBeside
from outpace.real.net.messages import ScriptLog, Snapshot
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Keys, Session, new_keys
from outpace.real.net.zeromq.transport import LOOPBACK
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.server import serve
from outpace.real.process.launcher import MakeLauncher, Role
from outpace.real.process.local import LocalLauncher
from outpace.real.process.rendezvous import write_rendezvous
from outpace.real.process.suspending import suspended_together
from outpace.real.training import Training, script_used
from outpace.record.metrics import Metrics
from outpace.record.recovery import Recovery
from outpace.record.timing import Timing
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.support.place import CONNECT
from outpace.support.processes.cores import CoresUsed
from outpace.support.processes.room import require_room
from outpace.support.units import Time, seconds
from outpace.sync.messages import server_name, worker_name
from outpace.tasks import Evaluation, Script

LEASE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Outside:
    """Workers that Outpace does not start, perhaps on other machines.

    host: an address of this machine that the workers can reach. connect: the file written for the
    workers, with their keys.
    """

    host: str
    connect: Path


class RealRun:
    """An engine with the coordinator in this process, and servers and workers in others.

    Args:
        lease_s: seconds of silence after which a connection counts as lost.
        watch: called once all processes are started.
        control: called with a `Control` when the training starts.
        launcher: makes the launcher of the processes; None: they are started on this machine.
        address: of this machine, at which processes reach the coordinator; `outside` has its own.
        warn: called with a line for each warning about the training; None: `log`.
        files: the folder for files of scripts, for the workers of `outside`.
        timing: takes the times of messages and computations; None: they are dropped.

    Raises:
        ConfigError: if the addresses or the connect file of `outside` cannot be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        training: Training,
        trace: Trace,
        log: Log,
        *,
        insecure: bool = False,
        lease_s: float = LEASE_S,
        outside: Outside | None = None,
        watch: Callable[[RealRun], None] | None = None,
        control: ControlFunction | None = None,
        launcher: MakeLauncher | None = None,
        address: str = LOOPBACK,
        warn: Log | None = None,
        files: Path | None = None,
        timing: Timing | None = None,
    ) -> None:
        if outside is not None:
            _require_reachable(outside, insecure)
        elsewhere = 0 if outside is None else experiment.workers
        here = experiment.servers_in_run + experiment.workers - elsewhere
        has_store = experiment.peers is not None or isinstance(experiment.task, Script)
        require_room(here, elsewhere, 2 if has_store else 1)  # one to the store
        self._experiment, self._training, self._trace, self._log = experiment, training, trace, log
        self._outside, self._watch, self._files = outside, watch, files
        self._timing = Timing(lambda _: None) if timing is None else timing
        self.metrics = Metrics()
        self._known = training.initial  # the parameters evaluated last
        self._evaluated: int | None = None  # and their version
        self._closed = self._wrote_connect = False
        # Only processes that this one has started can be told from others.
        self._cores = CoresUsed() if outside is None and launcher is None else None
        self._processor: dict[str, Any] | None = None  # known when the processes have ended
        self._workers = [worker_name(worker) for worker in range(experiment.workers)]
        servers = [server_name(server) for server in range(experiment.servers_in_run)]
        names = [COORDINATOR, *servers, *self._workers]
        self._keys: dict[str, Keys] = {} if insecure else {name: new_keys() for name in names}
        public = {name: pair.public for name, pair in self._keys.items()}
        run, epoch = secrets.randbits(62), 0
        sessions = {name: Session(run, epoch, lease_s, self._keys.get(name)) for name in names}
        self._fitting: FittingBeside | None = None
        rule: Rule | None = None
        if (settings := experiment.cut_off) is not None:
            if settings.fitted_in_run:
                self._fitting = FittingBeside(settings.model, experiment.seed)
            rule = cut_off_rule(
                experiment,
                settings,
                say=log,
                note=log,
                fitting=self._fitting,
                clock=time.perf_counter,
            )
        address = address if outside is None else outside.host
        coordinator = self.coordinator = Coordinator(
            experiment,
            sessions[COORDINATOR],
            public,
            trace,
            self._begin_evaluation,
            log,
            training.join_s,
            address=address,
            rule=rule,
            warn=warn,
            timing=self._timing,
        )
        coordinator.reports.when_logged = self._add_logged
        self._evaluations = Evaluations(coordinator.clock, training.evaluate)
        endpoint, key = coordinator.listener.endpoint, public.get(COORDINATOR, "")
        self._links = {
            name: CoordinatorLink(name, endpoint, key, sessions[name], coordinator.store)
            for name in names
        }
        make_launcher = launcher or partial(LocalLauncher, address=address)
        self.launcher = make_launcher(
            coordinator.clock, coordinator.losses.process_ended, self._show
        )
        coordinator.when_lost = self.launcher.kill
        coordinator.losses.is_ending = self.launcher.is_ending
        if control is not None:
            run_control = RealControl(experiment, coordinator)
            coordinator.when_started.append(partial(control, run_control))

    # -- Engine -----------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        return self.coordinator.reports.totals

    def used_by_script(self) -> dict[str, Any] | None:
        reports = self.coordinator.reports
        first = reports.joined.get(self._workers[0])
        used = script_used(first.used) if first is not None and first.used else None
        return None if used is None else with_batch_size(used, reports.batch_size)

    def recovery(self) -> Recovery:
        return Recovery()

    def run_time_model(self) -> Model | None:
        return None if self._fitting is None else self._fitting.model

    def times(self, host_s: float) -> dict[str, Any]:
        coordinator = self.coordinator
        now = coordinator.clock.now if coordinator.started else 0
        if coordinator.snapshots.final is not None:
            now = coordinator.snapshots.final[1].now
        processor = {} if self._processor is None else {"processor": self._processor}
        return {"wall_time_s": seconds(now), **processor}

    def run(self) -> None:
        evaluate, training = self._experiment.evaluate, self._training
        if evaluate.every_updates or evaluate.every_s:
            self._add(0, 0, training.evaluate(training.initial), Totals())
            self._evaluated = 0
        self._start_processes()
        if self._watch is not None:
            self._watch(self)
        with suspended_together(self.launcher, self._log):
            self.coordinator.run()
        if self.coordinator.snapshots.final is not None:
            blocks, at = self.coordinator.snapshots.final
            if at.version != self._evaluated:
                self._begin_evaluation(blocks, at, lambda: None)
        self._evaluations.settle()
        require_trained(self.totals)

    def _start_processes(self) -> None:
        training, plan = self._training, self._training.experiment
        worker_keys = {name: self._keys[name] for name in self._workers if self._keys}
        public = {name: pair.public for name, pair in worker_keys.items()}
        places = itertools.cycle(self.launcher.addresses)
        for index, name in enumerate(self.coordinator.servers):
            address = next(places)
            arguments = self._links[name], index, plan, public, address
            self.launcher.start(Role(name, serve, arguments), address)
        if self._outside is None:
            for index, name in enumerate(self._workers):
                role = Role(name, training.work, (self._links[name], index, plan))
                self.launcher.start(role, next(places))
            return
        connect, link = self._outside.connect, self._links[COORDINATOR]
        write_rendezvous(connect, link, worker_keys, self._experiment, self._files)
        self._wrote_connect = True
        if self._experiment.peers is not None:
            self._log("messages between workers are neither encrypted nor authenticated")
        self._log(
            f"waiting for {len(self._workers)} workers: start them with {CONNECT}={connect}; their "
            "script calls outpace.attach, or is started by `outpace worker SCRIPT`"
        )

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # The error is reported already, or is Ctrl-C: keep the results that are still available.
        try:
            with contextlib.suppress(OutpaceError):
                self.coordinator.wind_down()
        finally:
            self.launcher.stop(at_once=not self.coordinator.over)
            self._evaluations.close(EARLY_END_S)
            if self._fitting is not None:
                self._fitting.close()
            self._processor = None if self._cores is None else self._cores.data()
            if self._outside is not None and self._wrote_connect:
                self._outside.connect.unlink(missing_ok=True)  # no worker can join any more
            self.coordinator.close()
            self._trace.flush()
            self._timing.flush()

    def parameters(self) -> Sequence[Block]:
        """Return the final parameters, or the last evaluated ones if a server was lost."""
        final = self.coordinator.snapshots.final
        return self._known if final is None else final[0]

    def state_dict(self) -> dict[str, torch.Tensor]:
        coordinator = self.coordinator
        first = coordinator.reports.joined.get(self._workers[0])
        layout = "" if first is None else first.layout
        return self._training.state_dict(self.parameters(), layout, coordinator.reports.buffers)

    # ----------------------------------------------------------------------------------

    def _show(self, name: str, line: str, error: bool) -> None:
        """Print a line of a process, without its name if it is the only worker."""
        print_line("" if self._workers == [name] else name, line, error)

    def _begin_evaluation(
        self, blocks: list[Block], at: Snapshot, done: Callable[[], None]
    ) -> None:
        totals = self.totals
        totals.applied = at.applied  # servers report their counts later
        self._evaluated, self._known = at.version, blocks

        def told(evaluation: Evaluation | None) -> None:
            self._add(at.now, at.version, evaluation, totals)
            done()

        self._evaluations.begin(blocks, told)

    def _add(self, now: Time, version: int, evaluation: Evaluation | None, totals: Totals) -> None:
        if evaluation is None:
            return
        self.metrics.add(now, version, evaluation, totals)
        self._end_at_target(evaluation)

    def _add_logged(self, worker: int, message: ScriptLog) -> None:
        known = self.coordinator.reports.totals_of.values()  # as reported last
        gradients = sum(totals.applied for totals in known)
        for point in message.points:
            evaluation = self.metrics.log(
                point.time, worker, point.iteration, point.values, gradients=gradients
            )
            self._end_at_target(evaluation)

    def _end_at_target(self, evaluation: Evaluation) -> None:
        target = self._experiment.stop.target_accuracy
        if target is not None and (evaluation.accuracy or 0.0) >= target:
            self.coordinator.end("the target accuracy is reached")


def _require_reachable(outside: Outside, insecure: bool) -> None:
    if outside.connect.exists():
        raise ConfigError(
            f"--connect {outside.connect}: the file exists, and another run may be using it; "
            "remove it if no run is, or name another file"
        )
    if not os.access(outside.connect.parent, os.W_OK | os.X_OK):
        is_there = outside.connect.parent.is_dir()
        problem = "cannot be written" if is_there else "does not exist"
        raise ConfigError(
            f"--connect {outside.connect}: the folder {outside.connect.parent} {problem}; "
            "make it, or name a file in another folder"
        )
    if outside.host in ("0.0.0.0", "*", "::"):
        raise ConfigError(
            f"--host {outside.host}: workers cannot connect to this address; "
            "give the address of this machine that they can reach"
        )
    if insecure and not outside.host.startswith("127."):
        raise ConfigError(
            f"--insecure is not possible with --host {outside.host}, only on the loopback "
            "interface; leave it out, and the connections are encrypted"
        )
