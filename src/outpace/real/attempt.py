"""The coordinator and the processes of a run, until the run ends or all of them begin again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import IO

from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.setting import Setting
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.server import serve
from outpace.real.process.launcher import ADDRESS, Role
from outpace.real.process.rendezvous import Outside, write_rendezvous
from outpace.real.training import Training
from outpace.support.place import CONNECT
from outpace.support.words import plural


class Attempt:
    """One coordinator with its servers and workers, which have connections only among themselves.

    Args:
        outside: address and connect file of workers that others start; None: workers are started
            here.
        files: the folder for files of scripts, for the workers of `outside`.
        origin: value of the monotonic clock when the time of the run began, if this process knows
            it.

    Raises:
        ConfigError: if this machine's address cannot be used.
    """

    def __init__(
        self,
        setting: Setting,
        training: Training,
        outside: Outside | None,
        files: Path | None,
        origin: int | None,
    ) -> None:
        experiment = setting.experiment
        self._setting, self._training = setting, training
        self._outside, self._files = outside, files
        # The configuration that servers and workers get. It differs from the other one in values
        # that are fixed for this run: the optimizer's schedule is in iterations, and the path of a
        # script is absolute.
        self._plan = replace(
            training.experiment, workers=experiment.workers, servers=experiment.servers
        )
        self.coordinator = Coordinator(setting, self._start_again, origin)
        self.workers, self.launcher = self.coordinator.workers, self.coordinator.launcher
        self._connect: IO[bytes] | None = None  # the connect file, once it is written

    def start(self) -> None:
        """Start the processes, or wait for others to start them."""
        setting, outside, links = self._setting, self._outside, self.coordinator.links
        saved = None if setting.resume is None else setting.resume.path.absolute()
        worker_keys = {name: links[name].session.keys for name in self.workers}
        public = {name: pair.public for name, pair in worker_keys.items()}
        for index, name in enumerate(self.coordinator.servers):
            arguments = links[name], index, self._plan, public, ADDRESS, saved
            self.launcher.start(Role(name, serve, arguments))
        if outside is None:
            for index, name in enumerate(self.workers):
                self._start_worker(index, links[name])
            return
        link, plan = links[COORDINATOR], setting.experiment
        self._connect = write_rendezvous(outside.connect, link, worker_keys, plan, self._files)
        if plan.peers is not None:
            setting.log("messages between workers are neither encrypted nor authenticated")
        setting.log(
            f"waiting for {plural(len(self.workers), 'worker')}, to be started with "
            f"{CONNECT}={outside.connect}; the script calls outpace.attach, or is started by "
            "`outpace worker SCRIPT`"
        )

    def _start_again(self, worker: int, generation: int) -> None:
        """Start a process for a worker whose process has ended."""
        link = self.coordinator.links[self.workers[worker]]
        session = replace(link.session, generation=generation)
        self._start_worker(worker, replace(link, session=session))

    def _start_worker(self, worker: int, link: CoordinatorLink) -> None:
        role = Role(link.name, self._training.work, (link, worker, self._plan))
        self.launcher.start(role)

    def kill(self) -> None:
        """End all processes at once."""
        for name in self.coordinator.links:
            self.launcher.kill(name)

    def stop(self) -> None:
        """End the processes; if the run is over, they have a second to end by themselves."""
        self.launcher.stop(at_once=not self.coordinator.over)

    def close(self) -> None:
        """Close the connections; call this after `stop`."""
        if self._outside is not None and self._connect is not None:
            self._outside.connect.unlink(missing_ok=True)  # from here on no worker can join
            self._connect.close()
        self.coordinator.close()
