"""The process of a worker in a run without servers."""

from __future__ import annotations

from typing import Final

import torch

from outpace.blocks.block import Block, Phantom, parameters_digest, whole
from outpace.blocks.packing import BlockHead
from outpace.cluster.collectives import Costs
from outpace.cluster.paths import Paths
from outpace.config.experiment import Experiment
from outpace.engine.peers import PeerProgress, Pending, PendingExchange
from outpace.kernel import Future, Mailbox
from outpace.real.collective.exchanges import OfPairs, PairwiseExchanges
from outpace.real.collective.group import (
    Backend,
    Group,
    GroupSettings,
    gpu_of,
    own_address,
    timed_all_reduces,
)
from outpace.real.collective.reductions import RealReduction, Reductions
from outpace.real.collective.store import GroupStore, StoreConnection
from outpace.real.net.block_frames import head_in, head_of
from outpace.real.net.messages import (
    Fetch,
    Snapshot,
    TrainingDone,
)
from outpace.real.net.peer_messages import EndMeeting, Regroup, TakePart
from outpace.real.node.averaging_worker import AveragingWorker
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peer_models import PeerModels
from outpace.record.timing import ALL_REDUCE, EXCHANGE
from outpace.support.units import Time
from outpace.sync.checkpoint.state import PendingIteration
from outpace.sync.checkpoint.workers import unfinished
from outpace.sync.messages import WireMessage
from outpace.sync.peers.context import AccumulatedGradient, Parameters, Unsent

_LONGEST_S: Final = 86_400.0  # seconds for others to join a group
# with a limit, because an operation that others have abandoned may never end
_THREAD_ENDS_S: Final = 2.0


class PeerWorker(AveragingWorker):
    """The process of a worker without servers. Implements `PeerContext`.

    store: the worker's connection to the store, if it has one already.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        worker: int,
        experiment: Experiment,
        store: StoreConnection | None = None,
    ) -> None:
        super().__init__(link, worker, experiment)
        assert experiment.peers is not None
        self.strategy = experiment.peers
        # No checkpoint of scripts is taken once the first script has ended.
        is_saved = experiment.checkpoint is not None and not experiment.has_script
        self._is_saved_apart = is_saved and self.strategy.saved_apart
        self.workers = experiment.workers
        self.models: PeerModels
        self._deterministic, law = experiment.deterministic, experiment.network
        self._costs = Costs(Paths(law, experiment.machines) if law and law.stretch else None)
        self._address = own_address(link.endpoint)
        self._store = store or StoreConnection(link)
        self._settings: GroupSettings  # settings of groups, complete once the plan is known
        self._reductions: Reductions | None = None
        self._exchanges: PairwiseExchanges | None = None
        self._head: BlockHead  # layout of the parameters
        self._device: torch.device | None = None  # dtype of their values
        self._meeting: Pending | None = None  # the meeting that is not over
        # Messages of exchanges must be handled while this worker computes.
        self._must_end = self.rate_limited(lambda: False) if self.strategy.exchanges else None
        self._final = Mailbox[Block](self.kernel, "the final parameters")
        self._progress = PeerProgress(worker, self.recorder)
        self._applied = 0  # number of gradients in the parameters

    # -- course of the run ------------------------------------------------------------

    async def work(self, models: PeerModels) -> None:
        """Join the run, connect to the others, agree on the initial parameters, train."""
        self.models, self.trainer = models, models.trainer
        parameters = models.parameters()
        head = self._head = head_of(parameters)
        digest = parameters_digest([parameters])
        plan = await self.join_run(
            digest=digest,
            dtype=head.dtype,
            gpu=gpu_of(models.device),
            state=models.state_digest(),
        )
        backend: Backend = "nccl" if plan.backend == "nccl" else "gloo"
        if backend == "nccl":
            parameters = models.parameters(on_gpu=True)
        await self._connect(backend, parameters)
        if plan.share and isinstance(parameters, torch.Tensor):
            await self.reductions.share(parameters)
            models.start_from(parameters)
        await self.agree_on_buffers(gives=self.worker == 0)
        models.prepare()
        self._progress.restored = self._resume(plan)
        self.reductions.done = self._progress.restored.averages
        self.common, self.own = models.common, models.own
        if self.strategy.exchanges:
            await self._connect_pairs()
        self._is_in_run = True
        await self.start_run()
        await self.strategy.train(self)
        self.send_result()
        if self._is_saved_apart:
            # Checkpoints need the model of this worker until the others have finished.
            self.flush()
            self.coordinator.send(TrainingDone())
            await Future[None](self.kernel, "the end of the run")

    async def _connect(self, backend: Backend, parameters: torch.Tensor | Phantom) -> None:
        """Connect all workers for all-reduces."""
        strategy, models = self.strategy, self.models
        rounds, tail, elements = strategy.wire == "bf16", models.tail, self._head.elements
        like, wire = None, torch.uint8  # phantoms are sent as bytes
        if isinstance(parameters, torch.Tensor):
            like = parameters.new_empty(0)
            wire = torch.bfloat16 if rounds else parameters.dtype
            self._device = parameters.device
        elif rounds:
            elements, tail = elements // 2, 0
        least_bytes = elements * wire.itemsize
        self._settings = GroupSettings(
            GroupStore(self._store, min(strategy.timeout_s, _LONGEST_S)),
            self._address,
            backend,
            self._deterministic,
            device=self._device,
        )
        self._reductions = Reductions(
            self.kernel,
            self.clock,
            self.worker,
            self.workers,
            like=like,
            elements=elements + tail,
            exact=tail,
            wire=wire,
            tail=models.tail_dtype if tail else None,
            averages=models.averages_in_place,
            tell=self.coordinator.send,
            ended=self._reduced,
            least=lambda members: (
                self._costs.of(strategy.all_reduce, members, least_bytes).duration
            ),
        )
        await self._reductions.connect(self._settings, 0, range(self.workers))

    async def _connect_pairs(self) -> None:
        """Connect this worker with each other one."""
        models = self.models
        self._exchanges = PairwiseExchanges(
            self.kernel,
            self.clock,
            self.worker,
            [worker for worker in range(self.workers) if worker != self.worker],
            self._settings,
            read=lambda: models.own().read(),
            change=models.change_own,
            tell=self.coordinator.send,
            ended=self._exchanged,
        )
        await self._exchanges.connect()

    @property
    def reductions(self) -> Reductions:
        """The all-reduces, once all workers are connected."""
        assert self._reductions is not None
        return self._reductions

    @property
    def results(self) -> int:
        return 0 if self._reductions is None else self._reductions.done

    async def probe(self, budget: Time) -> None:
        """Time all-reduces of several sizes, all workers together."""

        def timed(group: Group) -> list[tuple[int, Time, Time]]:
            return list(timed_all_reduces(group, budget, self._device, lambda: self.clock.now))

        self.note_probes(await self.reductions.do(timed, "the probe"))

    def close(self) -> None:
        parts = [each for each in (self._exchanges, self._reductions) if each is not None]
        for each in parts:
            each.leave()
        self._store.close()  # closed to end the threads that wait for others to join a group
        for each in parts:
            each.join(_THREAD_ENDS_S)
        super().close()

    def _end_training(self) -> None:
        if self._exchanges is not None:
            self._exchanges.leave(in_order=lambda: not (self.stopped and self.stopped.early))
        self.reductions.leave()
        self._send_snapshot(0)

    async def leave(self, *, fetch: bool) -> list[Block]:
        self.from_script.put([None])
        await self.program
        if fetch:
            self.flush()
            # the coordinator waits for this message from all workers
            self.coordinator.send(TrainingDone())
            self.coordinator.send(Fetch("final"))
            return [await self._final.get()]
        return [self.models.now_trained()] if self.strategy.has_common else []

    # -- the context of the program ----------------------------------------------------

    def accumulated(self) -> AccumulatedGradient:
        return self._progress.accumulated(self.reductions.new_sum())

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        self._progress.computes(self.clock.now)
        with self.models.computing_at(at) as parameters:
            (gradient,) = await self.execute(parameters, iteration, self._must_end)
        version = None if gradient is None else self.models.version_of(at)
        self._progress.has_computed(self.clock.now, iteration, version)
        self.kernel.catch_up()  # handles messages that arrived during the computation
        if self.stopped is not None:
            await self.kernel.sleep(0)  # otherwise a program that never waits would not end
        return gradient

    @property
    def unsent(self) -> Unsent:
        return self._progress.restored.unsent

    def may_save(
        self,
        iteration: int,
        accumulated: AccumulatedGradient | None = None,
        unsent: Unsent | None = None,
    ) -> None:
        def pending() -> PendingIteration | None:
            return unfinished(self, iteration, accumulated, unsent, self._progress.versions)

        self.saver.look(iteration, pending, has_unsent=unsent is not None)

    def begin_all_reduce(self, value: Block | None, weight: int = 1) -> RealReduction:
        versions, reductions = self._progress.joins_all_reduce(), self.reductions
        return reductions.begin(value, weight, versions, self.models.digests(reductions.done))

    def begin_exchange(self, iteration: int) -> PendingExchange:
        self._progress.joins_exchange(iteration)
        assert self._exchanges is not None
        return self._exchanges.begin(iteration)

    def meet(self, *, last: bool = False) -> Pending:
        arrived = Future[None](self.kernel, "the workers that are not at the meeting")
        part = self._meeting = Pending(self.clock.now, arrived)
        self.coordinator.send(TakePart("meeting", last=last))
        return part

    def _reduced(self, part: RealReduction) -> None:
        """Note an all-reduce whose result this worker has."""
        if not part.is_finite:
            self.models.refused()
        self.models.compare(part.number, part.compared)
        if part.is_finite and self.strategy.has_common and part.value is not None:
            # The result of all-reduce n becomes commit n.
            stale = (part.number - version for version in part.versions)
            self.recorder.gradients_applied(part.weight, stale)
        self.recorder.totals.bytes_sent += part.bytes_sent
        self._progress.averaged(part)
        if self.is_recorded(iteration := self._progress.joined_after):
            now = self.clock.now
            self.span_of(ALL_REDUCE, iteration, part.joined, now, part.span, part.nbytes)

    def _exchanged(self, pair: PendingExchange, nbytes: int, span: tuple[Time, Time]) -> None:
        """Note an average with another worker. Arguments as in `PairwiseExchanges`."""
        self.recorder.totals.messages += 2
        self.recorder.totals.bytes_sent += 2 * nbytes
        self._progress.averaged(pair)
        if self.is_recorded(iteration := self._progress.joined_after):
            when, partner = (pair.joined, self.clock.now, span), pair.members[1]
            self.timing.span(
                EXCHANGE, self.worker, iteration, *when, nbytes, nbytes, partner=partner
            )

    # -- changes of the parameters -------------------------------------------------------

    def changed(self, gradients: int) -> None:
        """Count a new version of the evaluated parameters. gradients: number of new gradients."""
        self.version += 1
        self._applied += gradients
        self.versions.reached(self.version)

    def stepped(self) -> None:
        """Count a step on the worker's own parameters."""
        if not self.strategy.has_common:
            self.recorder.gradients_applied(1)
            self.changed(1)

    def _send_snapshot(self, request: int) -> None:
        block = whole(self.models.now_trained())
        if isinstance(block, torch.Tensor):
            block = block.cpu()
        self.send_snapshot(block, self.version, request, self._applied)

    # -- incoming messages ---------------------------------------------------------------

    def _expected(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, Snapshot) and (head := head_in(message)) is not None:
            return head.dtype, self._head.elements
        return super()._expected(peer, message)

    def _order(self, peer: str, message: WireMessage) -> None:
        if isinstance(message, Regroup):
            if self._is_in_run:
                self.reductions.connect(self._settings, message.generation, message.members)
        elif isinstance(message, OfPairs):
            if self._is_in_run and self._exchanges is not None:
                self._exchanges.take(message)
        elif isinstance(message, EndMeeting):
            part, self._meeting = self._meeting, None
            if part is not None:  # the clock of another machine may differ
                part.end(min(max(part.joined, message.ended), self.clock.now))
        elif isinstance(message, Snapshot):
            self._final.put(whole(message.block))
        else:
            super()._order(peer, message)
