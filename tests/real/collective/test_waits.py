"""Notices of a worker that waits long in a collective of its script."""

from __future__ import annotations

import pytest

from outpace.engine.distributed.call import Call
from outpace.real.collective.waits import Waits


class Store(dict[str, bytes]):
    """A store in memory that all workers share."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]


@pytest.fixture
def workers():
    store = Store()
    made = [Waits(store, "waits", rank, 3) for rank in range(3)]
    yield made
    for waits in made:
        waits.close()


def call(number, kind, where):
    return Call(number=number, kind=kind, where=where, start=lambda _: None)


BARRIER, ALL_REDUCE = call(7, "barrier", "train.py:50"), call(7, "all_reduce", "train.py:41")


def test_a_long_wait_names_the_workers_that_have_not_joined(workers):
    workers[0].publish(BARRIER)
    assert workers[0].warning(BARRIER, 30.4) == (
        "worker-0 has waited 30 s in barrier at train.py:50; worker-1 did not join it and worker-2 "
        "did not join it"
    )


def test_a_long_wait_names_the_other_collective_that_a_worker_waits_in(workers):
    workers[0].publish(BARRIER)
    workers[1].publish(ALL_REDUCE)
    assert workers[0].warning(BARRIER, 31.0) == (
        "worker-0 has waited 31 s in barrier at train.py:50; worker-1 waits in all_reduce at "
        "train.py:41 and worker-2 did not join it"
    )
    assert workers[1].warning(ALL_REDUCE, 31.0) == "", "worker-0 says it"


def test_a_worker_that_waited_in_an_earlier_collective_counts_as_missing(workers):
    workers[0].publish(call(6, "barrier", "train.py:30"))
    workers[1].publish(ALL_REDUCE)
    warning = workers[1].warning(ALL_REDUCE, 30.0)
    assert warning.endswith("; worker-0 did not join it and worker-2 did not join it")
