"""Scripts in virtual time whose workers and servers stand still or are slow.

The processes of scripts cannot be started again: a process that counts as lost ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from outpace.blocks.block import Block
from outpace.engine.servers import AbortableProgram
from outpace.errors import RunError
from outpace.simulation.faults.processes import Process, awake_after, computed
from outpace.simulation.faults.run import FailingSimulation
from outpace.simulation.scripts.nodes import ScriptWorkerNode
from outpace.simulation.scripts.with_servers import ScriptSimulation
from outpace.simulation.virtual import VirtualRun
from outpace.support.units import nanoseconds, seconds
from outpace.sync.messages import Message
from outpace.sync.programs.context import Stopped


class FailingScriptSimulation(FailingSimulation, ScriptSimulation):
    """A run of a script with servers and failures. Implements `Engine`."""

    async def _live(
        self, train: AbortableProgram, worker: int, servers: Sequence[str], process: Process
    ) -> None:
        node = FailingScript(self, worker, servers, self._first[worker], process)
        await self._run_script(train, node)
        self._has_finished(worker, process)

    def _lose_process(self, process: Process, how: str) -> None:
        raise RunError(
            f"{process.name} {how} and counts as lost, and the processes of scripts cannot be "
            "started again in virtual time yet: choose failures that are further apart"
        )


class FailingScript(ScriptWorkerNode):
    """The context of a script's worker, whose process may stand still or be slow."""

    def __init__(
        self,
        run: VirtualRun,
        worker: int,
        servers: Sequence[str],
        first: int | None,
        life: Process,
    ) -> None:
        super().__init__(run, worker, servers, first)
        self._life = life
        self.recv = partial(awake_after, life, self.mailbox.get)
        self.recv_within = partial(awake_after, life, self.mailbox.get_within)

    def _duration_s(self, iteration: int) -> float:
        return self._life.stretched(super()._duration_s(iteration))

    async def _spend(self, duration_s: float) -> None:
        await computed(self._kernel, self._life, nanoseconds(duration_s))

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        await self._life.awake()
        return await super().execute(parameters, iteration)

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        kernel, life = self._kernel, self._life
        await life.awake()
        begun = await self._begin(parameters, iteration)
        started, stood = kernel.now, life.stood
        duration = nanoseconds(self._duration_s(iteration))
        if not begun.abortable:
            await computed(kernel, life, duration)
            return await self._end()
        while (left := started + duration + life.stood - stood - kernel.now) >= 0:
            message = await self.mailbox.get_within(seconds(left))
            await life.awake()
            if message is not None and ends_it(message):
                return self._stopped(kernel.now - started - (life.stood - stood), duration)
            if message is None and left == 0:
                break
        return await self._end()
