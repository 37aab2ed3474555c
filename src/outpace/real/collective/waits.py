"""Says which workers wait in which collective of a script, for the error when one fails.

A worker that waits for more than a second writes into the store of the run which collective it
waits in.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import msgspec

from outpace.engine.distributed.call import Call

_LOOK_S: Final = 1.0
_ANSWERS_S: Final = 3.0  # for other workers to publish what they wait in


class Waiting(msgspec.Struct):
    """What a worker waits in."""

    number: int
    what: str


class Waits:
    """The collectives that this worker has begun and has not waited for.

    Args:
        store: of the run.
        prefix: of the keys in the store.
    """

    def __init__(self, store: Any, prefix: str, rank: int, size: int) -> None:
        self._store, self._prefix, self._rank, self._size = store, prefix, rank, size
        self._open: dict[int, Call] = {}
        self._published = -1
        self._closing = threading.Event()
        if size > 1:
            threading.Thread(target=self._look, name="waits", daemon=True).start()

    def begun(self, call: Call) -> None:
        """This worker has joined a collective."""
        self._open[call.number] = call

    def ended(self, call: Call) -> None:
        """It has ended."""
        self._open.pop(call.number, None)

    def close(self) -> None:
        """Publish nothing more."""
        self._closing.set()

    def _look(self) -> None:
        last = -1
        while not self._closing.wait(_LOOK_S):
            first = next(iter(self._open.copy().values()), None)
            if first is not None and first.number == last:
                self._publish(first)
            last = -1 if first is None else first.number

    def _publish(self, call: Call) -> None:
        if self._published == call.number:
            return
        self._published = call.number
        try:
            text = msgspec.json.encode(Waiting(call.number, str(call)))
            self._store.set(f"{self._prefix} {self._rank}", text)
        except RuntimeError:  # the run is over, and its store is closed
            self._closing.set()

    def others_than(self, call: Call) -> dict[int, Waiting]:
        """Return what the other workers wait in, by rank, after some seconds for them to say so.

        Workers that compute, or have ended, are missing.
        """
        self._publish(call)
        found: dict[int, Waiting] = {}
        until = time.monotonic() + _ANSWERS_S
        others = set(range(self._size)) - {self._rank}
        while time.monotonic() < until and not self._closing.is_set():
            try:
                for rank in others:
                    key = f"{self._prefix} {rank}"
                    if self._store.check([key]):
                        known = msgspec.json.decode(self._store.get(key), type=Waiting)
                        if known.number >= call.number:
                            found[rank] = known
            except RuntimeError:
                break
            if found.keys() == others:
                break
            time.sleep(0.1)
        return found

    def explained(
        self, call: Call, others: dict[int, Waiting], waited_s: float, error: Exception
    ) -> str:
        """Return the message about a collective that has failed.

        others: see `others_than`.
        """
        mine = f"worker-{self._rank}"
        elsewhere = [
            f"worker-{rank} waits in {known.what}"
            for rank, known in sorted(others.items())
            if known.number == call.number and known.what.split(" ")[0] != call.kind
        ]
        if elsewhere:
            return (
                f"{mine} waits in {call}, but {' and '.join(elsewhere)}: call the same "
                "collectives in the same order in all workers"
            )
        missing = [
            f"worker-{rank}"
            for rank in range(self._size)
            if rank != self._rank and rank not in others
        ]
        if missing:
            late = waited_s >= call.timeout_s
            how = f"within {call.timeout_s:g} s (the timeout of its group)" if late else ""
            return (
                f"{call}: {' and '.join(missing)} did not join it {how or 'and can no longer'}; "
                f"{mine} waited: call the collective in all workers, or give init_process_group a "
                "longer timeout"
            )
        return f"{call} failed in {mine}: {str(error).splitlines()[0]}"
