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
    """Run {name: coroutine function of the worker}; the simulator afterwards, and its log."""
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


def test_the_states_of_a_worker_are_those_of_the_paper():
    seen = []

    async def worker(me):
        seen.append((me.now, me.state))
        await me.execute(lambda: seen.append((me.now, me.state)), duration=1.0)
        await me.recv()  # until 3 s
        await me.wait()  # until 4 s
        await me.sleep(2.0)  # until 6 s

    async def observer(me):
        simulator = simulators[0]
        me.send("worker", delay=3.0)
        for time_s in (0.5, 2.0, 3.5, 5.0, 7.0):
            await me.sleep(time_s - me.now)
            seen.append((time_s, simulator.workers["worker"].state))
            if time_s == 3.5:
                await me.sleep(0.5)
                me.notify("worker")

    simulators = [outpace.Simulator()]
    for name, program in {"worker": worker, "observer": observer}.items():
        added = simulators[0].add_worker(name, type(name, (outpace.Worker,), {"run": program}))
        assert added.state == "initial"
    simulators[0].start()
    assert seen == [
        (0.0, "running"),
        (0.5, "sleeping"),
        (1.0, "running"),
        (2.0, "waiting"),  # for the message
        (3.5, "waiting"),  # for the notification
        (5.0, "sleeping"),
        (7.0, "done"),
    ]


def test_workers_of_the_example_leave_each_step_with_the_slowest():
    example = runpy.run_path(str(EXAMPLES / "barrier.py"))
    done = example["simulate"]({"fast": 1.0, "slow": 2.5, "middle": 1.5})
    assert done.results == {name: [2.5, 5.0, 7.5] for name in ("fast", "slow", "middle")}


def test_sends_are_serialised_and_so_are_receives():
    async def sender(me):
        me.send("c", me.name, delay=1)
        me.send("d", me.name, delay=1)

    async def receiver(me):
        return [(await me.recv(), me.now) for _ in range(2)]

    simulator, log = simulate({"a": sender, "b": sender, "c": receiver, "d": receiver})
    # a sends to c and then to d; b, in its turn, to d first: c is busy.
    assert simulator.results["c"] == [("a", 1.0), ("b", 2.0)]
    assert simulator.results["d"] == [("b", 1.0), ("a", 2.0)]
    assert simulator.now == 2.0
    assert [m.started for m in log] == [0.0, 0.0, 1.0, 1.0]
    assert [m.requested for m in log] == [0.0] * 4


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


def test_it_can_be_stopped_and_go_on_and_daemons_end_with_the_others():
    class Clock(outpace.Worker):
        async def run(self):
            self.ticks = 0
            while True:
                await self.sleep(1)
                self.ticks += 1

    class Nap(outpace.Worker):
        async def run(self):
            await self.sleep(4.5)

    simulator = outpace.Simulator()
    clock = simulator.add_worker("clock", Clock, daemon=True)
    simulator.add_worker("nap", Nap)
    assert simulator.start(until=2.5) == 2.5
    assert clock.ticks == 2
    assert simulator.start() == 4.5
    assert clock.ticks == 4


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


def test_a_fair_network_shares_and_refuses_delays_of_ones_own():
    law = NetworkLaw(bandwidth_bytes_per_s=1e6, contention="fair")

    async def sender(me):
        me.send("z", bytes(500_000))

    async def receiver(me):
        for _ in range(2):
            await me.recv()
        return me.now

    simulator, _ = simulate({"a": sender, "b": sender, "z": receiver}, network=law)
    assert simulator.results["z"] == 1.0

    async def impatient(me):
        me.send(me.name, delay=1.0)

    with pytest.raises(RunError, match="contention: fair they are shared"):
        simulate({"a": impatient}, network=law)
