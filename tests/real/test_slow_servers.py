"""Slow servers and links are named while a run is running, from the times of its requests."""

from __future__ import annotations

import re

import numpy as np
import pytest

from outpace.config.reading import experiment_from
from outpace.real.slowness import SlowServers
from outpace.record.tables import NONE
from outpace.record.timing import PUSH, SCHEMA

WORKERS, SERVERS = 4, 3
ITERATION_S = 0.05
COLUMN = {name: place for place, name in enumerate(SCHEMA.names)}


def watched(servers: int = SERVERS, kind: str = "bsp") -> SlowServers:
    data = {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": WORKERS,
        "servers": servers,
        "sync": {"kind": kind},
        "stop": {"iterations": 100},
    }
    return SlowServers(experiment_from(data, "the test"))


def half(worker: int, server: int, iteration: int, **times_s: float) -> list[int]:
    row = [NONE] * len(COLUMN)
    row[:5] = [PUSH, worker, server, NONE, iteration]
    for name, time_s in times_s.items():
        row[COLUMN[f"{name}_ns"]] = round(time_s * 1e9)
    return row


def iteration_of(
    slow: SlowServers,
    iteration: int,
    work_s: list[float],
    way_s: list[float],
    workers: int = WORKERS,
) -> None:
    """All workers send at once; each server handles the requests in turn, and then answers all.

    Args:
        work_s: To handle a request, by server.
        way_s: Of a request and its answer together, by server.
    """
    rng = np.random.default_rng(iteration)
    start_s = 1.0 + ITERATION_S * iteration
    for server, (each_s, both_s) in enumerate(zip(work_s, way_s, strict=True)):
        of_server, of_workers = [], []
        free_s = start_s + both_s / 2
        for worker in range(workers):
            begun_s = free_s
            free_s = begun_s + each_s * rng.uniform(0.95, 1.05)
            times = {"received": start_s + both_s / 2, "begun": begun_s, "done": free_s}
            of_server.append(half(worker, server, iteration, **times))
        for worker, row in enumerate(of_server):
            row[COLUMN["answer_begun_ns"]] = row[COLUMN["answered_ns"]] = round(free_s * 1e9)
            arrived_s = free_s + both_s / 2 * rng.uniform(0.95, 1.05)
            times = {"sent": start_s, "arrived": arrived_s}
            of_workers.append(half(worker, server, iteration, **times))
        slow.take("timing", np.array(of_server))
        slow.take("timing", np.array(of_workers))


def cost_of(line: str) -> float:
    return float(line.rpartition("about ")[2].removesuffix(" s"))


def test_a_slow_server_is_named_with_its_cost():
    """4 ms for each of 4 requests in place of 1 ms: 12 ms in each of 40 iterations."""
    slow = watched()
    for iteration in range(41):
        assert slow.line() == "" or iteration > 3
        iteration_of(slow, iteration, [1e-3, 4e-3, 1e-3], [2e-3] * 3)
    line = slow.line()
    assert line.startswith("server 1: ")
    factor = float(line.split()[2])
    assert factor == pytest.approx(4, rel=0.1)
    assert cost_of(line) == pytest.approx(0.48, rel=0.1)


def test_a_slow_link_of_a_server_is_named_as_such():
    """A request and its answer take 12 ms in place of 2 ms: 10 ms in each of 40 iterations."""
    slow = watched()
    for iteration in range(41):
        iteration_of(slow, iteration, [1e-3] * 3, [2e-3, 2e-3, 12e-3])
    line = slow.line()
    assert line.startswith("link of server 2: ")
    assert cost_of(line) == pytest.approx(0.4, rel=0.1)


def test_equal_servers_are_not_named():
    slow = watched()
    for iteration in range(100):
        iteration_of(slow, iteration, [1e-3] * 3, [2e-3] * 3)
        assert slow.line() == ""


def test_iterations_without_all_workers_count_too():
    """With cut-offs some workers send nothing: an iteration does not wait for them for ever."""
    slow = watched(kind="asp")
    for iteration in range(200):
        iteration_of(slow, iteration, [1e-3, 4e-3, 1e-3], [2e-3] * 3, WORKERS - 1)
    found = re.match(r"server 1: (.+) times as slow as the others", slow.line())
    assert found is not None
    assert float(found[1]) == pytest.approx(4, rel=0.1)
