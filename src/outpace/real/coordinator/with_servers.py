"""The coordinator's part in a run with servers: their snapshots, and the scheduler."""

from __future__ import annotations

from collections.abc import Collection

from outpace.blocks.block import Block
from outpace.engine.servers import has_scheduler
from outpace.predict.interface import Rule
from outpace.real.coordinator.evaluation.snapshots import Evaluate, Snapshots
from outpace.real.coordinator.scheduler import (
    CutOffScheduler,
    Scheduler,
    SchedulerResources,
    ShardScheduler,
)
from outpace.real.net.messages import Snapshot, TakeSnapshot
from outpace.record.totals import Totals
from outpace.sync.messages import SCHEDULER, WireMessage, server_name


class WithServers:
    """Has the same methods as `WithoutServers`.

    rule: decides when an iteration is cut off; None if none is.
    """

    store = ""

    def __init__(
        self,
        resources: SchedulerResources,
        totals_of: dict[str, Totals],
        evaluate: Evaluate,
        rule: Rule | None,
    ) -> None:
        self._listener = resources.listener
        self.snapshots = Snapshots(resources.experiment.servers, self._ask, evaluate)
        self._scheduler: Scheduler | None = None
        if rule is not None:
            self._scheduler = CutOffScheduler(resources, rule)
        elif has_scheduler(resources.experiment):
            self._scheduler = ShardScheduler(resources)
        if self._scheduler is not None:
            totals_of[SCHEDULER] = self._scheduler.recorder.totals

    def start(self) -> None:
        if self._scheduler is not None:
            self._scheduler.start()

    def end_early(self) -> None:
        if self._scheduler is not None:
            self._scheduler.stop()

    def close(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()

    def take(self, name: str, message: WireMessage, block: Block | None) -> bool:
        return self._scheduler is not None and self._scheduler.take(name, message, block)

    def source(self, shard: int) -> tuple[str, int]:
        return server_name(shard), shard

    def add_snapshot(self, message: Snapshot, block: Block) -> None:
        self.snapshots.add(message, block)

    def awaits_parameters(self, name: str) -> None:
        """The servers answer by themselves."""

    def hand_out(self) -> None:
        """The servers have answered by themselves."""

    def can_spare(self, names: Collection[str]) -> bool:
        return False

    def lose(self, name: str) -> None:
        raise AssertionError("a run with servers ends with the first process that is lost")

    def _ask(self, server: int, message: TakeSnapshot) -> None:
        self._listener.send(server_name(server), message)
