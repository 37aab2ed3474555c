"""Looks at a cluster again and again, in a thread of its own: a cluster may take long to answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from outpace.real.elastic.view import ClusterView

Look: TypeAlias = Callable[[], ClusterView]

_LAST_S: Final = 2.0  # for the last look to come back
_LONGEST: Final = 200  # characters of the reason of a failure


class Failure(NamedTuple):
    """Looks that have failed one after the other. times: how many. why: of the last one."""

    times: int
    why: str


class Looking:
    """Knows what was seen last.

    Args:
        look: looks once. May raise anything of the cluster's library; then nothing is known.

    Attributes:
        latest: what the last look has seen; None: it has failed, or there was none yet.
        failure: of the last look; None: it has not failed, or there was none yet.
    """

    def __init__(self, look: Look, every_s: float) -> None:
        self.latest: ClusterView | None = None
        self.failure: Failure | None = None
        self._look, self._every_s, self._over = look, every_s, threading.Event()
        self._thread = threading.Thread(target=self._keep, name="nodes", daemon=True)
        self._has_started = False

    def start(self) -> None:
        """Begin; no effect if it has begun."""
        if not self._has_started:
            self._has_started = True
            self._thread.start()

    def close(self) -> None:
        """Look no more; wait for the look that is under way, but not long."""
        self._over.set()
        if self._has_started:
            self._thread.join(_LAST_S)

    def _keep(self) -> None:
        while not self._over.is_set():
            try:
                self.latest, self.failure = self._look(), None
            except Exception as error:  # the cluster does not answer, or is being left
                times = 1 if self.failure is None else self.failure.times + 1
                self.latest, self.failure = None, Failure(times, _in_words(error))
            self._over.wait(self._every_s)


def _in_words(error: Exception) -> str:
    """Return what an error is, on one line: errors of Ray have several."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}{f': {lines[0]}' if lines else ''}"[:_LONGEST]
