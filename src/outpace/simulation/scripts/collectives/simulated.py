"""The collectives of scripts in virtual time: when each begins, and how long it takes.

A collective begins when all workers have joined it and the collective before it has ended, as in a
process group. It takes the time that its messages need (`routes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from outpace.cluster.collectives import Pattern
from outpace.kernel import Future, Kernel
from outpace.simulation.collective.routes import Route
from outpace.simulation.scripts.collectives.matching import Collective, Matching, Part
from outpace.simulation.scripts.collectives.memory import CallMemory
from outpace.simulation.scripts.collectives.messages import Joined
from outpace.simulation.scripts.collectives.point_to_point import (
    KINDS,
    PointToPoint,
    carry_out,
    size_bytes,
)
from outpace.sync import AllReduce


class SimulatedCollectives:
    """The collectives of a run.

    Args:
        route: of the messages of collectives.
        direct: of the messages between two workers.
        all_reduce: how an all-reduce is made.
        ended: called when a worker has the result of a collective.
    """

    def __init__(
        self,
        kernel: Kernel,
        route: Route,
        direct: Route,
        all_reduce: AllReduce,
        workers: int,
        ended: Callable[[Part], None],
    ) -> None:
        self._kernel, self._route, self._all_reduce = kernel, route, all_reduce
        self._direct, self._messages = direct, PointToPoint()
        self._matching, self._ended = Matching(workers), ended
        self._complete: deque[Collective] = deque()  # all have joined, the first is under way
        # By worker and number of the call: parts whose result was not awaited yet.
        self._parts: dict[tuple[int, int], tuple[Part, Future[None]]] = {}

    def join(self, worker: int, call: Joined, memory: CallMemory) -> None:
        """Let a worker join its next collective. Raises RunError: see `Matching.join`."""
        part = Part(worker, call, memory, self._kernel.now)
        result: Future[None] = Future(self._kernel, str(call))
        self._parts[worker, call.number] = part, result
        if call.kind in KINDS:
            self._join_message(part)
            if self._messages.is_in_vain(part):
                result.set(None)
            return
        complete = self._matching.join(part)
        if complete is not None:
            for part in complete.parts.values():
                part.all_joined = self._kernel.now
            self._complete.append(complete)
            if len(self._complete) == 1:
                self._begin()
        elif self._matching.is_in_vain(part):
            result.set(None)

    def must_wait(self, worker: int, number: int) -> bool:
        """True if this worker has no result of its call yet."""
        return not self._parts[worker, number][1].done

    async def result(self, worker: int, number: int) -> Part | None:
        """Wait until this worker has the result of its call; None if the run ends before."""
        part, result = self._parts[worker, number]
        await result
        del self._parts[worker, number]
        is_message = part.call.kind in KINDS
        found = self._messages if is_message else self._matching
        return None if found.is_in_vain(part) else part

    def leave(self, worker: int) -> None:
        """Note that a worker joins no more collectives. Raises RunError: see `Matching.leave`."""
        self._matching.leave(worker)
        self._messages.leave(worker)

    def end(self, worker: int) -> None:
        """Note that a worker joins no more collectives because the run ends, and wake the others.

        The others wait in collectives that this worker never joins.
        """
        for part in (*self._matching.end(worker), *self._messages.end(worker)):
            result = self._parts[part.worker, part.call.number][1]
            if not result.done:
                part.all_joined = part.ended = self._kernel.now
                self._ended(part)
                result.set(None)

    def waiting(self) -> list[str]:
        """Describe the collectives that not all workers have joined."""
        return [*self._matching.waiting(), *self._messages.waiting()]

    def _join_message(self, part: Part) -> None:
        """Let a worker send or receive; begin the message if its other side is there."""
        pair = self._messages.join(part)
        if pair is None:
            return
        carry_out(*pair)
        parts = {each.worker: each for each in pair}
        for each in pair:
            each.all_joined = self._kernel.now

        def finished(worker: int) -> None:
            self._finish(parts[worker])

        self._direct.begin("message", list(parts), size_bytes(pair[0]), finished)

    def _finish(self, part: Part) -> None:
        """Give a worker its result."""
        part.ended = self._kernel.now
        self._ended(part)
        self._parts[part.worker, part.call.number][1].set(None)

    def _begin(self) -> None:
        collective = self._complete[0]
        collective.carry_out()
        parts, missing = collective.parts, set(collective.parts)

        def finished(worker: int) -> None:
            self._finish(parts[worker])
            missing.discard(worker)
            if not missing:
                self._complete.popleft()
                if self._complete:
                    self._begin()

        members = sorted(parts)
        root = collective.first.root
        if root >= 0:
            members = [*members[root:], *members[:root]]
        self._route.begin(self._pattern(collective), members, collective.size_bytes, finished)

    def _pattern(self, collective: Collective) -> Pattern:
        kind = collective.first.kind
        if kind == "all_reduce":
            return self._all_reduce
        return cast("Pattern", kind.replace("_", "-"))
