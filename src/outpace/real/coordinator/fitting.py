"""Fits a run-time model during a run, in a separate process with low priority."""

from __future__ import annotations

import contextlib
import os
import pickle
from multiprocessing.connection import Connection
from typing import Final

from outpace.errors import ConfigError, RunError
from outpace.predict.interface import Model
from outpace.predict.recorded import RunTimes
from outpace.support.processes.forking import Child

_NICE: Final = 10


class BackgroundFitting:
    """Runs each fit in a process, which ends with the fit or by `close`."""

    def __init__(self, kind: str, seed: int, ordered: bool | None = None) -> None:
        self.model: Model | None = None
        self._kind, self._seed, self._ordered = kind, seed, ordered
        self._child: Child | None = None

    def start(self, history: RunTimes) -> None:
        given = pickle.dumps((history, self.model))
        self._child = Child("fit", _fit, self._kind, given, self._seed, self._ordered)

    def done(self) -> bool:
        assert self._child is not None, "no fit was started"
        if not self._child.pipe.poll():
            return False
        try:
            found = pickle.loads(self._child.pipe.recv_bytes())  # a message of our own process
        except EOFError:
            raise RunError(
                f"the process that fitted the {self._kind} model ended before it was done"
            ) from None
        finally:
            self.close()
        if isinstance(found, str):
            raise ConfigError(found)
        self.model = found
        return True

    def close(self) -> None:
        """End a running fit. Idempotent."""
        if self._child is not None:
            self._child.end()
            self._child.close()
            self._child = None


def _fit(answer: Connection, kind: str, given: bytes, seed: int, ordered: bool | None) -> None:
    from outpace.predict.models import fit

    with contextlib.suppress(OSError):
        os.nice(_NICE)
    found: Model | str
    try:
        history, earlier = pickle.loads(given)
        found = fit(kind, [history], seed=seed, earlier=earlier, ordered=ordered)
    except ConfigError as error:
        found = str(error)
    answer.send_bytes(pickle.dumps(found))
