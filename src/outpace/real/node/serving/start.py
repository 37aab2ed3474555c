"""The first parameters of a server, and the optimizer that a script attached to them."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.blocks.block import Block, whole
from outpace.kernel import Future, Kernel
from outpace.real.net.messages import Initialize, Ready, ScriptOptimizer
from outpace.real.net.transport import Caller
from outpace.real.node.serving.optimizer import ServerOptimizer
from outpace.sync.messages import worker_name


@dataclass(frozen=True, slots=True)
class Start:
    """The parameters and the optimizer of the first shard.

    attached: the optimizer of a script; None: that of the configuration. has_state: its state
    follows (`ServerOptimizer.load_initial_state`).
    """

    parameters: Block
    attached: ScriptOptimizer | None
    has_state: bool = False


class Starting:
    """Finds what a server begins with.

    A run that goes on from a checkpoint begins like a new one, and only then restores its shards.
    """

    def __init__(
        self,
        kernel: Kernel,
        optimizer: ServerOptimizer,
        coordinator: Caller,
    ) -> None:
        self._optimizer, self._coordinator = optimizer, coordinator
        self._received = Future[tuple[Initialize, Block]](kernel, "worker-0's parameters")

    def take(self, peer: str, initialize: Initialize, block: Block) -> bool:
        """Take what worker 0 sends, once; False if it must not be sent now."""
        if peer != worker_name(0) or self._received.done:
            return False
        self._optimizer.set_groups(initialize.groups)
        self._received.set((initialize, whole(block)))
        return True

    async def with_workers(self) -> Start:
        """Return what worker 0 sends when it hears that this server is ready."""
        self._coordinator.send(Ready())
        initialize, parameters = await self._received
        attached: ScriptOptimizer | None = None
        if initialize.optimizer:
            attached = ScriptOptimizer(initialize.optimizer, initialize.settings, initialize.groups)
        return Start(parameters, attached, initialize.has_state)
