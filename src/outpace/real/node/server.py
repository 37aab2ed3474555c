"""A server process: a shard behind a listener."""

from __future__ import annotations

import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from outpace.blocks.block import Block, whole
from outpace.blocks.sums import all_finite
from outpace.config.experiment import Experiment
from outpace.engine.narrowing import is_narrow
from outpace.engine.servers import most_unanswered, pushes_in_a_row, server_program
from outpace.kernel import Future
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.block_frames import on_the_wire, value_bytes
from outpace.real.net.inbox import Inbox, Turns
from outpace.real.net.messages import (
    ChangePolicy,
    Initialize,
    Plan,
    Ready,
    TakeSnapshot,
    WirePush,
)
from outpace.real.net.probe_messages import Probe
from outpace.real.net.translation import for_shard
from outpace.real.net.transport import Handlers
from outpace.real.node.checkpoint_writer import CheckpointWriter, saved_state
from outpace.real.node.member import CoordinatorLink, Member
from outpace.real.node.serving.checks import Checks
from outpace.real.node.serving.context import ServedContext
from outpace.real.node.serving.optimizer import ServerOptimizer
from outpace.real.node.serving.part import ServerPart
from outpace.real.node.serving.policy import FollowedPolicy
from outpace.real.node.serving.probes import ProbeAnswers
from outpace.real.node.serving.requests import Request, Requests
from outpace.real.node.serving.snapshots import Snapshots
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.real.node.serving.workers import HeardWorkers
from outpace.sync import Policy
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import (
    Close,
    Pull,
    Push,
    WireMessage,
    worker_name,
)
from outpace.sync.parameter_block import NewMemory, no_memory

_ENDS_IN_S: Final = 15  # after SIGTERM, unless the run has ended in order


class Server(Member):
    """The process of server `index`, with the shard of that number.

    Args:
        keys: public keys of the workers, by name.
        address: address to listen at.
        resume: folder of the checkpoint from which the run goes on; None: it begins.
        copies: True if the folder is not seen from here: the coordinator has what is needed of it.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        index: int,
        experiment: Experiment,
        keys: dict[str, str],
        address: str = LOOPBACK,
        resume: Path | None = None,
        copies: bool = False,
    ) -> None:
        super().__init__(link)
        self.index, self._experiment = index, experiment
        self._resume, self._copies = resume, copies
        self._times = ServiceTimes(self.timing, index)
        self._policy = FollowedPolicy(experiment, index)
        self._optimizer = ServerOptimizer(self.kernel, experiment.optimizer)
        self._initialized = Future[tuple[Initialize, Block]](self.kernel, "worker-0's parameters")
        memory: NewMemory = lambda *size: self.listener.memory(*size)  # noqa: E731
        self._part = ServerPart(
            self.clock,
            index,
            experiment,
            self._policy,
            self._optimizer,
            self.recorder,
            self._times,
            no_memory if is_narrow(experiment) else memory,  # else others are sent
        )
        names = [worker_name(worker) for worker in range(experiment.workers)]
        self._probes = ProbeAnswers(
            index,
            names,
            self._times,
            lambda: experiment.probe and self._part.has_begun and not self.has_started,
            lambda *answer: self.listener.send(*answer),
        )
        checks = Checks(self.name, experiment, self._part, self._probes, self.notice)
        self._require_finite = checks.require_finite
        self.listener = self.transport.listen(
            address,
            {name: keys.get(name, "") for name in names},
            # Losses are the coordinator's concern: it knows whether the worker was done.
            Handlers(checks.expected, self._take, lambda _: None, all_finite),
        )
        turns = Turns(most_unanswered(experiment), pushes_in_a_row(experiment))
        self._inbox = Inbox(self.kernel, self.listener, self.name, turns)
        self._context = ServedContext(
            self.clock,
            self._part,
            self._inbox,
            turns,
            self.listener,
            self._times,
            self.recorder.totals,
            lambda: self._requests.look(),
        )
        self._requests = Requests(index, self._part, self._optimizer, self.listener, self.clock)
        self._snapshots = Snapshots(self._part, self.recorder, self.coordinator)
        self._checkpoints = CheckpointWriter(
            self.clock,
            lambda: self._part.shard,
            lambda: self.recorder.totals,
            self.coordinator.send,
        )
        self._workers = HeardWorkers(
            self.kernel,
            self._part,
            self.listener,
            self._inbox,
            self.coordinator,
            self._requests.forget,
        )

    @property
    def shard(self) -> TimedShard:
        """The shard; there is none before the run begins."""
        return self._part.shard

    # -- the course of the run -----------------------------------------------------------

    async def serve(self) -> None:
        """Join the run, get a part of the parameters, serve until the run ends."""
        self.join(endpoint=self.listener.endpoint)
        plan = await self.order(Plan)
        self._part.planned(plan)
        self._share_memory()
        await self._begin()
        while True:
            self._snapshots.take(await self.order(TakeSnapshot))

    def _share_memory(self) -> None:
        """Send parameters to processes of this machine in shared memory."""
        block = self._part.block
        if block is not None:
            self.coordinator.share_memory(value_bytes(block))
            sent = on_the_wire(block) if is_narrow(self._experiment) else block
            self.listener.share_memory(value_bytes(sent))

    async def _begin(self) -> None:
        """Begin with the parameters of worker 0, or with those of a checkpoint."""
        saved = None if self._resume is None else await self._saved_state(self._resume)
        self.coordinator.send(Ready())
        initialize, parameters = await self._initialized
        block = self._part.first_block(parameters, initialize)
        if initialize.has_state:
            await self._optimizer.load_initial_state()
        self._part.begin(block)
        self._requests.has_begun()
        await self.start_run()
        if saved is not None:
            self.shard.restore(saved, self.clock.now)
        program = server_program(self._experiment, self._checkpoints.cuts)
        self.kernel.spawn(program(self._context), f"{self.name}'s shard", daemon=True)
        for at, server, policy in self._experiment.policies.later():
            if server == self.index:
                self.kernel.call_at(max(at, self.kernel.now), self._set_policy, policy)

    async def _saved_state(self, folder: Path) -> ShardState:
        """Return the state of a checkpoint with which this server begins. Raises RunError."""
        if not self._copies:
            return saved_state(folder, self.index, self._experiment)
        with TemporaryDirectory(prefix="outpace-") as copied:
            await self.fetched.into(Path(copied))
            return saved_state(Path(copied), self.index, self._experiment)

    def _set_policy(self, policy: Policy) -> None:
        self._inbox.put(self._policy.replace(policy))

    def finish(self) -> None:
        ended = self._requests.all_left_at
        self._part.close(self.clock.now if ended is None else ended)
        super().finish()

    def _end_times(self) -> None:
        self._times.close()

    # -- what arrives, on its way to the shard -------------------------------------------

    def _take(self, peer: str, received: WireMessage, block: Block | None) -> None:
        """Put a message of a worker into the inbox of the shard's program, or refuse the worker.

        The transport calls it with the block that `Checks` expected. A message that is not for the
        shard is followed here.
        """
        if messages := for_shard(received, block):
            if isinstance(received, WirePush):
                if received.timed:
                    self._times.received(peer, received, block)
            elif isinstance(received, Pull):
                self._times.received(peer, received, block)
            for message in messages:
                if self._inbox.take(peer, message) and isinstance(message, Push):
                    self._require_finite(message)
        elif not self._is_taken(peer, received, block):
            self.listener.refuse(
                peer, f"{type(received).__name__} is not accepted from this worker now"
            )

    def _is_taken(self, peer: str, received: WireMessage, block: Block | None) -> bool:
        """Follow a message that is not for the shard; False if it must not be sent now."""
        if isinstance(received, Request):
            return self._requests.take(peer, received, block)
        if block is None:
            return False
        if isinstance(received, Initialize):
            return self._is_initialized(peer, received, block)
        if isinstance(received, Probe):
            self._probes.answer(peer, received, block)
        else:
            return False
        return True

    def _is_initialized(self, peer: str, initialize: Initialize, block: Block) -> bool:
        """Take the parameters that worker 0 sends, once; False if they must not be sent now."""
        if peer != worker_name(0) or self._initialized.done:
            return False
        self._optimizer.set_groups(initialize.groups)
        self._initialized.set((initialize, whole(block)))
        return True

    def _updated(self, shard: int, version: int) -> None:
        if version in self._snapshots.due:
            self._snapshots.reached(version)
        self._checkpoints.updated(version)

    # -- orders of the coordinator -------------------------------------------------------

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if self._checkpoints.take(message) or self._workers.order(message):
            pass
        elif isinstance(message, ChangePolicy):  # after the messages that have already arrived
            self._inbox.put(self._policy.change(message))
        elif isinstance(message, Close):
            self._inbox.put(message)
        else:
            super()._order(peer, message, block)


def serve(*arguments: Any) -> None:
    """Run a server in its process; arguments of `Server`."""
    # A cluster sends SIGTERM to all processes of a job: workers need the servers to end in order.
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_ENDS_IN_S))
    server = Server(*arguments)
    server.run(server.serve())
