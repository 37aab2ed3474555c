"""The checkpoints of a coordinator in virtual time; a test sends the messages of its processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.checkpoints import METRICS, Keeper
from tests.support.kernels import run_for

from outpace.config.reading import experiment_from
from outpace.kernel import Kernel
from outpace.real.background import do_now
from outpace.real.coordinator.checkpoints import Checkpoints
from outpace.real.coordinator.peer_models import PeerModels
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.script_states import ScriptStates
from outpace.real.coordinator.setting import Saving
from outpace.real.coordinator.shards_and_scripts import ShardsAndScripts
from outpace.real.net.messages import JoinRun, Plan
from outpace.record.checkpoints import Index
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.messages import server_name, worker_name


class SavedProcesses(SimpleNamespace):
    """The state of a run (`RunState`) with its checkpoints. Also its listener and its groups.

    Args:
        folder: folder of the run.
        data: the configuration, without keys that are the same in most tests.
        elements: number of elements of the model.

    Attributes:
        told: messages to processes since the last call of `orders`: name, message.
        refused: processes that were refused, and the reasons.
        jobs: functions of the background thread, if they are not called at once.
        taken, times: complete checkpoints, and the times when their scripts were saved.
    """

    totals = RunState.totals
    averages = 0

    def __init__(self, folder: Path, data: dict[str, Any], elements: int = 6) -> None:
        super().__init__(resume=None, stop_reason=None, listener=self)
        usual = {
            "task": {"kind": "quadratic", "eigenvalues": [1.0] * elements},
            "workers": 2,
            "checkpoint": {"every_s": 5},
            "stop": {"iterations": 100},
        }
        if data.get("task", {}).get("kind") == "script":
            del usual["stop"]
        self.folder, self.experiment = folder, experiment_from({**usual, **data}, "the test")
        servers = self.experiment.servers_in_run
        self.servers = [server_name(server) for server in range(servers)]
        self.workers = [worker_name(worker) for worker in range(self.experiment.workers)]
        self.numbers = {name: worker for worker, name in enumerate(self.workers)}
        bounds = [elements * n // max(1, servers) for n in range(max(1, servers) + 1)]
        self.plan = Plan([], [], layers=[elements], bounds=bounds, dtype="float32", digest="")
        self.totals_of = {name: Totals() for name in self.servers + self.workers}
        self.keeper, self.kernel = Keeper(folder), Kernel()
        self.setting = SimpleNamespace(saving=Saving(self.keeper, self.complete))
        self.told: list[tuple[str, Any]] = []
        self.refused: list[tuple[str, str]] = []
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] | None = None
        self.joined: dict[str, JoinRun] = {}
        self.taken: list[Index] = []
        self.times: dict[int, Time] = {}
        self.states = ScriptStates(self.experiment, self, None, lambda: self.keeper.folder)
        is_served = self.experiment.peers is None
        content = ShardsAndScripts(self) if is_served else PeerModels(self, self)
        self.checkpoints = Checkpoints(self, content, self.beside, self.states)

    def complete(self, taken: Index, times: dict[int, Time]) -> None:
        self.keeper.commit(taken, METRICS)
        self.taken.append(taken)
        self.times = times

    def send(self, name: str, message: Any) -> None:
        self.told.append((name, message))

    def refuse(self, name: str, why: str) -> None:
        self.refused.append((name, why))

    def when_idle(self, action: Callable[[], None]) -> None:
        action()

    def beside(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if self.jobs is None:
            do_now(job, done)
        else:
            self.jobs.append((job, done))

    def orders(self) -> list[tuple[str, Any]]:
        """Return the messages to processes since the last call."""
        told, self.told = self.told, []
        return told

    def orders_to(self, kind: str) -> list[Any]:
        """Return the messages to servers, or to workers, since the last call."""
        found = [message for name, message in self.told if name.startswith(kind)]
        self.told = [each for each in self.told if not each[0].startswith(kind)]
        return found

    def hear(self, name: str, message: Any) -> None:
        """Handle a message of a process."""
        assert self.checkpoints.take(name, message)

    def work(self) -> None:
        """Call the functions of the background thread."""
        while self.jobs:
            job, done = self.jobs.popleft()
            done(job())

    def wait(self, seconds: float) -> None:
        run_for(self.kernel, seconds)
