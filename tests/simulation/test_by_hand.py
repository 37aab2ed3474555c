"""`outpace.Simulator`: workers written by hand, with times known in advance."""

from __future__ import annotations

import runpy
import time

import pytest
import torch
from tests.support.paths import EXAMPLES

import outpace
from outpace.cluster.network import NetworkLaw
from outpace.errors import ConfigError, RunError
from outpace.simulation.by_hand import Delivered

PING_PONG = EXAMPLES / "ping_pong.py"


def simulate(programs, **options):
    """Run {name: coroutine function of the worker}; return the simulator afterwards and its log."""
    log: list[Delivered] = []
    simulator = outpace.Simulator(log=log.append, **options)
    for name, program in programs.items():
        simulator.add_worker(name, type(name, (outpace.Worker,), {"run": program}))
    simulator.start()
    return simulator, log


@pytest.mark.parametrize("tie_seed", [None, 1, 2, 3])
def test_the_papers_ping_pong(tie_seed):
    example = runpy.run_path(str(PING_PONG))
    log: list[Delivered] = []
    simulator = outpace.Simulator(log=log.append, tie_seed=tie_seed)
    simulator.add_worker("ping", example["Ping"])
    simulator.add_worker("pong", example["Pong"])
    assert simulator.start() == pytest.approx(0.6, abs=1e-12)
    assert simulator.kernel.now == 600_000_000  # exactly
    assert [(m.sender, m.receiver, round(m.arrived * 1e9)) for m in log] == [
        ("ping", "pong", 100_000_000),
        ("pong", "ping", 200_000_000),
        ("ping", "pong", 300_000_000),
        ("pong", "ping", 400_000_000),
        ("ping", "pong", 500_000_000),
        ("pong", "ping", 600_000_000),
    ]
    assert simulator.results == {"ping": "ball", "pong": None}


@pytest.mark.parametrize("tie_seed", [None, 1, 2])
def test_a_worker_waits_until_it_is_notified_and_gets_the_value(tie_seed):
    async def waiter(me):
        return await me.wait(), me.now

    async def notifier(me):
        await me.sleep(2.0)
        found = me.notify("waiter", "ball"), me.now
        await me.sleep(1.0)
        return *found, me.notify("waiter", "late")  # its program has ended

    simulator, _ = simulate({"waiter": waiter, "notifier": notifier}, tie_seed=tie_seed)
    assert simulator.results == {"waiter": ("ball", 2.0), "notifier": (True, 2.0, False)}


def test_workers_of_the_example_leave_each_step_with_the_slowest():
    example = runpy.run_path(str(EXAMPLES / "barrier.py"))
    done = example["simulate"]({"fast": 1.0, "slow": 2.5, "middle": 1.5})
    assert done.results == {name: [2.5, 5.0, 7.5] for name in ("fast", "slow", "middle")}


def test_execute_takes_the_time_that_the_function_took():
    def work():
        time.sleep(0.02)
        return 42

    async def run(me):
        result = await me.execute(work)
        return result, me.now

    began = time.perf_counter()
    simulator, _ = simulate({"a": run})
    spent = time.perf_counter() - began
    result, now = simulator.results["a"]
    assert result == 42
    assert 0.02 <= now <= spent


def test_without_a_delay_bytes_take_their_time():
    law = NetworkLaw(latency_s=0.5, bandwidth_bytes_per_s=100)

    async def sender(me):
        me.send("b", {"weights": [torch.zeros(25), b"x" * 100], "text": "free"})
        me.send("b", "free")

    async def receiver(me):
        return [(await me.recv(), me.now)[1] for _ in range(2)]

    simulator, _ = simulate({"a": sender, "b": receiver}, network=law)
    assert simulator.results["b"] == [2.5, 2.5]


def test_wrong_use_is_said_in_words():
    async def to_nobody(me):
        me.send("bb", 1)

    async def backwards(me):
        me.send("a", 1, delay=-1)

    async def not_a_time(me):
        await me.sleep(float("nan"))

    class Empty(outpace.Worker):
        pass

    for program, words in (
        (to_nobody, "'a' sent to 'bb', which does not exist"),
        (backwards, "a: delay must be a number of seconds from 0 on, not -1"),
        (not_a_time, "a: sleep must be a number of seconds from 0 on, not nan"),
    ):
        with pytest.raises(RunError, match=words):
            simulate({"a": program})
    simulator = outpace.Simulator()
    simulator.add_worker("a", Empty)
    with pytest.raises(ConfigError, match="there already is a worker 'a'"):
        simulator.add_worker("a", Empty)
    with pytest.raises(ConfigError, match="not a subclass of"):
        simulator.add_worker("b", int)
    with pytest.raises(RunError, match="Empty must define `async def run"):
        simulator.start()
