"""The kernel and the network against SimPy: the same programs with the same virtual times."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import simpy
from benchmarks.rows import Row, host_seconds, in_turn, ratio

from outpace.cluster.network import NetworkLaw
from outpace.kernel import Kernel
from outpace.simulation.network.links import Node, Parcel
from outpace.simulation.network.serialised import SerialisedNetwork
from outpace.support.units import SECOND

PAIRS = 64
LATENCY_S, BANDWIDTH = 0.001, 1.25e8
SIZE_BYTES = 50_000
LATENCY_NS, TRANSFER_NS = 1_000_000, 400_000


def measure(quick: bool) -> list[Row]:
    rounds, repetitions = (100, 2) if quick else (1000, 7)
    timeouts, messages = 64 * rounds * 4, 2 * PAIRS * rounds // 2
    assert our_network(10) == simpy_resources(10), "the models differ"

    def against(
        name: str,
        ours: Callable[[], object],
        theirs: Callable[[], object],
        goal: float,
        count: int,
    ) -> Row:
        programs = [partial(host_seconds, theirs), partial(host_seconds, ours)]
        above, below = in_turn(programs, repetitions + 1)  # the first pair warms up
        return ratio(
            name,
            above[1:],
            below[1:],
            goal=goal,
            at_least=True,
            note=lambda t, o: f"{count / o / 1e3:.0f} k/s, SimPy {count / t / 1e3:.0f} k/s",
        )

    return [
        against(
            "timeouts, 64 walkers",
            lambda: our_timeouts(rounds * 4),
            lambda: simpy_timeouts(rounds * 4),
            1.4,
            timeouts,
        ),
        against(
            "ping-pong: our network / SimPy Resources, same network",
            lambda: our_network(rounds // 2),
            lambda: simpy_resources(rounds // 2),
            1.8,
            messages,
        ),
    ]


# -- timeouts --------------------------------------------------------------------------


def our_timeouts(steps: int) -> int:
    kernel = Kernel()

    async def walk(delay_s: float) -> None:
        for _ in range(steps):
            await kernel.sleep(delay_s)

    for k in range(64):
        kernel.spawn(walk((100 + k) / SECOND))
    return kernel.run()


def simpy_timeouts(steps: int) -> int:
    env = simpy.Environment()

    def walk(delay: int) -> Generator[Any, Any, None]:
        timeout = env.timeout
        for _ in range(steps):
            yield timeout(delay)

    for k in range(64):
        env.process(walk(100 + k))
    env.run()
    return int(env.now)


# -- ping-pong over a serialised network ---------------------------------------------------


def our_network(rounds: int) -> int:
    kernel = Kernel()
    network = SerialisedNetwork(kernel, NetworkLaw(LATENCY_S, BANDWIDTH))

    async def play(me: Node, other: str, serves: bool) -> None:
        if serves:
            network.send(me, other, Parcel(0, SIZE_BYTES))
        for _ in range(rounds):
            ball = await me.mailbox.get()
            network.send(me, other, ball)

    async def settle() -> None:  # until the last ball has arrived
        await kernel.sleep((2 * rounds + 1) * (LATENCY_NS + TRANSFER_NS) / SECOND)

    for k in range(PAIRS):
        a, b = f"a-{k}", f"b-{k}"
        nodes = network.join(a), network.join(b)
        kernel.spawn(play(nodes[0], b, True))
        kernel.spawn(play(nodes[1], a, False))
    kernel.spawn(settle())
    return kernel.run()


class SimpyNode:
    """A node of the same network, which sends and receives one message at a time."""

    def __init__(self, env: simpy.Environment) -> None:
        self.sender = simpy.Resource(env)
        self.receiver = simpy.Resource(env)
        self.inbox = simpy.Store(env)


def simpy_resources(rounds: int) -> int:
    """Return the end of ping-pong by a process per message that holds two Resources.

    SimPy's documentation models networks in this way.
    """
    env = simpy.Environment()

    def transfer(source: SimpyNode, target: SimpyNode, message: int) -> Generator[Any, Any, None]:
        with source.sender.request() as sending:
            yield sending
            with target.receiver.request() as receiving:
                yield receiving
                yield env.timeout(TRANSFER_NS)
        yield env.timeout(LATENCY_NS)
        target.inbox.put(message)

    def play(me: SimpyNode, other: SimpyNode, serves: bool) -> Generator[Any, Any, None]:
        if serves:
            env.process(transfer(me, other, 0))
        for _ in range(rounds):
            ball = yield me.inbox.get()
            env.process(transfer(me, other, ball))

    for _ in range(PAIRS):
        a, b = SimpyNode(env), SimpyNode(env)
        env.process(play(a, b, True))
        env.process(play(b, a, False))
    env.run()
    return int(env.now)
