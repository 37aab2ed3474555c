"""The collectives of a script over Gloo, on machines whose clocks differ."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from outpace.engine.distributed.call import Bucket, Call
from outpace.real.collective.script_collectives import GlooCollectives
from outpace.real.coordinator.key_values import KeyValues
from outpace.real.node.script.follow import BackwardTimes

HOUR = 3600 * 10**9


class Store:
    """A store in memory that all workers share. Takes the place of `StoreConnection`."""

    def __init__(self) -> None:
        self._answers, self._lock = dict[str, Future](), threading.RLock()
        self._values = KeyValues(self._answer, lambda *_: None)

    def ask(self, timeout_s, make):
        with self._lock:
            number = len(self._answers)
            answer = self._answers[str(number)] = Future()
            self._values.take(str(number), make(number), None)
        return answer.result(timeout_s)

    def _answer(self, name, message, *_):
        self._answers[name].set_result(message)


class Observer:
    """Notes what it is told. Its run has lasted a minute, by the clock of its machine."""

    def __init__(self, late: int) -> None:
        self._begun, self._late = time.monotonic_ns(), late

    @property
    def now(self):
        return time.monotonic_ns() - self._begun + 60 * 10**9 + self._late

    def handing_over(self, call):
        pass

    def has_seen_end(self):
        return False

    def exchanged(self, computed, joined, arrived, over):
        self.joined = joined


def test_workers_agree_on_the_run_time_of_the_latest_bucket():
    store, lates = Store(), (0, 2 * HOUR)
    observers = [Observer(late) for late in lates]

    def exchange(rank: int) -> list[float]:
        collectives = GlooCollectives(store, "127.0.0.1", rank, 2, 60.0, follows=True)
        collectives.observer = observers[rank]
        value = torch.tensor([rank + 1.0])
        call = Call(0, "all_reduce", "a.py:1", (value,), (value,), bucket=Bucket(0, 1, 1, 1))
        collectives.finish([collectives.begin(call)])
        collectives.end()
        return value.tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(exchange, range(2))) == [[3.0], [3.0]]
    assert observers[0].joined == observers[1].joined
    assert 2 * HOUR + 60 * 10**9 <= observers[0].joined <= observers[1].now


def test_a_clock_that_is_hours_ahead_or_behind_delays_no_worker():
    for joined, began in ((2 * HOUR, 30), (-2 * HOUR, 10), (25, 25)):
        times = BackwardTimes(0, [0, 1], joined=10)
        times.arrived(computed=20, joined=joined, arrived=30, least=0)
        assert (times.computed, times.began, times.ended) == (20, began, 30)
    times.arrived(computed=20, joined=25, arrived=30, least=8)
    assert times.ended == 33, "the network of the configuration takes 8 ns"
