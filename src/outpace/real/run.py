"""A run on real processes: an `Engine`."""

from __future__ import annotations

import contextlib
import itertools
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
from outpace.errors import ConfigError, OutpaceError
from outpace.predict.interface import Model, Rule
from outpace.real.control import RealControl
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.evaluation.evaluations import Evaluations
from outpace.real.coordinator.fitting import FittingBeside
from outpace.real.net.messages import Snapshot
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Keys, Session, new_keys
from outpace.real.net.zeromq.transport import LOOPBACK
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.server import serve
from outpace.real.process.launcher import Role
from outpace.real.process.local import LocalLauncher
from outpace.real.process.output import print_line
from outpace.real.process.rendezvous import write_rendezvous
from outpace.real.training import Training
from outpace.record.metrics import Metrics
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.support.place import CONNECT
from outpace.support.units import Time, seconds
from outpace.sync.messages import server_name, worker_name
from outpace.tasks import Evaluation

LEASE_S: Final = 10.0
_EARLY_END_S: Final = 5.0  # time for workers to finish a step when the run ends early


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
    ) -> None:
        self._experiment, self._training, self._trace = experiment, training, trace
        if outside is not None:
            _require_reachable(outside, insecure)
        self._known = training.initial  # the parameters evaluated last
        self._log = log
        self.metrics = Metrics()
        self._evaluated: int | None = None  # the version
        run, epoch = secrets.randbits(62), 0
        servers = [server_name(server) for server in range(experiment.servers_in_run)]
        self._workers = [worker_name(worker) for worker in range(experiment.workers)]
        names = [COORDINATOR, *servers, *self._workers]
        keys: dict[str, Keys] = {} if insecure else {name: new_keys() for name in names}
        self._public = {name: pair.public for name, pair in keys.items()}

        def session(name: str) -> Session:
            return Session(run, epoch, lease_s, keys.get(name))

        settings = experiment.cut_off
        self._fitting: FittingBeside | None = None
        if settings is not None and settings.fitted_in_run:
            self._fitting = FittingBeside(settings.model, experiment.seed)
        rule: Rule | None = None
        if settings is not None:
            rule = cut_off_rule(
                experiment,
                settings,
                say=log,
                note=log,
                fitting=self._fitting,
                clock=time.perf_counter,
            )
        address = LOOPBACK if outside is None else outside.host
        self.coordinator = Coordinator(
            experiment,
            session(COORDINATOR),
            self._public,
            trace,
            self._begin_evaluation,
            log,
            training.join_s,
            address=address,
            rule=rule,
        )
        self._evaluations = Evaluations(self.coordinator.clock, training.evaluate)
        endpoint, key = self.coordinator.listener.endpoint, self._public.get(COORDINATOR, "")
        self._links = {name: CoordinatorLink(name, endpoint, key, session(name)) for name in names}
        self._outside = outside
        self._worker_keys = {name: keys[name] for name in self._workers if name in keys}
        self.launcher = LocalLauncher(
            self.coordinator.clock, self.coordinator.process_ended, self._show, address
        )
        self.coordinator.when_lost = self.launcher.kill
        self._watch = watch
        if control is not None:
            self.coordinator.when_started.append(
                partial(control, RealControl(experiment, self.coordinator))
            )
        self._closed = self._wrote_connect = False

    # -- Engine -----------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        return self.coordinator.reports.totals

    def run_time_model(self) -> Model | None:
        return None if self._fitting is None else self._fitting.model

    def times(self, host_s: float) -> dict[str, Any]:
        return {"wall_time_s": seconds(self._ended)}

    def run(self) -> None:
        experiment, coordinator = self._experiment, self.coordinator
        worker_keys = {name: pair.public for name, pair in self._worker_keys.items()}
        if experiment.evaluate.every_updates or experiment.evaluate.every_s:
            initial = self._training.evaluate(self._training.initial)
            self._add(0, 0, initial, Totals())
            self._evaluated = 0
        places = itertools.cycle(self.launcher.addresses)
        for index, name in enumerate(coordinator.servers):
            address = next(places)
            link, plan = self._links[name], self._training.experiment
            role = Role(name, serve, (link, index, plan, worker_keys, address))
            self.launcher.start(role, address)
        self._start_workers()
        if self._watch is not None:
            self._watch(self)
        coordinator.run()
        final, at = coordinator.snapshots.final, coordinator.snapshots.final_at
        if final is not None and at is not None and at.version != self._evaluated:
            self._begin_evaluation(final, at, lambda: None)
        self._evaluations.settle()

    def _start_workers(self) -> None:
        if self._outside is not None:
            write_rendezvous(
                self._outside.connect,
                self._links[COORDINATOR],
                self._worker_keys,
                self._experiment,
            )
            self._wrote_connect = True
            if self._experiment.peers is not None:
                self._log("messages between workers are neither encrypted nor authenticated")
            self._log(
                f"waiting for {len(self._workers)} workers: start them with "
                f"{CONNECT}={self._outside.connect}"
            )
            return
        places = itertools.cycle(self.launcher.addresses)
        for index, name in enumerate(self._workers):
            target, arguments = self._training.worker(index)
            role = Role(name, target, (self._links[name], index, *arguments))
            self.launcher.start(role, next(places))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # The error is reported already, or is Ctrl-C: keep the results that are still available.
        try:
            with contextlib.suppress(OutpaceError):
                self.coordinator.wind_down(_EARLY_END_S)
        finally:
            self.launcher.stop(at_once=not self.coordinator.over)
            self._evaluations.close(_EARLY_END_S)
            if self._fitting is not None:
                self._fitting.close()
            if self._outside is not None and self._wrote_connect:
                self._outside.connect.unlink(missing_ok=True)  # no worker can join any more
            self.coordinator.close()
            self._trace.flush()

    def parameters(self) -> Sequence[Block]:
        """Return the final parameters, or the last evaluated ones if a server was lost."""
        return self.coordinator.snapshots.final or self._known

    def state_dict(self) -> dict[str, torch.Tensor]:
        coordinator = self.coordinator
        first = coordinator.reports.joined.get(self._workers[0])
        layout = "" if first is None else first.layout
        return self._training.state_dict(self.parameters(), layout, coordinator.reports.buffers)

    # ----------------------------------------------------------------------------------

    @property
    def _ended(self) -> Time:
        coordinator = self.coordinator
        if coordinator.snapshots.final_at is not None:
            return coordinator.snapshots.final_at.now
        return coordinator.clock.now if coordinator.started else 0

    def _show(self, name: str, line: str, error: bool) -> None:
        """Print a line of a process, without its name if it is the only worker."""
        alone = self._workers == [name]
        print_line("" if alone else name, line, error)

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
        target = self._experiment.stop.target_accuracy
        if target is not None and (evaluation.accuracy or 0.0) >= target:
            self.coordinator.end("the target accuracy is reached")


def _require_reachable(outside: Outside, insecure: bool) -> None:
    if outside.connect.exists():
        raise ConfigError(
            f"--connect {outside.connect}: the file exists, and another run may be using it; "
            "remove it if no run is, or name another file"
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
