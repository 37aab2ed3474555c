"""The collectives of scripts in virtual time: when each begins, and how long it takes.

A collective begins when all workers have joined it and the collective before it has ended, as in a
process group. It takes the time that its messages need (`routes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from outpace.cluster.collective_rounds import Pattern
from outpace.kernel import Future, Kernel
from outpace.simulation.collective.routes import Route
from outpace.simulation.scripts.collectives.matching import Collective, Matching, Part
from outpace.simulation.scripts.messages import Joined
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.sync import AllReduce


class SimulatedCollectives:
    """The collectives of a run.

    Args:
        route: of the messages of collectives.
        ended: called when a worker has the result of a collective.
        all_reduce: how an all-reduce is made.

    Attributes:
        matching: finds out which calls belong together.
    """

    def __init__(
        self,
        kernel: Kernel,
        route: Route,
        workers: int,
        ended: Callable[[Part], None],
        all_reduce: AllReduce = "ring",
    ) -> None:
        self._kernel, self._route, self._all_reduce = kernel, route, all_reduce
        self._ended = ended
        self.matching = Matching(workers)
        self._complete: deque[Collective] = deque()  # all have joined, the first is under way
        # By worker and number of the call: parts whose result was not awaited yet.
        self._parts: dict[tuple[int, int], Part] = {}

    def join(self, worker: int, call: Joined, memory: CallMemory) -> None:
        """Let a worker join its next collective. Raises RunError: see `Matching.join`."""
        result = Future[None](self._kernel, str(call))
        part = self._parts[worker, call.number] = Part(
            worker, call, memory, result, self._kernel.now
        )
        found = self.matching.join(part)
        if found is None:
            if self.matching.is_in_vain(part):
                result.set(None)
            return
        for each in found.parts.values():
            each.all_joined = self._kernel.now
        self._complete.append(found)
        if len(self._complete) == 1:
            self._begin(found)

    def must_wait(self, worker: int, number: int) -> bool:
        """True if this worker has no result of its call yet."""
        return not self._parts[worker, number].result.done

    async def result(self, worker: int, number: int) -> Part | None:
        """Wait until this worker has the result of its call; None if the run ends before."""
        part = self._parts[worker, number]
        await part.result
        del self._parts[worker, number]
        return None if self.matching.is_in_vain(part) else part

    def end(self, worker: int) -> None:
        """Note that a worker joins no more collectives because the run ends, and wake the others.

        The others wait in collectives that this worker never joins.
        """
        self.matching.end(worker)
        for part in list(self._parts.values()):
            if not part.result.done and self.matching.is_in_vain(part):
                part.all_joined = self._kernel.now
                self._end(part)

    def _end(self, part: Part) -> None:
        """Note that a worker waits no longer for a result."""
        part.ended = self._kernel.now
        self._ended(part)
        part.result.set(None)

    def _begin(self, found: Collective) -> None:
        found.carry_out()
        missing = set(found.parts)

        def finished(worker: int) -> None:
            self._end(found.parts[worker])
            missing.discard(worker)
            if not missing:
                self._complete.popleft()
                if self._complete:
                    self._begin(self._complete[0])

        kind = found.first.kind
        pattern: Pattern = self._all_reduce if kind == "all_reduce" else kind
        self._route.begin(pattern, found.members, found.size_bytes, finished)
