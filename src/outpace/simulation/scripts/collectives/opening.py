"""The collectives of scripts before the run begins, such as those of constructors.

They take no virtual time: the run begins when all scripts are ready to train.
"""

from __future__ import annotations

from collections.abc import Sequence

from outpace.errors import RunError
from outpace.simulation.scripts.collectives.matching import Matching, Part, carry_out_alone
from outpace.simulation.scripts.collectives.messages import Awaits, Joined
from outpace.simulation.scripts.collectives.point_to_point import KINDS, PointToPoint, carry_out
from outpace.simulation.scripts.messages import Attached
from outpace.simulation.scripts.process import ScriptProcess


class Opening:
    """Lets scripts run until they are ready to train.

    Args:
        workers: number of workers.
        alone: True if only the script of worker 0 runs.
    """

    def __init__(self, workers: int, *, alone: bool) -> None:
        self._workers, self._alone = workers, alone
        self._matching, self._messages = Matching(workers), PointToPoint()
        self._attached: dict[int, Attached] = {}  # by worker
        self._done: dict[tuple[int, int], Part] = {}  # by worker and number; not awaited yet
        self._waiting: dict[int, int] = {}  # number of the call that a worker waits for

    def follow(self, process: ScriptProcess) -> Attached | None:
        """Let a script run; return what it trains, or None if it waits for other workers."""
        worker = process.worker
        while worker not in self._attached and worker not in self._waiting:
            message = process.receive()
            if isinstance(message, Joined):
                self._join(Part(worker, message, process.memory))
            elif isinstance(message, Awaits):
                part = self._done.pop((worker, message.number), None)
                if part is None:
                    self._waiting[worker] = message.number
                else:
                    process.done(part)
            else:
                assert isinstance(message, Attached)
                self._attached[worker] = message
                process.buffers = message.buffers
        return self._attached.get(worker)

    def attached(self, processes: Sequence[ScriptProcess]) -> list[Attached]:
        """Let all scripts run until they are ready to train, and return what they train.

        Raises:
            RunError: if scripts wait in a collective that other scripts do not join.
        """
        while len(self._attached) < len(processes):
            for process in processes:
                self.follow(process)
            if not self._release(processes) and len(self._attached) < len(processes):
                waiting = "; ".join([*self._matching.waiting(), *self._messages.waiting()])
                raise RunError(
                    f"{waiting}, but began to train: all workers must call the same collectives "
                    "before their training"
                )
        return [self._attached[process.worker] for process in processes]

    def _join(self, part: Part) -> None:
        if self._alone:
            carry_out_alone(part, self._workers)
            parts = [part]
        elif part.call.kind in KINDS:
            pair = self._messages.join(part)
            if pair is None:
                return
            carry_out(*pair)
            parts = list(pair)
        elif (complete := self._matching.join(part)) is not None:
            complete.carry_out()
            parts = list(complete.parts.values())
        else:
            return
        for each in parts:
            self._done[each.worker, each.call.number] = each

    def _release(self, processes: Sequence[ScriptProcess]) -> int:
        """Let the scripts whose collectives are done continue; return how many they are."""
        released = 0
        for worker, number in list(self._waiting.items()):
            part = self._done.pop((worker, number), None)
            if part is not None:
                del self._waiting[worker]
                processes[worker].done(part)
                released += 1
        return released
