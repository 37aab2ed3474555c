"""All-reduces in virtual time: which workers wait for which, and the results.

An all-reduce begins when all workers that have not left have joined it; each worker has the result
when its messages have arrived (`routes`). The sum is computed in the order of workers, when its
value is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.blocks.block import Block, value_of
from outpace.blocks.sums import BlockSum
from outpace.engine.peers import PendingReduction
from outpace.kernel import Future, Kernel
from outpace.simulation.collective.precision import RoundedSum, bytes_on_the_wire
from outpace.simulation.collective.routes import Route
from outpace.sync import AllReduce, Wire
from outpace.sync.peers.context import Reduced


class SimulatedAllReduces:
    """The all-reduces of a run: the n-th all-reduce of a worker is the n-th of all workers.

    `new_sum` makes an empty sum; `ended` is called when a worker has its result. The last `exact`
    elements of a value are not rounded. `first` is the number of the first all-reduce.
    """

    def __init__(
        self,
        kernel: Kernel,
        route: Route,
        pattern: AllReduce,
        wire: Wire,
        workers: int,
        new_sum: Callable[[], BlockSum],
        ended: Callable[[SimulatedReduction], None],
        exact: int = 0,
        first: int = 0,
    ) -> None:
        self._kernel, self._route, self._pattern = kernel, route, pattern
        self._wire: Wire = wire
        self._new_sum = new_sum if wire == "full" else lambda: RoundedSum(new_sum(), exact)
        self._ended = ended
        self.live = set(range(workers))  # workers that have not left
        self._joined = [first] * workers  # number of all-reduces, by worker
        self._joining: dict[int, _AllReduce] = {}  # all-reduces that have not begun, by number
        self.ended = first  # number of all-reduces whose result a worker has

    def join(self, worker: int, value: Block | None, weight: int) -> SimulatedReduction:
        """Let a worker join its next all-reduce; return its part.

        value: None: the worker has no value.
        """
        number = self._joined[worker]
        self._joined[worker] += 1
        whole = self._joining.get(number)
        if whole is None:
            whole = self._joining[number] = _AllReduce(number, self._new_sum)
        nbytes = 0 if value is None else bytes_on_the_wire(value, self._wire)
        arrived = Future[None](self._kernel, f"the result of all-reduce {number}")
        part = whole.parts[worker] = SimulatedReduction(
            self._kernel.now, arrived, number, value, weight, worker, nbytes, self._kernel, whole
        )
        self._begin_if_complete(whole)
        return part

    def leave(self, worker: int) -> None:
        """Do not wait for this worker any more."""
        self.live.discard(worker)
        for whole in list(self._joining.values()):
            self._begin_if_complete(whole)

    def _begin_if_complete(self, whole: _AllReduce) -> None:
        if not self.live <= whole.parts.keys():
            return
        del self._joining[whole.number]
        parts = dict(sorted(whole.parts.items()))
        for part in parts.values():
            part.began, part.members = self._kernel.now, list(parts)
        size_bytes = max(part.nbytes for part in parts.values())

        def finished(worker: int) -> None:
            parts[worker].end(self._kernel.now)
            self.ended = max(self.ended, whole.number + 1)
            self._ended(parts[worker])

        self._route.begin(self._pattern, list(parts), size_bytes, finished)


class _AllReduce:
    """An all-reduce. parts: the part of each worker, by its number."""

    def __init__(self, number: int, new_sum: Callable[[], BlockSum]) -> None:
        self.number, self._new_sum = number, new_sum
        self.parts: dict[int, SimulatedReduction] = {}
        self._reduced: Reduced | None = None

    def reduced(self) -> Reduced:
        """Return the result, computed once. Raises the errors of computing a gradient."""
        if self._reduced is None:
            total = self._new_sum()
            weight = 0
            for worker, part in sorted(self.parts.items()):
                value, part.value = part.value, None
                if value is not None:
                    total.add(worker, value_of(value))
                    weight += part.weight
            self._reduced = Reduced(total, weight)
        return self._reduced


@dataclass(slots=True, eq=False)
class SimulatedReduction(PendingReduction):
    """One worker's part in an all-reduce. Implements `Reduction`."""

    worker: int
    nbytes: int
    _kernel: Kernel
    _whole: _AllReduce

    @property
    def done(self) -> bool:
        # An all-reduce of zero duration counts as done only after all events at its start time, so
        # the order of simultaneous events cannot matter.
        return self.arrived.done and self._kernel.now > self.began

    async def result(self) -> Reduced:
        await self.arrived
        return self._whole.reduced()
