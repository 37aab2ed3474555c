"""The context of a server's program in a process of its own: it receives and sends messages."""

from __future__ import annotations

from time import monotonic_ns

from outpace.config.experiment import Experiment
from outpace.engine.servers import most_unanswered, pushes_in_a_row
from outpace.kernel import Kernel
from outpace.real.net.block_frames import announcing
from outpace.real.net.inbox import Inbox, Turns
from outpace.real.net.transport import Listener
from outpace.real.node.serving.part import ServerPart
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.record.totals import Totals
from outpace.support.units import Time
from outpace.sync.messages import Ack, Message, Reply


class ServedContext(Inbox):
    """A `ServerContext`: gives the program what has arrived, and sends its answers.

    Args:
        name: of the server.
        totals: counts what is sent.
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        experiment: Experiment,
        listener: Listener,
        part: ServerPart,
        times: ServiceTimes,
        totals: Totals,
    ) -> None:
        turns = Turns(most_unanswered(experiment), pushes_in_a_row(experiment))
        super().__init__(kernel, listener, name, turns)
        self._owed = turns
        self._part, self._times, self._totals = part, times, totals

    @property
    def now(self) -> Time:
        return monotonic_ns() - self._times.clock.origin  # as the clock has it, without a call

    @property
    def shard(self) -> TimedShard:
        return self._part.shard

    def send(self, to: str, *messages: Message) -> None:
        totals, times = self._totals, self._times
        for message in messages:
            totals.messages += 1
            if isinstance(message, Ack):
                self._listener.send(to, message)
                continue
            assert isinstance(message, Reply)
            assert message.parameters is not None
            block = message.parameters
            totals.bytes_sent += block.nbytes
            began = monotonic_ns()
            self._owed.answered(message.worker, message.iteration)
            self._listener.send(to, announcing(message, block), block)
            if times.open:
                times.answered(message.worker, message.iteration, block.nbytes, began)
