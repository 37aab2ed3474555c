"""Says which workers wait in which collective of a script, in warnings and errors.

A worker that waits for more than a second writes into the store of the run in which collective it
waits. After half a minute, it warns about the workers that have not joined. The time-out of the
group comes much later: after 30 minutes, unless the script sets one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from outpace.engine.distributed.call import REMEDY, Call, difference

_LOOK_S: Final = 1.0
_ANSWERS_S: Final = 3.0  # seconds for other workers to publish in what they wait
_ASK_S: Final = 0.05
_WARN_S: Final = 30.0  # seconds of waiting
_WAITS, _CALLED = "waits in", "called"  # data that a worker publishes


class PublishedCall(msgspec.Struct):
    """Data that a worker publishes about its call; see `Signature`."""

    number: int
    kind: str
    where: str
    words: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}"


class Waits:
    """The collectives that this worker has begun and has not waited for.

    Args:
        store: store of the run.
        prefix: prefix of the keys in the store.
    """

    def __init__(self, store: Any, prefix: str, rank: int, size: int) -> None:
        self._store, self._prefix, self._rank = store, prefix, rank
        self._others = [other for other in range(size) if other != rank]
        self._open: dict[int, Call] = {}
        self._published = -1
        self._closing = threading.Event()
        if self._others:
            threading.Thread(target=self._look, name="waits", daemon=True).start()

    def begun(self, call: Call) -> None:
        """Note that this worker has joined a collective."""
        self._open[call.number] = call

    def ended(self, call: Call) -> None:
        """Note that a collective has ended."""
        self._open.pop(call.number, None)

    def say_end(self) -> None:
        """Publish that this worker is at the end of the run."""
        with contextlib.suppress(RuntimeError):  # the store is closed: all have ended
            self._store.set(f"{self._prefix} end", b"")

    def has_another_ended(self) -> bool:
        """True if a worker has called `say_end`."""
        try:
            return bool(self._store.check([f"{self._prefix} end"]))
        except RuntimeError:
            return False

    def close(self) -> None:
        """Stop checking for long waits."""
        self._closing.set()

    def _look(self) -> None:
        last, since, warned = -1, time.monotonic(), -1
        while not self._closing.wait(_LOOK_S):
            first = next(iter(self._open.copy().values()), None)
            if first is None:
                last = -1
            elif first.number != last:
                last, since = first.number, time.monotonic()
            else:
                self.publish(first)
                waited_s = time.monotonic() - since
                if waited_s >= _WARN_S and warned != last:
                    warned = last
                    if text := self.warning(first, waited_s):
                        print(f"outpace: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def warning(self, call: Call, waited_s: float) -> str:
        """Return a warning about a long wait; empty if a worker of a lower rank warns."""
        try:
            others = self._published_by_others(call)
        except RuntimeError:  # the run is over
            return ""
        is_said = any(rank < self._rank for rank in others)
        where = "" if is_said else self._elsewhere(call, others)
        return where and f"worker-{self._rank} has waited {waited_s:.0f} s in {call}; {where}"

    def publish(self, call: Call) -> None:
        """Publish that this worker waits in a collective."""
        if self._published != call.number:
            self._published = call.number
            self._tell(_WAITS, call)

    def differing(self, call: Call) -> str:
        """Return the message about workers that have called different collectives.

        All workers whose calls differ call this; workers that do not call it within seconds count
        as missing.
        """
        self._tell(_CALLED, call)
        others = self._answers(lambda: self._told(_CALLED))
        calls = {rank: (told.words, told.where) for rank, told in others.items()}
        found = difference({self._rank: (call.words(), call.where), **calls})
        if not found:
            found = f"{call} is no collective of another worker, which has ended or cannot be asked"
        return f"a collective differs between workers: {found}: {REMEDY}"

    def _answers(self, ask: Callable[[], dict[int, PublishedCall]]) -> dict[int, PublishedCall]:
        """Return the texts of the other workers after some seconds, or once all have answered."""
        found: dict[int, PublishedCall] = {}
        until = time.monotonic() + _ANSWERS_S
        with contextlib.suppress(RuntimeError):  # the store is closed
            while time.monotonic() < until and not self._closing.is_set():
                found = ask()
                if len(found) == len(self._others):
                    break
                time.sleep(_ASK_S)
        return found

    def _published_by_others(self, call: Call) -> dict[int, PublishedCall]:
        """Return the data of workers that wait in this collective or in a later one."""
        told = self._told(_WAITS)
        return {rank: known for rank, known in told.items() if known.number >= call.number}

    def _tell(self, topic: str, call: Call) -> None:
        told = PublishedCall(call.number, call.kind, call.where, call.words())
        with contextlib.suppress(RuntimeError):  # the store is closed: the run is over
            self._store.set(f"{self._prefix} {topic} {self._rank}", msgspec.json.encode(told))

    def _told(self, topic: str) -> dict[int, PublishedCall]:
        """Return the data that the other workers have published, by rank."""
        keys = {rank: f"{self._prefix} {topic} {rank}" for rank in self._others}
        return {
            rank: msgspec.json.decode(self._store.get(key), type=PublishedCall)
            for rank, key in keys.items()
            if self._store.check([key])
        }

    def explained(self, call: Call, waited_s: float, error: Exception) -> str:
        """Return the message about a collective that has failed.

        The other workers have some seconds to publish in which collective they wait.
        """
        self.publish(call)
        where = self._elsewhere(call, self._answers(lambda: self._published_by_others(call)))
        found = f"{call} failed in worker-{self._rank} after {waited_s:.0f} s"
        if not where:
            return f"{found}: {str(error).splitlines()[0]}"
        return f"{found}; {where}: {REMEDY}, or give init_process_group a longer timeout"

    def _elsewhere(self, call: Call, others: Mapping[int, PublishedCall]) -> str:
        """Return text about workers that wait in another collective or in none, or empty text."""
        found = [
            f"worker-{rank} waits in {known}"
            for rank, known in sorted(others.items())
            if known.number == call.number and known.kind != call.kind
        ]
        found += [f"worker-{rank} did not join it" for rank in self._others if rank not in others]
        return " and ".join(found)
