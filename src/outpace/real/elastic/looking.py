"""Looks at a cluster again and again, in a thread of its own: a cluster may take long to answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from outpace.real.elastic.view import ClusterView

Look: TypeAlias = Callable[[], ClusterView]

_LAST_S: Final = 2.0  # for the last look to come back


class Looking:
    """Knows what was seen last.

    Args:
        look: looks once. May raise anything of the cluster's library; then nothing is known.

    Attributes:
        latest: what was seen last; None: nothing is known.
    """

    def __init__(self, look: Look, every_s: float) -> None:
        self.latest: ClusterView | None = None
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
                self.latest = self._look()
            except Exception:  # the cluster does not answer, or is being left
                self.latest = None
            self._over.wait(self._every_s)
