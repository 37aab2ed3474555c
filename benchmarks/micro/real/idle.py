"""The share of a core that a server takes while its only worker computes."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.micro.real.whole import whole

from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.process.local import LocalLauncher


def idle_percent(elements: int, idle_s: float) -> float:
    """Return the CPU time of a server over `idle_s`, in per cent of one core."""
    shares = []

    def watch(coordinator: Coordinator, group: LocalLauncher) -> None:
        async def look() -> None:
            pid = group.pids["server-0"]
            while not coordinator.started:
                await coordinator.kernel.sleep(0.05)
            await coordinator.kernel.sleep(0.5)
            before, began = cpu_seconds(pid), time.perf_counter()
            await coordinator.kernel.sleep(idle_s)
            shares.append((cpu_seconds(pid) - before) / (time.perf_counter() - began))

        coordinator.kernel.spawn(look(), daemon=True)

    whole(elements, 1, pause_s=idle_s, watch=watch)  # pauses twice, once to warm up
    return 100 * shares[0]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, by the scheduler's clock. Linux only."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
