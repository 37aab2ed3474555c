"""The context of a worker's program in the worker's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.real.node.served_worker.in_parts import compute_in_parts
from outpace.real.node.served_worker.inbox import Inbox
from outpace.real.node.served_worker.sending import Sending
from outpace.real.node.served_worker.stoppable import compute_until
from outpace.real.node.worker_process import WorkerProcess
from outpace.support.randomness import RandomStream
from outpace.support.units import Time
from outpace.sync.messages import Message
from outpace.sync.programs.context import SendPart, Stopped


class ProcessContext:
    """Lets a program send, receive and compute in a worker's process.

    Implements `AbortableContext`. Methods of other objects are bound once, because the program
    calls them for each message.

    Args:
        process: computes, with the trainer that it has, and records.
        servers: names of the servers with which the run begins.
        first_iteration: to begin with in the middle of a run.
        blocks: of these servers, with which the program begins.
        slices: of the flat parameters, for each of these blocks.
    """

    def __init__(
        self,
        process: WorkerProcess,
        inbox: Inbox,
        sending: Sending,
        experiment: Experiment,
        *,
        servers: Sequence[str],
        first_iteration: int | None,
        blocks: Sequence[Block],
        slices: Sequence[slice],
    ) -> None:
        self._process, self._clock, self._inbox = process, process.clock, inbox
        self.worker, self.servers, self.first_iteration = process.worker, servers, first_iteration
        self._blocks, self._slices = blocks, slices
        self._forward_share = experiment.forward_share
        self._coins = RandomStream(
            experiment.seed, "coin", process.worker, lambda source, n: source.random(n)
        )
        self.send = sending.send
        self.recv, self.recv_several = inbox.recv, inbox.recv_several
        self.recv_nowait, self.recv_within = inbox.recv_nowait, inbox.recv_within
        self.must_stop, self.execute = process.must_stop, process.execute
        self.iteration_finished = process.iteration_finished

    @property
    def now(self) -> Time:
        return monotonic_ns() - self._clock.origin  # as the process has it, without a call

    def initial_parameters(self) -> list[Block]:
        return list(self._blocks)

    def coin(self, iteration: int) -> float:
        return self._coins[iteration]

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        return await compute_until(self._process, self._inbox, parameters, iteration, ends_it)

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        await compute_in_parts(
            self._process, parameters, iteration, self._slices, self._forward_share, send
        )

    def prepare(self, iteration: int) -> None:
        if not self.must_stop(iteration):
            self._process.trainer.prepare(iteration)
