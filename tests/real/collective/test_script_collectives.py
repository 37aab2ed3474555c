"""The collectives of a script over Gloo, on machines whose clocks differ."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from outpace.engine.distributed.call import Bucket, Call
from outpace.errors import RunError
from outpace.real.collective import script_collectives
from outpace.real.collective.script_collectives import BackendCollectives
from outpace.real.coordinator.hosted_store import KeyValues
from outpace.real.net.peer_messages import AskStore

c10d: Any = torch.distributed.distributed_c10d  # type: ignore[attr-defined]
HOUR = 3600 * 10**9


class Store:
    """A store in memory that all workers share. Takes the place of `StoreConnection`."""

    def __init__(self) -> None:
        self._values, self._lock = KeyValues(), threading.RLock()

    def ask(self, limit_s, operation, keys, value=b"", amount=0):
        with self._lock:
            return self._values.answer(AskStore(0, operation, list(keys), value, amount))


class Observer:
    """Notes its calls. Its run has lasted a minute by the clock of its machine."""

    def __init__(self, late: int) -> None:
        self._begun, self._late = time.monotonic_ns(), late

    @property
    def now(self):
        return time.monotonic_ns() - self._begun + 60 * 10**9 + self._late

    def begins(self, call):
        pass

    def has_seen_end(self):
        return False

    def exchanged(self, computed, joined, arrived):
        self.joined = joined


def call(kind: str, value: torch.Tensor, rank: int, **more) -> Call:
    """Return a collective of this value; its call is in line `rank` of a.py."""
    start = {
        "all_reduce": methodcaller("allreduce", [value], c10d.AllreduceOptions()),
        "barrier": methodcaller("barrier", c10d.BarrierOptions()),
    }[kind]
    given = (value,) if kind == "all_reduce" else ()
    return Call(
        number=0,
        kind=kind,
        where=f"a.py:{rank}",
        dtype=value.dtype,
        parts=tuple(tensor.numel() for tensor in given),
        elements=sum(tensor.numel() for tensor in given),
        start=start,
        inputs=given,
        outputs=given,
        **more,
    )


REDUCE = "all_reduce sum of 3 elements float32"


@pytest.mark.parametrize(
    ("calls", "second", "waits"),
    [
        ([("all_reduce", 3), ("barrier", 0)], "barrier", True),
        (
            [("all_reduce", 3), ("all_reduce", 100_000)],
            "all_reduce sum of 100,000 elements float32",
            True,
        ),
        (
            [("all_reduce", 3), ("all_reduce", 3, torch.float64)],
            "all_reduce sum of 3 elements float64",
            True,
        ),
        ([("all_reduce", 3), ("barrier", 0)], "barrier", False),
    ],
)
def test_calls_that_differ_are_named_with_both_lines(calls, second, waits):
    """Gloo alone would wait until the time-out, or end the process."""
    store = Store()
    limit_s = 60.0 if waits else 1.0  # a call that has begun is pending until its time-out

    def join(rank: int) -> str:
        collectives = BackendCollectives(store, "127.0.0.1", rank, 2, limit_s)
        kind, size, *dtype = calls[rank]
        value = torch.ones(size, dtype=dtype[0] if dtype else None)
        with pytest.raises(RunError) as caught:
            collectives.begin(call(kind, value, rank, waits=waits, timeout_s=limit_s)).wait()
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(join, range(2))
    assert first == other
    assert first.startswith(
        f"a collective differs between workers: worker-0 called {REDUCE} at a.py:0, but worker-1 "
        f"called {second} at a.py:1: call the same collectives in the same order"
    )


@pytest.mark.parametrize(
    ("backend", "gpus", "expected"),
    [
        ("nccl", ["a", "b"], "nccl"),
        (None, ["a", "b"], "nccl"),
        ("cpu:gloo,cuda:nccl", ["a", "b"], "nccl"),
        ("nccl", ["a", "a"], "gloo"),
        ("gloo", ["a", "b"], "gloo"),
    ],
)
def test_tensors_on_gpus_go_through_nccl_if_no_workers_share_one(
    backend, gpus, expected, monkeypatch
):
    """There is no GPU here: only the choice is tested."""

    class OnGpu:
        def __init__(self, rank):
            self.device = SimpleNamespace(type="cuda", rank=rank)

    class Nccl:
        class Options:
            pass

        def __init__(self, store, rank, size, options):
            self.place, self.timeout = (rank, size), options._timeout

    monkeypatch.setattr(script_collectives, "gpu_of", lambda device: gpus[device.rank])
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", Nccl, raising=False)
    store, both = Store(), threading.Barrier(2)

    def join(rank: int) -> str:
        collectives = BackendCollectives(store, "127.0.0.1", rank, 2, 10.0, backend)
        found = [collectives._group_for([OnGpu(rank)]) for _ in range(2)]
        assert found[0] is found[1]
        on_cpu = collectives._group_for([torch.ones(1)])
        both.wait()  # the first one that ends would cut off the other's connection
        collectives.end()
        if isinstance(found[0], Nccl):
            assert (found[0].place, found[0].timeout.total_seconds()) == ((rank, 2), 10)
            return "nccl"
        assert found[0] is on_cpu
        return "gloo"

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(join, range(2))) == [expected] * 2


def test_workers_agree_on_the_run_time_of_the_latest_bucket():
    store, lates = Store(), (0, 2 * HOUR)
    observers = [Observer(late) for late in lates]

    def exchange(rank: int) -> list[float]:
        collectives = BackendCollectives(store, "127.0.0.1", rank, 2, 60.0, follows=True)
        collectives.observer = observers[rank]
        value = torch.tensor([rank + 1.0])
        mine = call("all_reduce", value, rank, bucket=Bucket(0, 1, 1, 1))
        collectives.finish([collectives.begin(mine)])
        collectives.end()
        return value.tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(exchange, range(2))) == [[3.0], [3.0]]
    assert observers[0].joined == observers[1].joined
    assert 2 * HOUR + 60 * 10**9 <= observers[0].joined <= observers[1].now
