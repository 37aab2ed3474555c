"""The connections of a worker without servers to the others: all-reduces and pairwise exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch

from outpace.blocks.block import Phantom
from outpace.cluster.collectives import Costs
from outpace.cluster.paths import Paths
from outpace.config.experiment import Experiment
from outpace.kernel import Kernel
from outpace.real.collective.buffers import AccumulatedInBuffer
from outpace.real.collective.exchanges import OfPairs, PairwiseExchanges, PendingExchange
from outpace.real.collective.group import Backend, Group, GroupSettings, own_address
from outpace.real.collective.probe import timed_all_reduces
from outpace.real.collective.reductions import PendingReduction, Reductions
from outpace.real.collective.store import GroupStore, StoreConnection
from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Plan
from outpace.real.net.peer_messages import Regroup
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peers.peer_models import PeerModels
from outpace.real.node.timing import TimingRows
from outpace.record.timing import PROBE
from outpace.support.units import Time
from outpace.sync.messages import WireMessage
from outpace.sync.peers.parameters import AccumulatedInPlace

_LONGEST_S: Final = 86_400.0  # for others to join a group
_THREAD_ENDS_S: Final = 2.0  # limit: an operation that others have abandoned may never end


class PeerGroups:
    """The all-reduces and exchanges of one worker with the others.

    Args:
        store: the worker's connection to the store, if it has one already.
        tell: sends a message to the coordinator.

    Attributes:
        elements: of the parameters.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        worker: int,
        experiment: Experiment,
        kernel: Kernel,
        clock: RealClock,
        store: StoreConnection | None,
        tell: Callable[[WireMessage], None],
    ) -> None:
        assert experiment.peers is not None
        self.elements = 0
        self._strategy, self._worker, self._workers = experiment.peers, worker, experiment.workers
        self._deterministic, self._kernel, self._clock = experiment.deterministic, kernel, clock
        self._tell = tell
        law = experiment.network
        self._costs = Costs(Paths(law, experiment.machines) if law and law.stretch else None)
        self._address = own_address(link.endpoint)
        self._store = store or StoreConnection(link.name, link.session, link.key)
        self._settings: GroupSettings
        self._reductions: Reductions | None = None
        self._exchanges: PairwiseExchanges | None = None
        self._like: torch.Tensor | None = None  # empty; has the parameters' dtype and device
        self._sent = 0, 0  # elements that an all-reduce adds up: of values, and of their tail
        self._tail_dtype: torch.dtype | None = None

    # -- connecting -----------------------------------------------------------------------

    async def connect(
        self,
        plan: Plan,
        backend: Backend,
        parameters: torch.Tensor | Phantom,
        models: PeerModels,
        ended: Callable[[PendingReduction], None],
    ) -> None:
        """Connect all workers for all-reduces.

        Args:
            ended: called with each all-reduce that is over.
        """
        self._settings = GroupSettings(
            GroupStore(self._store.at(plan.store), min(self._strategy.timeout_s, _LONGEST_S)),
            self._address,
            backend,
            self._deterministic,
            device=parameters.device if isinstance(parameters, torch.Tensor) else None,
        )
        self.elements = head_of(parameters).elements
        self._reductions = self._new_reductions(parameters, models, ended)
        await self._reductions.connect(self._settings, 0, range(self._workers))

    async def connect_pairs(
        self, models: PeerModels, ended: Callable[[PendingExchange], None]
    ) -> None:
        """Connect this worker with each other one, if the strategy exchanges in pairs.

        Args:
            ended: called with each exchange that is over.
        """
        if not self._strategy.exchanges:
            return
        self._exchanges = PairwiseExchanges(
            self._kernel,
            self._clock,
            self._worker,
            [worker for worker in range(self._workers) if worker != self._worker],
            self._settings,
            read=lambda: models.own().read(),
            change=models.change_own,
            tell=self._tell,
            ended=ended,
        )
        await self._exchanges.connect()

    def _new_reductions(
        self,
        parameters: torch.Tensor | Phantom,
        models: PeerModels,
        ended: Callable[[PendingReduction], None],
    ) -> Reductions:
        rounds, tail = self._strategy.wire == "bf16", models.tail
        self._tail_dtype = models.tail_dtype if tail else None
        if isinstance(parameters, torch.Tensor):
            self._like = parameters.new_empty(0)
            self._wire = torch.bfloat16 if rounds else parameters.dtype
            self._sent = self.elements, tail
        else:  # phantoms are sent as bytes
            self._wire = torch.uint8
            self._sent = self.elements // 2 if rounds else self.elements, 0
        return Reductions(
            self._kernel,
            self._clock,
            self._worker,
            self._workers,
            like=self._like,
            elements=sum(self._sent),
            exact=tail,
            wire=self._wire,
            tail=self._tail_dtype,
            averages=models.averages_in_place,
            tell=self._tell,
            ended=ended,
            least=self._least,
        )

    def _least(self, members: Sequence[int]) -> Time:
        """Return the minimum duration of an all-reduce among these workers, in ns."""
        size = self.elements * self._wire.itemsize
        return self._costs.of(self._strategy.all_reduce, members, size).duration

    # -- averages -------------------------------------------------------------------------

    @property
    def reductions(self) -> Reductions:
        """The all-reduces, once all workers are connected."""
        assert self._reductions is not None
        return self._reductions

    @property
    def exchanges(self) -> PairwiseExchanges:
        """The exchanges, once the pairs are connected."""
        assert self._exchanges is not None
        return self._exchanges

    @property
    def reduced(self) -> int:
        """The all-reduces that are over."""
        return 0 if self._reductions is None else self._reductions.done

    def new_sum(self) -> AccumulatedInPlace | AccumulatedInBuffer:
        """Return an empty sum of gradients, which an all-reduce takes as it is."""
        if self._like is None:
            return AccumulatedInPlace()
        elements, tail = self._sent
        dtype, device = self._like.dtype, self._like.device
        return AccumulatedInBuffer([(elements, dtype), (tail, self._tail_dtype or dtype)], device)

    async def probe(self, budget: Time, timing: TimingRows) -> None:
        """Time all-reduces of several sizes, all workers together."""
        device, clock = None if self._like is None else self._like.device, self._clock

        def timed(group: Group) -> list[tuple[int, Time, Time]]:
            return list(timed_all_reduces(group, budget, device, lambda: clock.now))

        found = await self.reductions.do(timed, "the probe")
        for number, (size, joined, arrived) in enumerate(found):
            span = joined, arrived
            timing.span(PROBE, self._worker, number, joined, arrived, span, size)

    def take(self, message: Regroup | OfPairs) -> None:
        """Follow an order of the coordinator."""
        if isinstance(message, Regroup):
            if self._reductions is not None:
                self._reductions.connect(self._settings, message.generation, message.members)
        elif self._exchanges is not None:
            self._exchanges.take(message)

    # -- the end --------------------------------------------------------------------------

    def leave_pairs(self, in_order: Callable[[], bool]) -> None:
        """Exchange no more."""
        if self._exchanges is not None:
            self._exchanges.leave(in_order=in_order)

    def close(self) -> None:
        """Leave the others, and end the threads."""
        self.leave_pairs(lambda: False)
        if self._reductions is not None:
            self._reductions.leave()
        self._store.close()  # ends the threads that wait for others to join a group
        if self._exchanges is not None:
            self._exchanges.join(_THREAD_ENDS_S)
        if self._reductions is not None:
            self._reductions.join(_THREAD_ENDS_S)
