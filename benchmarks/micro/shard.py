"""The time in which a shard decides about a push or a pull and files it, without tensors.

The messages of a run are recorded first, and then replayed as fast as possible to a fresh shard
with phantom parameters and an observer that does nothing.
"""

from __future__ import annotations

import heapq
import random

from benchmarks.micro.harness import Measurement, host_seconds, value

from outpace.blocks.block import Phantom
from outpace.optim import Sgd
from outpace.support.units import SECOND, Time
from outpace.sync import (
    Asp,
    Bsp,
    Buffer,
    Coin,
    DropStragglers,
    Dsps,
    DynamicPssp,
    PartialPush,
    Policy,
    PspSampling,
    Pssp,
    Ssp,
)
from outpace.sync.messages import Message, Pull, Push, Reply
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

GOALS = {32: 8.0, 2048: 10.0}  # microseconds, by the number of workers
MESSAGES = 40_000


def measure(quick: bool) -> list[Measurement]:
    found = []
    for workers, goal in GOALS.items():
        for policy in _policies(workers):
            script = recorded(policy, workers, MESSAGES // (40 if quick else 1))
            times = [_replayed(policy, workers, script) for _ in range(1 if quick else 5)]
            found.append(
                value(
                    f"shard, {workers} workers, {_name(policy)}, per message",
                    times,
                    unit="µs",
                    goal=goal,
                )
            )
    return found


def _policies(workers: int) -> list[Policy]:
    """Return a policy of each kind, and the variants that take another path."""
    quorum = workers * 7 // 8
    return [
        Bsp(),
        Asp(),
        Ssp(3),
        Ssp(3, buffer=Buffer.SOFT),
        Pssp(3, 0.3),
        Pssp(3, 0.3, coin=Coin.SERVER),
        DynamicPssp(3),
        Dsps(3),
        DropStragglers(quorum),
        PartialPush(quorum, timeout_s=0.01),
        PspSampling(5),
        PspSampling(5, staleness=3),
    ]


class _Ignore:
    """A `ShardObserver` that does nothing."""

    def push_settled(self, *_: object) -> None:
        pass

    pull_answered = pull_abandoned = updated = push_settled


def recorded(policy: Policy, workers: int, at_least: int) -> list[tuple[Message | None, Time]]:
    """Return the messages of a run with log-normal run times; None: a deadline of the shard."""
    source = random.Random(1)
    shard = _shard(policy, workers)
    versions = [0] * workers
    due = [(_drawn(source), worker, 0) for worker in range(workers)]
    heapq.heapify(due)
    script: list[tuple[Message | None, Time]] = []
    while len(script) < at_least:
        deadline = shard.next_deadline
        if deadline is not None and (not due or deadline < due[0][0]):
            now = deadline
            messages: list[Message | None] = [None]
        else:
            now, worker, iteration = heapq.heappop(due)
            messages = [
                Push(worker, iteration, versions[worker], Phantom(4)),
                Pull(worker, iteration, source.random()),
            ]
        for message in messages:
            script.append((message, now))
            for reply in _given(shard, message, now):
                versions[reply.worker] = reply.version
                after = max(reply.iteration + 1, reply.clock)
                heapq.heappush(due, (now + _drawn(source), reply.worker, after))
    return script


def _replayed(policy: Policy, workers: int, script: list[tuple[Message | None, Time]]) -> float:
    """Return the microseconds per message."""
    shard = _shard(policy, workers)

    def replay() -> None:
        for message, now in script:
            _given(shard, message, now)

    return host_seconds(replay) / len(script) * 1e6


def _given(shard: Shard, message: Message | None, now: Time) -> list[Reply]:
    return shard.on_time(now) if message is None else shard.receive(message, now)


def _shard(policy: Policy, workers: int) -> Shard:
    return Shard(0, parameter_block(Phantom(4), Sgd()), workers, policy, _Ignore())


def _drawn(source: random.Random) -> Time:
    return int(source.lognormvariate(0.0, 0.2) * SECOND)


def _name(policy: Policy) -> str:
    words = [str(getattr(policy, key)) for key in ("buffer", "coin") if hasattr(policy, key)]
    bound = f" {policy.staleness}" if hasattr(policy, "staleness") else ""
    return f"{policy.kind}{bound}" + (f" ({', '.join(words)})" if words else "")
