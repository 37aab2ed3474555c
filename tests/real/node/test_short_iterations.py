"""When a worker looks for messages between its computation and its push."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from outpace.real.node.worker_process import WorkerProcess


def looks(computing_ns: int, drawn_s: float) -> int:
    """Return how often a worker looks for messages after a gradient that took so long."""
    found: list[str] = []

    async def gradient(*_: Any) -> list[None]:
        process.now += computing_ns
        return [None]

    async def sleep(duration_s: float) -> None:
        found.append(f"slept {duration_s}")

    process = SimpleNamespace(
        now=7,
        kernel=SimpleNamespace(now=7, catch_up=lambda: found.append("looked"), sleep=sleep),
        draw_s=lambda *_: drawn_s,
        worked_s=lambda _: computing_ns / 1e9,
        trainer=SimpleNamespace(gradient=gradient),
        must_stop=lambda _: False,
        computed=lambda *_: found.append("computed"),
    )
    with pytest.raises(StopIteration):
        WorkerProcess.execute(process, [], 0).send(None)  # type: ignore[arg-type]
    assert found[-1] == "computed"
    return found.count("looked")


def test_a_worker_looks_for_messages_after_each_computation_of_more_than_a_millisecond():
    assert looks(1_000_001, 0.0) == 1
    assert looks(1_000_000, 0.0) == 0


def test_a_worker_that_has_to_wait_for_its_run_time_looks_first():
    assert looks(1, 0.5) == 1
