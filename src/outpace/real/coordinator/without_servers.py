"""The coordinator's part in a run without servers: groups or pairs of workers, their snapshots."""

from __future__ import annotations

from collections.abc import Callable, Collection

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.kernel import Kernel
from outpace.real.coordinator.averaging.meetings import HostedMeetings
from outpace.real.coordinator.averaging.membership import Membership
from outpace.real.coordinator.averaging.pairs import Pairs
from outpace.real.coordinator.evaluation.snapshots import Evaluate, PeerSnapshots
from outpace.real.net.transport import Listener
from outpace.sync.messages import Leave, WireMessage, worker_name


class WithoutServers:
    """Has the same methods as `WithServers`.

    Args:
        store: endpoint of the store through which workers form groups.
        resume: where the run goes on; None: it begins.
    """

    def __init__(
        self,
        experiment: Experiment,
        kernel: Kernel,
        listener: Listener,
        evaluate: Evaluate,
        store: str,
        resume: ResumePoint | None = None,
    ) -> None:
        strategy = experiment.peers
        assert strategy is not None
        self._workers = [worker_name(worker) for worker in range(experiment.workers)]
        self._present = set(self._workers)
        self._with_model = set(self._workers)  # those that train
        self._left: set[str] = set()  # workers whose part in the training is over
        averages, send = not strategy.has_common, listener.send
        self.snapshots = PeerSnapshots(self._workers, averages, send, evaluate)
        # Called with each worker that leaves in order, or is lost (True).
        self.when_left: Callable[[str, bool], None] = lambda name, lost: None
        # Called when a worker trains no more.
        self.when_fewer: Callable[[], None] = lambda: None
        self.groups: Membership | Pairs
        first = 0 if resume is None else resume.checkpoint.index.shards[0].version
        if strategy.exchanges:
            self.groups = Pairs(kernel, self._workers, experiment.seed, send, first)
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
            self._trains_no_more(name)
        return taken

    def source(self, shard: int) -> tuple[str, int]:
        """Return which process sends snapshots as `shard`, and the slice that it owns."""
        return worker_name(shard), 0

    def can_spare(self, names: Collection[str]) -> bool:
        """True if the run can go on without these processes, too."""
        rest = self._present - set(names)
        trains = self._with_model - set(names)
        joins = rest - self._with_model - self._left  # they wait for the model of one that trains
        return bool(rest) and bool(trains or self._left or not joins)  # those that left have ended

    def has_left(self, name: str) -> bool:
        """True if the training needs this worker no more."""
        return name in self._left

    def can_give(self, names: Collection[str], besides: Collection[str] = ()) -> bool:
        """True if workers that train can give those of these names their models.

        besides: workers that cannot.
        """
        trains = not self._with_model <= set(besides)
        return trains and self.groups.can_give(names, {*besides, *self._left})

    def rejoin(self, name: str, generation: int) -> None:
        """A new process takes a lost worker's place: have the others give it its model."""
        self._present.add(name)
        self.groups.join(name, generation)

    def has_joined(self, name: str) -> None:
        """A worker that was lost takes part again."""
        self._with_model.add(name)
        self.groups.has_joined(name)
        self._meetings.join(name)
        self.snapshots.join(self._workers.index(name))

    def lose(self, name: str) -> None:
        self._present.discard(name)
        self.groups.lose(name)
        self._meetings.lose(name)
        self.snapshots.lose(self._workers.index(name))
        self.when_left(name, True)
        self._trains_no_more(name)

    def _trains_no_more(self, name: str) -> None:
        if name in self._with_model:
            self._with_model.remove(name)
            self.when_fewer()
