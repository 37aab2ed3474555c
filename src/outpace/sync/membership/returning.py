"""The servers of a run that are lost and come back alone, while the workers go on. Without any IO.

Such a server is *down* until its new process runs, with the state of the last checkpoint. It then
*returns*: it is told of every worker. After that the workers connect to it; until each of them has
rejoined, it is not known which of their updates the server lacks.
"""

from __future__ import annotations

from collections.abc import Mapping

from outpace.support.units import Time, nanoseconds


class Returning:
    """The servers that are not as they were.

    Args:
        start_s: seconds for the new process of a server to be ready, from the loss on, or from the
            last piece of the checkpoint that it has been sent.
        told_s: seconds for it to know of all workers then.
    """

    def __init__(self, start_s: float, told_s: float) -> None:
        self.down: set[str] = set()
        self.told: set[str] = set()  # servers that are being told of every worker
        # By server, and by worker that has not rejoined it: the last iteration that the server has.
        self._has: dict[str, dict[int, int]] = {}
        self._start, self._told = nanoseconds(start_s), nanoseconds(told_s)
        self._deadlines: dict[str, Time] = {}

    @property
    def is_over(self) -> bool:
        """True if all servers are there, and the workers go on with all of them."""
        return not (self.down or self.told or self._has)

    @property
    def latest(self) -> Time:
        """By when all servers must be back and told; 0 if they are."""
        extra = self._told if self.down else 0
        return max(self._deadlines.values(), default=0) + extra

    @property
    def next_deadline(self) -> Time | None:
        return min(self._deadlines.values(), default=None)

    def lost(self, server: str, now: Time) -> None:
        self.told.discard(server)
        self._has.pop(server, None)
        self.down.add(server)
        self._deadlines[server] = now + self._start

    def fetches(self, server: str, now: Time) -> None:
        """The new process of a server has been sent a piece of its checkpoint.

        It need not be ready sooner than it needs to be without the checkpoint.
        """
        if server in self.down:
            self._deadlines[server] = now + self._start

    def back(self, server: str, now: Time) -> None:
        self.down.remove(server)
        self.told.add(server)
        self._deadlines[server] = now + self._told

    def reconnects(self, server: str, has: Mapping[int, int]) -> None:
        """The workers are about to connect.

        has: the last iteration of each worker that the server has.
        """
        self.told.remove(server)
        del self._deadlines[server]
        if has:
            self._has[server] = dict(has)

    def awaits_again(self, server: str, worker: int, last: int) -> None:
        """The worker's process is lost: await the next one. last: iteration that the server has."""
        self._has.setdefault(server, {})[worker] = last

    def awaits(self, worker: int) -> list[str]:
        """Return the servers that a worker has not rejoined yet, ascending."""
        return sorted(server for server, has in self._has.items() if worker in has)

    def rejoined(self, server: str, worker: int) -> int | None:
        """Await a worker no more; return the last iteration of it that the server has.

        None: it was not awaited.
        """
        has = self._has.get(server, {})
        last = has.pop(worker, None)
        if not has:
            self._has.pop(server, None)
        return last

    def too_late(self, now: Time) -> str | None:
        """Return what did not happen in time, in words; None if nothing is overdue."""
        for server, deadline in self._deadlines.items():
            if deadline <= now:
                if server in self.down:
                    limit = self._start // nanoseconds(1)
                    what = f"the process that takes its place was not ready within {limit} s"
                else:
                    limit = self._told // nanoseconds(1)
                    what = f"its new process did not take up the workers within {limit} s"
                return f"{server} was lost, and {what}"
        return None
