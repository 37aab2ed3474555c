"""The collectives of scripts outside of a run, where no virtual time passes.

Before a run begins scripts may call collectives, for instance in constructors: the run begins when
all scripts are ready to train. And one script runs alone while the times of its steps are measured.
"""

from __future__ import annotations

from outpace.errors import RunError
from outpace.kernel import DeadlockError, Future, Kernel, WalkerError
from outpace.simulation.collective.routes import Formula
from outpace.simulation.network import network_of
from outpace.simulation.scripts.collectives.matching import Part, carry_out_alone
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.host import Host, ScriptModels
from outpace.simulation.scripts.messages import Attached, Joined
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.sync.messages import worker_name


class Opening(Host):
    """Lets scripts run until they are ready to train; takes the place of a run.

    What else scripts do then has no effect on the run.

    Args:
        workers: number of workers.
        alone: True if only the script of worker 0 runs. Its collectives have the results that they
            would have if all others gave the same tensors.
    """

    def __init__(self, workers: int, *, alone: bool) -> None:
        self.models = ScriptModels()
        self._kernel, self._workers, self._is_alone = Kernel(), workers, alone
        at_once = Formula(self._kernel, network_of(None, self._kernel))
        self._collectives = SimulatedCollectives(self._kernel, at_once, workers, lambda _: None)
        self._parts: dict[int, Part] = {}  # of a script that runs alone: not awaited yet, by number
        self._attached: dict[int, Attached] = {}  # by worker

    def close(self) -> None:
        """Wait for no script any more."""
        self._kernel.close()

    def follow(self, process: ScriptProcess) -> Attached | None:
        """Let a script run; return what it trains, or None if it waits for other workers."""
        process.host = self
        self._kernel.spawn(self._attach(process), worker_name(process.worker))
        try:
            self._kernel.run()
        except WalkerError as error:
            raise error.error from None
        except DeadlockError:
            pass
        return self._attached.get(process.worker)

    async def _attach(self, process: ScriptProcess) -> None:
        message = await process.next_of_step()
        assert isinstance(message, Attached)
        self._attached[process.worker] = message
        process.buffers = message.buffers

    def attached(self) -> list[Attached]:
        """Return what the scripts train that have been followed.

        Raises:
            RunError: if scripts wait in a collective that other scripts do not join.
        """
        if waiting := self._collectives.waiting():
            raise RunError(
                f"{'; '.join(waiting)}, but began to train: all workers must call the same "
                "collectives before their training"
            )
        return [attached for _, attached in sorted(self._attached.items())]

    # -- what scripts do -----------------------------------------------------------------

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        if self._is_alone:
            result = Future[None](self._kernel, str(call))  # there at once
            part = self._parts[call.number] = Part(worker, call, memory, result)
            carry_out_alone(part, self._workers)
        else:
            self._collectives.join(worker, call, memory)

    async def result(self, worker: int, number: int) -> Part | None:
        if self._is_alone:
            return self._parts.pop(number)
        return await self._collectives.result(worker, number)
