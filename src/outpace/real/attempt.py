"""The coordinator and the processes of a run, until the run ends or all of them begin again."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from outpace.config.experiment import Experiment
from outpace.engine.cut_offs import cut_off_rule, with_history
from outpace.engine.output import OnOutput
from outpace.engine.resuming import ResumePoint
from outpace.predict.interface import Rule
from outpace.predict.rules.history import History
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.fitting import FittingBeside
from outpace.real.coordinator.saving.open import Saving
from outpace.real.coordinator.setting import CoordinatorSetting
from outpace.real.coordinator.snapshots import Evaluate
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import FIRST, Keys, Session, new_keys
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.server import serve
from outpace.real.outside import Outside
from outpace.real.process.launcher import ADDRESS, MakeLauncher, Role
from outpace.real.process.local import LocalLauncher
from outpace.real.process.rendezvous import write_rendezvous
from outpace.real.training import Training
from outpace.record.timing import Timing
from outpace.record.trace import Trace
from outpace.support.place import CONNECT
from outpace.support.words import plural
from outpace.sync.membership import Membership
from outpace.sync.messages import server_name, worker_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The arguments that all attempts of a run share; see `RealRun`.

    address: of this machine. on_output: takes what processes print. saving: where checkpoints go.
    copies: see `CoordinatorSetting`.
    """

    experiment: Experiment
    members: Membership
    training: Training
    trace: Trace
    timing: Timing
    log: Log
    warn: Log | None
    insecure: bool
    lease_s: float
    address: str
    outside: Outside | None
    files: Path | None
    launcher: MakeLauncher | None
    on_output: OnOutput
    saving: Saving | None
    copies: bool


class Attempt:
    """One coordinator with its servers and workers, which know only each other.

    They have keys, ports and a number of their own, so nothing that is left of an earlier attempt
    can be heard.

    Args:
        evaluate: called with consistent snapshots of the parameters.
        resume: where the run goes on; None: it begins.
        origin: what the monotonic clock was when the time of the run began, if this process knows.
        experiment: the configuration with the present numbers of workers and servers.

    Raises:
        ConfigError: if this machine's address cannot be used.
    """

    def __init__(
        self,
        setting: Setting,
        evaluate: Evaluate,
        resume: ResumePoint | None,
        origin: int | None,
        experiment: Experiment,
    ) -> None:
        self._setting, self._resume, self._experiment = setting, resume, experiment
        # The configuration that servers and workers get. It differs from the other one in values
        # that are fixed for this run: the optimizer's schedule is in iterations, and the path of a
        # script is absolute.
        self._plan = replace(
            setting.training.experiment, workers=experiment.workers, servers=experiment.servers
        )
        self.workers = [worker_name(worker) for worker in range(experiment.workers)]
        servers = [server_name(server) for server in range(experiment.servers_in_run)]
        names = [COORDINATOR, *servers, *self.workers]
        self._keys: dict[str, Keys] = {}
        if not setting.insecure:
            self._keys = {name: new_keys() for name in names}
        public = {name: pair.public for name, pair in self._keys.items()}
        run = secrets.randbits(62)
        sessions = {
            name: Session(
                run, FIRST, setting.lease_s, self._keys.get(name), experiment.shared_memory
            )
            for name in names
        }
        self.fitting: FittingBeside | None = None
        self.history: History | None = None  # of the rule that cuts iterations off
        address = setting.address if setting.outside is None else setting.outside.host
        coordinator = self.coordinator = Coordinator(
            CoordinatorSetting(
                experiment=experiment,
                members=setting.members,
                session=sessions[COORDINATOR],
                keys=public,
                trace=setting.trace,
                evaluate=evaluate,
                log=setting.log,
                join_s=setting.training.join_s,
                address=address,
                rule=self._rule(),
                warn=setting.warn,
                timing=setting.timing,
                saving=setting.saving,
                resume=resume,
                copies=setting.copies,
            ),
            origin,
        )
        endpoint, key = coordinator.listener.endpoint, public.get(COORDINATOR, "")
        self._links = {
            name: CoordinatorLink(name, endpoint, key, sessions[name], coordinator.store)
            for name in names
        }
        make_launcher = setting.launcher or partial(LocalLauncher, address=address)
        self.launcher = make_launcher(
            coordinator.clock, coordinator.losses.process_ended, setting.on_output
        )
        processes = coordinator.state.processes
        processes.launcher = self.launcher
        processes.start = self._start_again
        self._connect: IO[bytes] | None = None  # the connect file, once it is written

    def _rule(self) -> Rule | None:
        """Return what decides when iterations are cut off; None if none are."""
        experiment, log = self._experiment, self._setting.log
        settings = experiment.cut_off
        if settings is None:
            return None
        if settings.fitted_in_run:
            self.fitting = FittingBeside(settings.model, experiment.seed, settings.ordered)
        rule = cut_off_rule(
            experiment, settings, say=log, note=log, fitting=self.fitting, clock=time.perf_counter
        )
        if self._setting.saving is None and self._resume is None:
            return rule
        self.history = with_history(rule, self._resume)
        return self.history

    def start(self) -> None:
        """Start the processes, or have them started."""
        setting, outside = self._setting, self._setting.outside
        worker_keys = {name: self._keys[name] for name in self.workers if self._keys}
        saved = None if self._resume is None else self._resume.path.absolute()
        for index, name in enumerate(self.coordinator.servers):
            self._start_server(index, self._links[name], saved)
        if outside is None:
            for index, name in enumerate(self.workers):
                self._start_worker(index, self._links[name])
            return
        connect, link = outside.connect, self._links[COORDINATOR]
        self._connect = write_rendezvous(
            connect, link, worker_keys, setting.experiment, setting.files
        )
        if setting.experiment.peers is not None:
            setting.log("messages between workers are neither encrypted nor authenticated")
        setting.log(
            f"waiting for {plural(len(self.workers), 'worker')}, to be started with "
            f"{CONNECT}={connect}; the script calls outpace.attach, or is started by "
            "`outpace worker SCRIPT`"
        )

    def _start_again(self, worker: int, generation: int) -> None:
        """Start a process for a worker whose process has ended."""
        link = self._links[self.workers[worker]]
        session = replace(link.session, generation=generation)
        self._start_worker(worker, replace(link, session=session))

    def _start_server(self, server: int, link: CoordinatorLink, saved: Path | None) -> None:
        public = {name: self._keys[name].public for name in self.workers if self._keys}
        plan, copies = self._plan, self._setting.copies
        arguments = link, server, plan, public, ADDRESS, saved, copies
        self.launcher.start(Role(link.name, serve, arguments))

    def _start_worker(self, worker: int, link: CoordinatorLink) -> None:
        role = Role(link.name, self._setting.training.work, (link, worker, self._plan))
        self.launcher.start(role)

    def kill(self) -> None:
        """End all processes at once, whatever they do."""
        for name in self._links:
            self.launcher.kill(name)

    def stop(self) -> None:
        """End the processes, which have a second for it if the run is over."""
        self.launcher.stop(at_once=not self.coordinator.over)

    def close(self) -> None:
        """Close the connections, after `stop`."""
        if self.fitting is not None:
            self.fitting.close()
        if self._setting.outside is not None and self._connect is not None:
            self._setting.outside.connect.unlink(missing_ok=True)  # no worker can join any more
            self._connect.close()
        self.coordinator.close()
