"""A server process: a shard with a listener; the process is the context of its program."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.engine.resuming import state_of
from outpace.engine.servers import (
    most_unanswered,
    pushes_in_a_row,
    server_program,
)
from outpace.errors import DivergenceError
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.inbox import Inbox, Turns, from_worker
from outpace.real.net.messages import (
    ChangePolicy,
    Fetch,
    Initialize,
    OptimizerState,
    Plan,
    Ready,
    ReplaceWorker,
    TakeSnapshot,
    WorkerReplaced,
)
from outpace.real.net.probes import MOST_PROBES, Probe, probe_block
from outpace.real.net.sparse_log import SparseLog
from outpace.real.net.transport import Handlers
from outpace.real.node.member import CoordinatorLink, Member
from outpace.real.node.optimizer_state import bytes_due
from outpace.real.node.part import ServerPart
from outpace.real.node.saver import ShardSaver
from outpace.real.node.times import ServiceTimes, TimedShard
from outpace.record.checkpoints import Checkpoint
from outpace.support.units import nanoseconds
from outpace.sync import Policy
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import Ack, Close, Message, Pull, Push, Reply, WireMessage, worker_name

_ENDS_IN_S: Final = 15  # exit code after SIGTERM, unless the run has ended in order
_LAST_MESSAGES_S: Final = 0.5  # seconds to receive the messages that a lost worker has sent
_LOOK_S: Final = 0.001


class Server(Member):
    """The process of server `index`, with the shard of that number. Implements `ServerContext`.

    Args:
        keys: public keys of the workers, by name.
        address: address at which the server listens.
        resume: folder of the checkpoint from which the run is resumed; None: a new run.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        index: int,
        experiment: Experiment,
        keys: dict[str, str],
        address: str = LOOPBACK,
        resume: Path | None = None,
    ) -> None:
        super().__init__(link)
        self.index, self._experiment = index, experiment
        self._resume = resume
        self._names = [worker_name(worker) for worker in range(experiment.workers)]
        self._log = SparseLog(self.notice)
        self._probed: Counter[str] = Counter()  # number of probes that were answered
        self._times = ServiceTimes(self.timing, index)
        self.listener = self.transport.listen(
            address,
            {name: keys[name] for name in self._names},
            # The coordinator handles losses, because it knows whether the worker had finished.
            Handlers(self._expected_of_worker, self._take, lambda _: None, all_finite),
        )
        self._part = ServerPart(self, self.listener, index, experiment, self._times)
        self._turns = Turns(most_unanswered(experiment), pushes_in_a_row(experiment))
        self._inbox = inbox = Inbox(self.kernel, self.listener, self.name, self._turns)
        self.recv, self.recv_within, self.refuse = inbox.recv, inbox.recv_within, inbox.refuse
        self._saver = ShardSaver(self, self._part)

    # -- the course of the run -----------------------------------------------------------

    async def serve(self) -> None:
        """Join the run, get a part of the parameters, serve until the run ends."""
        self.join(endpoint=self.listener.endpoint)
        plan = await self.order(Plan)
        self._part.planned(plan)
        await self._begin()
        while True:
            self._part.versions.ask(await self.order(TakeSnapshot))

    async def _begin(self) -> None:
        """Begin with the parameters of worker 0, or with the parameters of a checkpoint."""
        saved = None
        if self._resume is not None:
            saved = self.read_checkpoint(self._resume, self._saved_state)
        self.coordinator.send(Ready())
        # Blocks that are converted to bfloat16 are sent from other memory.
        await self._part.begin()
        await self.start_run()
        if saved is not None:
            self.shard.restore(saved, self.clock.now)
        program = server_program(self._experiment, self._saver.look)
        self.kernel.spawn(program(self), f"{self.name}'s shard", daemon=True)
        for at, server, policy in self._experiment.policies.later():
            if server == self.index:
                self.kernel.call_at(max(at, self.kernel.now), self._set_policy, policy)

    def _saved_state(self, folder: Path) -> ShardState:
        """Return the state of a checkpoint with which this server begins."""
        return state_of(Checkpoint(folder), self._experiment, self.index)

    def _set_policy(self, policy: Policy) -> None:
        self._inbox.put(self._part.follow(policy))

    def finish(self) -> None:
        if self._part.has_begun:
            ended = self._part.all_left_at
            self.shard.close(self.clock.now if ended is None else ended)
        super().finish()

    def _end_times(self) -> None:
        self._times.close()

    # -- the context of the shard's program ------------------------------------------------

    @property
    def shard(self) -> TimedShard:
        """The shard; it does not exist before the run begins."""
        return self._part.shard

    def send(self, to: str, *messages: Message) -> None:
        totals, times = self.recorder.totals, self._times
        for message in messages:
            totals.messages += 1
            if isinstance(message, Ack):
                self.listener.send(to, message)
                continue
            assert isinstance(message, Reply)
            assert message.parameters is not None
            totals.bytes_sent += message.nbytes
            began = monotonic_ns()
            self._turns.answered(message.worker, message.iteration)
            self.listener.send(to, message)
            if times.open:
                times.answered(message.worker, message.iteration, message.nbytes, began)

    # -- what arrives, on its way to the shard -------------------------------------------

    def _expected_of_worker(self, peer: str, message: WireMessage) -> tuple[str, int] | None:
        """Return which block may come with a message of a worker; see `Handlers`."""
        part = self._part
        if isinstance(message, Push):
            return part.sent
        if isinstance(message, OptimizerState):
            size = bytes_due(message.entries, part.lengths) if peer == worker_name(0) else None
            return None if size is None else ("uint8", size)
        if isinstance(message, Probe):
            return self._probe_due(peer, message)
        return part.block if isinstance(message, Initialize) else None

    def _probe_due(self, peer: str, probe: Probe) -> tuple[str, int] | None:
        """Return the kind of block that may come with a worker's probe; None: no probe is due."""
        is_time = self._part.has_begun and not self.has_started
        may = self._experiment.probe and is_time and self._probed[peer] < MOST_PROBES
        return probe_block(probe) if may else None

    def _take(self, peer: str, received: WireMessage) -> None:
        """Put a message of a worker into the inbox of the shard's program, or refuse the worker.

        A message that is not for the shard is handled here.
        """
        if messages := from_worker(received):
            if isinstance(received, Push):
                if received.timed:
                    self._times.received(peer, received)
            elif isinstance(received, Pull):
                self._times.received(peer, received)
            for message in messages:
                if not self._inbox.take(peer, message):
                    break
                if isinstance(message, Push):
                    self._require_finite(message)
        elif not self._is_taken(peer, received):
            self.listener.refuse(
                peer, f"{type(received).__name__} is not accepted from this worker now"
            )

    def _require_finite(self, push: Push) -> None:
        """Drop a gradient that is not finite, or end the run. The worker should refuse it.

        Raises:
            DivergenceError: if such a gradient ends the run (`non_finite: stop`).
        """
        gradient = push.gradient
        if not isinstance(gradient, Gradient) or all_finite(gradient):
            return
        if self._experiment.non_finite == "stop":
            raise DivergenceError(
                f"worker {push.worker}'s gradient of iteration {push.iteration} is not finite; "
                "try a smaller learning rate"
            )
        self._log.note(
            f"a gradient of worker {push.worker} is not finite: {self.name} does not apply it"
        )
        push.gradient = push.settings = None

    def _is_taken(self, peer: str, received: WireMessage) -> bool:
        """Handle a message that is not for the shard; False if the peer may not send it now."""
        if isinstance(received, Fetch):
            return self._part.fetch(peer, received.what)
        if isinstance(received, OptimizerState):
            return self._part.load_state(received)
        if isinstance(received, Initialize):
            return peer == worker_name(0) and self._part.initialize(received)
        if isinstance(received, Probe):
            self._answer_probe(peer, received)
        return isinstance(received, Probe)

    def _answer_probe(self, peer: str, probe: Probe) -> None:
        """Answer a probe that has just been read, whose block was expected."""
        number = self._probed[peer]
        self._probed[peer] += 1
        began = monotonic_ns()
        self.listener.send(peer, probe)
        self._times.probed(self._names.index(peer), number, probe.block.nbytes, began)

    # -- orders of the coordinator -------------------------------------------------------

    def _order(self, peer: str, message: WireMessage) -> None:
        if self._saver.take(message):
            pass
        elif isinstance(message, ReplaceWorker):
            self.kernel.spawn(self._replace(message), "a replacement", daemon=True)
        elif isinstance(message, ChangePolicy):  # after the messages that have already arrived
            self._inbox.put(self._part.change_policy(message))
        elif isinstance(message, Close):
            self._inbox.put(message)
        else:
            super()._order(peer, message)

    async def _replace(self, order: ReplaceWorker) -> None:
        """Accept only a new process of a worker, and report the progress of the old one."""
        name, kernel = worker_name(order.worker), self.kernel
        limit = kernel.now + nanoseconds(_LAST_MESSAGES_S)
        await kernel.sleep(_LOOK_S)
        # the message may be from the old process
        while self.listener.unread and kernel.now < limit:
            await kernel.sleep(_LOOK_S)
        self.listener.replace(name, order.generation)
        self._part.forget(name)
        await self._inbox.settled()
        progress = self._progress(order.worker)
        await self._inbox.replace(order.worker, stays=order.stays)
        if order.stays:  # when a worker leaves, iterations that waited for it may finish
            progress = self._progress(order.worker)
        self.coordinator.send(WorkerReplaced(order.worker, order.generation, *progress))

    def _progress(self, worker: int) -> tuple[int, int]:
        """Return the last iteration of a worker, and the number of finished iterations."""
        return self.shard.watermark(worker), self.shard.clock


def serve(*arguments: Any) -> None:
    """Run a server in its process; arguments of `Server`."""
    # A cluster sends SIGTERM to all processes of a job: workers need the servers to end in order.
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_ENDS_IN_S))
    server = Server(*arguments)
    server.run(server.serve())
