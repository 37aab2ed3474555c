"""The scheduler of a global barrier: a shard without parameters, in the coordinator.

Workers report to it over the connection that they have to the coordinator. So an
evaluation, which is the coordinator's too, holds them up.
"""

from __future__ import annotations

from outpace.config import Experiment
from outpace.errors import ProtocolError
from outpace.kernel import Kernel, Mailbox
from outpace.messages import SCHEDULER, Block, Leave, Message, Pull, Push, Reply, worker_name
from outpace.programs.parameter_server import parameter_server
from outpace.real.bodies import Body
from outpace.real.clock import RealClock
from outpace.real.sockets import Listener
from outpace.real.translation import for_shard, reply_body
from outpace.real.turns import Turns
from outpace.recorder import Recorder
from outpace.strategy import most_unanswered, scheduler_shard
from outpace.trace import Rows
from outpace.units import Time, nanoseconds, seconds


class Scheduler:
    """The context of its program."""

    def __init__(
        self, experiment: Experiment, kernel: Kernel, clock: RealClock, listener: Listener,
        rows: Rows,
    ) -> None:  # fmt: skip
        self.recorder = Recorder(rows, lambda shard, version: None)
        self.shard = scheduler_shard(experiment, self.recorder)
        self._kernel, self._clock, self._listener = kernel, clock, listener
        self._mailbox = self._new_mailbox()
        self._turns = Turns(most_unanswered(experiment))
        self._numbers = {worker_name(worker): worker for worker in range(experiment.workers)}

    def start(self) -> None:
        self._kernel.spawn(parameter_server(self), f"the {SCHEDULER}", daemon=True)

    def stop(self) -> None:
        """Its program was ended: what still comes is kept from it."""
        self._mailbox = self._new_mailbox()

    def _new_mailbox(self) -> Mailbox[Message]:
        return Mailbox(self._kernel, f"the mailbox of the {SCHEDULER}")

    def take(self, peer: str, body: Body, block: Block | None) -> bool:
        """Take in what is for it; is it?"""
        messages = for_shard(body, block)
        for message in messages:
            if message.worker != self._numbers.get(peer):
                self._listener.refuse(peer, f"it speaks for worker {message.worker}")
            elif not self._turns.take(message):
                self._listener.refuse(peer, "it does not wait for the answer to its pull")
            else:
                self._mailbox.put(message)
        return bool(messages)

    def close(self) -> None:
        """The run has ended."""
        self.shard.close(self._clock.now)

    # -- the context -----------------------------------------------------------------

    @property
    def now(self) -> Time:
        return self._clock.now

    async def recv(self) -> Message:
        while True:
            message = await self._mailbox.get()
            if self._may_be_heard(message):
                return message

    async def recv_within(self, timeout_s: float) -> Message | None:
        self._kernel.catch_up()
        until = self.now + nanoseconds(timeout_s)
        while True:
            message = await self._mailbox.get_within(seconds(max(0, until - self.now)))
            if message is None or self._may_be_heard(message):
                return message

    def send(self, to: str, *messages: Message) -> None:
        for reply in messages:
            assert isinstance(reply, Reply)
            assert reply.parameters is not None
            self._turns.answered(reply.worker, reply.iteration)
            self.recorder.totals.messages += 1
            self._listener.send(to, reply_body(reply, reply.parameters), reply.parameters)

    def refuse(self, message: Message, error: ProtocolError) -> None:
        assert isinstance(message, Push | Pull | Leave)
        self._listener.refuse(worker_name(message.worker), str(error))

    def _may_be_heard(self, message: Message) -> bool:
        assert isinstance(message, Push | Pull | Leave)
        return not self._listener.refused(worker_name(message.worker))
