"""The coordinator shows reports of processes to the user."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from outpace.real.coordinator.reports import Reports
from outpace.real.net.report_messages import Notice


def test_a_warning_that_several_workers_send_is_shown_once_without_their_names():
    logged: list[str] = []
    warned: list[str] = []
    other: Any = None
    run: Any = SimpleNamespace(
        numbers={"worker-0": 0, "worker-1": 1},
        listener=None,
        log=logged.append,
        setting=SimpleNamespace(trace=None, timing=None, events=None, log_warning=warned.append),
    )
    reports = Reports(run, other, other, other, other, None, other)
    for name in ("worker-0", "worker-1"):
        reports.take(name, Notice("its epochs are repeated", warns=True))
        reports.take(name, Notice("a block was slow"))
    assert warned == ["its epochs are repeated"]
    assert logged == ["worker-0: a block was slow", "worker-1: a block was slow"]
