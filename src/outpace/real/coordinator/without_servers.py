"""The coordinator's part in a run without servers: groups or pairs of workers, their snapshots."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.kernel import Kernel
from outpace.real.collective.group import host_store
from outpace.real.coordinator.evaluation.peer_snapshots import PeerSnapshots
from outpace.real.coordinator.evaluation.snapshots import Evaluate
from outpace.real.coordinator.membership import Membership
from outpace.real.coordinator.pairs import Pairs
from outpace.real.net.messages import Snapshot, TakeSnapshot
from outpace.real.net.transport import Listener
from outpace.sync.messages import WireMessage, worker_name


class WithoutServers:
    """Has the same methods as `WithServers`.

    address: of this machine; workers find each other through a store there.

    Raises:
        ConfigError: the store cannot listen there.
    """

    def __init__(
        self,
        experiment: Experiment,
        kernel: Kernel,
        listener: Listener,
        evaluate: Evaluate,
        address: str,
    ) -> None:
        strategy = experiment.peers
        assert strategy is not None
        self._listener = listener
        self._workers = [worker_name(worker) for worker in range(experiment.workers)]
        self._present = set(self._workers)
        self._awaiting: list[str] = []
        averages = not strategy.has_common
        self.snapshots = PeerSnapshots(experiment.workers, averages, self._ask, evaluate)
        self._groups: Membership | Pairs
        if strategy.exchanges:
            self._groups = Pairs(kernel, self._workers, experiment.seed, listener.send)
        else:
            self._groups = Membership(kernel, self._workers, strategy.timeout_s, listener.send)
        self._started = False
        store, port = host_store(address)
        self._store: Any = store  # lives as long as the run
        self.store = f"{address}:{port}"

    def start(self) -> None:
        self._started = True

    def end_early(self) -> None:
        """Workers end by themselves."""

    def close(self) -> None:
        self._store = None

    def take(self, name: str, message: WireMessage, block: Block | None) -> bool:
        """Handle a message about the training; False if it is about the run as a whole."""
        return self._groups.take(name, message)

    def source(self, shard: int) -> tuple[str, int]:
        """Return which process sends snapshots as `shard`, and the slice that it owns."""
        return worker_name(shard), 0

    def add_snapshot(self, message: Snapshot, block: Block) -> None:
        if message.request:
            self.snapshots.add(message, block)
        else:
            self.snapshots.leave(message, block)

    def awaits_parameters(self, name: str) -> None:
        """This worker has left and wants the final parameters."""
        self._awaiting.append(name)
        self.hand_out()

    def hand_out(self) -> None:
        """Send the final parameters, if they are known, to the workers that want them."""
        final, at = self.snapshots.final, self.snapshots.final_at
        if final is not None and at is not None:
            for name in self._awaiting:
                self._listener.send(name, at, final[0])
            self._awaiting.clear()

    def can_spare(self, names: Collection[str]) -> bool:
        """True if the run can go on without these processes, too."""
        return self._started and not self._present <= set(names)

    def lose(self, name: str) -> None:
        self._present.remove(name)
        self._groups.lose(name)
        self.snapshots.lose(self._workers.index(name))

    def _ask(self, worker: int, message: TakeSnapshot) -> None:
        self._listener.send(worker_name(worker), message)
