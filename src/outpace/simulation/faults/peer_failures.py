"""What fails in a run in virtual time without servers, and how it goes on.

An average that has begun ends, even if a worker dies: it takes much less time than computations do.
It stands still while a member is cut off from the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from outpace.errors import RunError
from outpace.simulation.faults.failing import Failures
from outpace.support.units import Time, nanoseconds
from outpace.sync.membership import BeginAgain, EndRun, Order


class PeerFailures(Failures):
    """The life of a run without servers and with failures.

    As in a real run all workers begin again from the last checkpoint after the loss of one; with
    `on_worker_loss: continue` all that are left.
    """

    _cuts_network = False  # averages that have begun end

    def write(self, part: int, size_bytes: int) -> Time:
        writing = nanoseconds(self._repairs.writing_s(size_bytes))
        for name in self._numbers:
            self._processes[name].stand_still(writing)
        return writing

    def _follow(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case BeginAgain(without=names):
                    for name in names:
                        self._run.network.obstacles.end_partition(name)  # nothing waits for its end
                    self._begin_all_again(order)
                case EndRun(reason):
                    raise RunError(reason)
