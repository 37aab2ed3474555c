"""The collectives of scripts in virtual time: when each begins, and how long it takes.

The n-th calls of all workers are one collective, as in torch.distributed. It begins when all
workers have joined it and the previous collective has ended, as in a process group. It takes the
time of its messages (`routes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from outpace.cluster.collective_rounds import Pattern
from outpace.errors import RunError
from outpace.kernel import Future, Kernel
from outpace.simulation.collective.routes import Route
from outpace.simulation.scripts.collectives.matching import Collective, Part
from outpace.simulation.scripts.messages import Joined
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.sync import AllReduce


class SimulatedCollectives:
    """The collectives of a run.

    Args:
        route: route of the messages of collectives.
        ended: called when a worker has the result of a collective.
        all_reduce: how an all-reduce is carried out.
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
        self._workers = workers
        self._count = [0] * workers  # collectives that each worker has joined
        self._open: dict[int, Collective] = {}  # by number: not all workers have joined them
        self._left: set[int] = set()
        self._at_end: set[int] = set()  # workers that join no more because the run ends
        # collectives that all have joined; the first one is running
        self._complete: deque[Collective] = deque()
        # Parts whose result was not awaited yet, by worker and number of the call.
        self._parts: dict[tuple[int, int], Part] = {}

    def join(self, worker: int, call: Joined, memory: CallMemory) -> None:
        """Let a worker join its next collective.

        Raises:
            RunError: another worker has called another collective, or has left.
        """
        result = Future[None](self._kernel, str(call))
        part = self._parts[worker, call.number] = Part(
            worker, call, memory, result, self._kernel.now, self._count[worker]
        )
        self._count[worker] += 1
        if part.number not in self._open:
            self._open[part.number] = Collective(part.number, range(self._workers))
        found = self._open[part.number]
        found.add(part)
        if found.missing:
            self._require_present(found)
            if self._is_in_vain(part):
                result.set(None)
            return
        del self._open[part.number]
        for each in found.parts.values():
            each.all_joined = self._kernel.now
        self._complete.append(found)
        if len(self._complete) == 1:
            self._begin(found)

    def leave(self, worker: int) -> None:
        """Note that a worker makes no more calls. Raises RunError if another one waits for it."""
        self._left.add(worker)
        for found in self._open.values():
            self._require_present(found)

    def _require_present(self, found: Collective) -> None:
        if missing := sorted(self._left & found.missing):
            raise RunError(found.without(missing))

    def _is_in_vain(self, part: Part) -> bool:
        """True if this call waits for a worker that has come to the end of the run."""
        return any(
            found.missing & self._at_end
            for found in self._open.values()
            if found.parts.get(part.worker) is part
        )

    def waiting(self) -> list[str]:
        """Describe the calls that wait for other workers."""
        return [str(found) for found in self._open.values()]

    def must_wait(self, worker: int, number: int) -> bool:
        """True if this worker has no result of this call yet."""
        return not self._parts[worker, number].result.done

    async def result(self, worker: int, number: int) -> Part | None:
        """Wait until this worker has the result of its call; None if the run ends before."""
        part = self._parts[worker, number]
        await part.result
        del self._parts[worker, number]
        return None if self._is_in_vain(part) else part

    def end(self, worker: int) -> None:
        """Note that a worker joins no more collectives because the run ends, and wake the others.

        The others wait in collectives that this worker never joins.
        """
        self._at_end.add(worker)
        for part in list(self._parts.values()):
            if not part.result.done and self._is_in_vain(part):
                part.all_joined = self._kernel.now
                self._end(part)

    def _end(self, part: Part) -> None:
        """Note that a worker does not wait for a result any more."""
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
