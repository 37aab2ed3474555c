"""The collectives of scripts outside of a run, where no virtual time passes.

Before a run begins, scripts may call collectives, for instance in constructors; the run begins when
all scripts are ready to train. Also, one script runs alone while the times of its steps are
measured.
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
    """Lets scripts run until they are ready to train, in place of a run.

    Other actions of scripts in this time have no effect on the run.

    Args:
        workers: number of workers.
        alone: True if only the script of worker 0 runs. The results of its collectives are computed
            as if all other workers gave the same tensors.
    """

    def __init__(self, workers: int, *, alone: bool) -> None:
        self.models = ScriptModels()
        self._kernel, self._workers, self._is_alone = Kernel(), workers, alone
        at_once = Formula(self._kernel, network_of(None, self._kernel))
        self._collectives = SimulatedCollectives(self._kernel, at_once, workers, lambda _: None)
        # parts, not awaited yet, of a script that runs alone, by number
        self._parts: dict[int, Part] = {}
        self._attached: dict[int, Attached] = {}  # by worker

    def close(self) -> None:
        """Stop waiting for scripts."""
        self._kernel.close()

    def follow(self, process: ScriptProcess) -> Attached | None:
        """Let a script run; return its attached model, or None if it waits for others."""
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
        """Return descriptions of the models that the followed scripts train.

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
            result = Future[None](self._kernel, str(call))  # the result is complete at once
            part = self._parts[call.number] = Part(worker, call, memory, result)
            carry_out_alone(part, self._workers)
        else:
            self._collectives.join(worker, call, memory)

    async def result(self, worker: int, number: int) -> Part | None:
        if self._is_alone:
            return self._parts.pop(number)
        return await self._collectives.result(worker, number)
