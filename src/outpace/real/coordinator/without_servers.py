"""The coordinator's part in a run without servers: groups or pairs of workers, their snapshots."""

from __future__ import annotations

from collections.abc import Callable

from outpace.blocks.block import Block
from outpace.real.coordinator.averaging.meetings import HostedMeetings
from outpace.real.coordinator.averaging.membership import Membership
from outpace.real.coordinator.averaging.pairs import Pairs
from outpace.real.coordinator.roles import RunState
from outpace.real.coordinator.snapshots import PeerSnapshots
from outpace.sync.messages import Leave, WireMessage, worker_name


class WithoutServers:
    """Has the same methods as `WithServers`.

    Args:
        store: endpoint of the store through which workers form groups.
    """

    def __init__(self, run: RunState, store: str) -> None:
        strategy, kernel, send, resume = (
            run.experiment.peers,
            run.kernel,
            run.listener.send,
            run.resume,
        )
        assert strategy is not None
        self._workers = run.roles.workers
        self._left: set[str] = set()  # workers whose part in the training is over
        averages = not strategy.has_common
        self.snapshots = PeerSnapshots(self._workers, averages, send, run.setting.evaluate)
        # Called with each worker that leaves in order, or is lost (True).
        self.when_left: Callable[[str, bool], None] = lambda name, lost: None
        self.groups: Membership | Pairs
        first = 0 if resume is None else resume.checkpoint.index.shards[0].version
        if strategy.exchanges:
            self.groups = Pairs(kernel, self._workers, run.experiment.seed, send, first)
        else:
            self.groups = Membership(kernel, self._workers, strategy.timeout_s, send, first)
        self._meetings = HostedMeetings(kernel, self._workers, strategy.timeout_s, send)
        self.store = store

    def start(self) -> None:
        """Nothing is started: the workers exchange what they compute among themselves."""

    def close(self) -> None:
        """Nothing is open."""

    def take(self, name: str, message: WireMessage, block: Block | None) -> bool:
        """Handle a message about the training; False if it is about the run as a whole."""
        taken = self._meetings.take(name, message) or self.groups.take(name, message)
        if isinstance(message, Leave):
            self._left.add(name)
            self.when_left(name, False)
        return taken

    def source(self, shard: int) -> tuple[str, int]:
        """Return which process sends snapshots as `shard`, and the slice that it owns."""
        return worker_name(shard), 0

    def has_left(self, name: str) -> bool:
        """True if the training needs this worker no more."""
        return name in self._left

    def lose(self, name: str) -> None:
        """Go on without a worker that is lost while the run ends."""
        self.groups.lose(name)
        self._meetings.lose(name)
        self.snapshots.lose(self._workers.index(name))
        self.when_left(name, True)
