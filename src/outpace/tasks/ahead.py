"""A batch that is read before it is needed, while its worker waits for parameters."""

from __future__ import annotations

from collections.abc import Callable

from outpace.support import repeatable
from outpace.tasks.task import Pair


class BatchAhead:
    """Keeps one batch, and the state of the generators after it was read.

    What the model draws for a batch, such as dropout, comes after what reading it has drawn. So
    results are bitwise those of a batch that is read when it is needed.
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[int, int], Pair, repeatable.Generators] | None = None

    def prepare(self, key: tuple[int, int], read: Callable[[], Pair]) -> None:
        """Read the batch of a worker and iteration; no effect if reading raises.

        The batch is then read again when it is needed, and raises there.
        """
        self._kept = None
        try:
            batch = read()
        except (Exception, SystemExit):
            return
        self._kept = key, batch, repeatable.Generators.now()

    def take(self, key: tuple[int, int]) -> Pair | None:
        """Return the batch of a worker and iteration, with the generators as after reading it.

        None if it was not read ahead.
        """
        kept, self._kept = self._kept, None
        if kept is None or kept[0] != key:
            return None
        kept[2].restore()
        return kept[1]
