"""The number of function calls for a simulated message: the cost of virtual time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from outpace.experiment.running import simulate
from outpace.simulation.virtual import VirtualRun

CONFIGURATION = {
    "task": {"kind": "timing", "parameters": 1000},
    "workers": 8,
    "servers": 2,
    "sync": {"kind": "ssp", "staleness": 2},
    "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
    "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e6},
}
# Of functions in Python, also when a coroutine is resumed, and in C. Reached on 2026-11-30: 21.5
# and 14.9. A third of them are the network and mailboxes, a third the shard, a third the worker.
LIMITS = (21.8, 15.2)


def counted(iterations: int, monkeypatch) -> tuple[int, int, int]:
    """Return the messages of a run, and its calls of functions in Python and in C."""
    calls = {"call": 0, "c_call": 0}

    def note(_: FrameType, event: str, __: Any) -> None:
        if event in calls:
            calls[event] += 1

    drive = VirtualRun._drive

    def profiled(run: VirtualRun) -> None:
        sys.setprofile(note)
        try:
            drive(run)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patch:
        patch.setattr(VirtualRun, "_drive", profiled)
        result = simulate({**CONFIGURATION, "stop": {"iterations": iterations}})
    return result.summary["messages"], calls["call"], calls["c_call"]


def test_a_simulated_message_calls_no_more_functions_than_it_did(monkeypatch):
    counted(5, monkeypatch)  # fills caches
    short, long = counted(20, monkeypatch), counted(120, monkeypatch)
    messages, *calls = (more - less for more, less in zip(long, short, strict=True))
    per_message = [count / messages for count in calls]
    assert messages == 100 * 8 * 2 * 3
    assert all(map(float.__le__, per_message, LIMITS)), per_message
