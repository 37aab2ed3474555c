"""The states of scripts from which they go on in virtual time when their processes are lost.

A script is noted when it begins an iteration: after a checkpoint, and as often as real runs send
what it keeps (`real.node.script.pace`). A new process begins with such a state and computes the
iterations since then again, as far as the servers have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from outpace.engine.resuming import kept_in
from outpace.engine.scripts.redividing import Redivided
from outpace.support.units import Time, nanoseconds

_EVERY: Final = nanoseconds(0.25)
_MOST: Final = 16  # states of a worker since the last checkpoint, while none is being taken


class Noted(NamedTuple):
    """The state of a script at the beginning of an iteration.

    kept: the file; None: the script begins anew. redivided: if it was noted with other workers.
    logged: how often the script had called `outpace.log`.
    computed: gradients that it had computed; None: not known.
    """

    iteration: int
    kept: Path | None
    redivided: Redivided | None = None
    logged: int = 0
    computed: int | None = None


class NotedStates:
    """The states of all scripts of a run.

    Args:
        first: of each worker, when the run begins.

    Attributes:
        anew: workers whose scripts keep nothing; their states are never used.
    """

    def __init__(self, first: Sequence[Noted]) -> None:
        self._folder = TemporaryDirectory(prefix="outpace-scripts-")
        self._of = [[each] for each in first]  # by worker, ascending by iteration
        self._next: list[Time] = [0] * len(first)  # when a script is noted again
        self._began: list[int | None] = [None] * len(first)  # iterations
        self._wanted: set[int] = set()  # workers that are noted at once, after a checkpoint
        self._numbers = 0
        self.anew: set[int] = set()

    def begins(self, worker: int, iteration: int, now: Time) -> Path | None:
        """A script begins an iteration; return the file for its state, if it is to be noted now.

        The iterations since a state are counted, so it is also noted after a gap.
        """
        before, self._began[worker] = self._began[worker], iteration
        is_next = before is not None and iteration == before + 1
        is_due = worker in self._wanted or not is_next or now >= self._next[worker]
        if worker in self.anew or not is_due:
            return None
        self._wanted.discard(worker)
        self._numbers += 1
        return Path(self._folder.name) / f"{self._numbers}.{kept_in(worker)}"

    def add(self, worker: int, noted: Noted, now: Time, *, may_drop: bool) -> None:
        """A script has written its state. may_drop: no checkpoint needs all those before."""
        self._next[worker] = now + _EVERY
        known = self._of[worker]
        known.append(noted)
        if may_drop:
            self._drop(known, 1, max(1, len(known) - _MOST))

    def newest(self, worker: int) -> Noted:
        """Return the newest state of a worker, with which another process begins."""
        self._began[worker] = None
        return self._of[worker][-1]

    def go_back(self, worker: int, first: int) -> Noted:
        """Return the newest state that is not past an iteration, and forget those after it."""
        known = self._of[worker]
        self._drop(known, 1 + _place(known, first), len(known))
        return self.newest(worker)

    def checkpoint(self, first: Sequence[int]) -> None:
        """A checkpoint is complete: no process will go back behind these iterations, by worker."""
        self._wanted.update(range(len(first)))
        for known, iteration in zip(self._of, first, strict=True):
            self._drop(known, 0, _place(known, iteration))

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _drop(self, known: list[Noted], begin: int, end: int) -> None:
        """Forget some states, and remove their files; those of a resumed run stay."""
        for each in known[begin:end]:
            if each.kept is not None and each.kept.parent == Path(self._folder.name):
                each.kept.unlink(missing_ok=True)
        del known[begin:end]


def _place(known: Sequence[Noted], first: int) -> int:
    """Return the place of the newest state that is not past an iteration."""
    return max(place for place, each in enumerate(known) if not place or each.iteration <= first)
