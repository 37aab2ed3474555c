"""The decoder and a shard: each accepts a message, or raises ProtocolError without a change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from tests.fuzz.coordinator import FuzzedCoordinator
from tests.fuzz.messages import damaged, decoded, random_message
from tests.support.blocks_on_the_wire import with_block

from outpace.errors import ProtocolError
from outpace.optim import Sgd
from outpace.real.net.block_frames import head_in
from outpace.real.net.inbox import from_worker
from outpace.real.net.wire import Incoming
from outpace.sync import Asp, Bsp, CutOff, Dsps, Ssp
from outpace.sync.messages import Close, Leave, Pause, Pull, Push, Rejoin
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard

WORKERS = 3


class Silent:
    """Ignores the messages of a shard."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


POLICIES = (Bsp(), Ssp(2), Asp(), Dsps(1, 2), CutOff())
_RENEWED = 300  # messages after which the machines are made again
_OWN = Push, Pull, Leave, Pause, Rejoin


class Fuzzed:
    """The decoder of a connection, and a shard.

    Attributes:
        counts: numbers of messages, by their effect.
    """

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._count = draw, 0
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        """Give one message to all receivers. Raises AssertionError or an unexpected exception."""
        if self._count % _RENEWED == 0:
            self._renew()
        self._count += 1
        draw = self._draw
        data = random_message(draw)
        if draw.random() < 0.5:
            data = damaged(data, draw)
        self._decode(data)
        if (message := decoded(data)) is None:
            self.counts["not a message"] += 1
            return
        self.counts["a message"] += 1
        if head_in(message) is not None:
            message = with_block(message, torch.zeros(2))
        own = [message] if isinstance(message, Close) else from_worker(message)
        for each in own:
            self._try("shard", self._shard_state, lambda each=each: self._receive(each))

    def _renew(self) -> None:
        policy = POLICIES[self._draw.randrange(len(POLICIES))]
        block = parameter_block(torch.zeros(2), Sgd(lr=0.1))
        self._shard = Shard(0, block, WORKERS, policy, Silent())
        self._now = 0
        self._incoming = Incoming(7, 0, lambda _: ("float32", 2))
        self._serial = 0

    # -- the machines --------------------------------------------------------------

    def _decode(self, data: bytes) -> None:
        draw = self._draw
        # The envelope around the message, as a sender would make it, damaged now and then.
        frame = b"\x94\x07\x00" + _packed(self._serial) + data
        if draw.random() < 0.05:
            frame = damaged(frame, draw)
        frames = [frame] if draw.random() < 0.8 else [frame, bytes(draw.choice((0, 4, 8, 9)))]
        before = self._wire_state()
        try:
            self._incoming.take(frames)
        except ProtocolError:
            assert self._wire_state() == before
            self.counts["refused by the decoder"] += 1
        else:
            self._serial += 1
            self.counts["taken by the decoder"] += 1

    def _wire_state(self) -> Any:
        unfinished = self._incoming._unfinished
        return self._incoming._fence.serial, unfinished and unfinished[1].filled

    def _receive(self, message: Any) -> None:
        self._now += 1
        if isinstance(message, Push) and message.gradient is not None:
            message.gradient = torch.zeros(2)
        if isinstance(message, Push):
            message.settings = None
        self._shard.receive(message, self._now)

    def _shard_state(self) -> Any:
        shard = self._shard
        state = shard.state()
        parameters = state.parameters
        assert isinstance(parameters, torch.Tensor)
        view = shard._view
        return (
            (state.clock, state.version, state.watermarks, state.gone, state.pushes),
            parameters.tolist(),
            [(each.iteration, each.count) for each in state.pending],
            [view.is_paused(worker) for worker in range(WORKERS)],
            (shard.live, view.live, view.reached, view.slowest, view.fastest),
            (shard.describe_waiting(), shard.next_deadline),
        )

    def _try(self, what: str, state: Callable[[], Any], give: Callable[[], Any]) -> None:
        before = state()
        try:
            give()
        except ProtocolError:
            assert state() == before, f"the {what} has changed and refused the message"
            self.counts[f"refused by the {what}"] += 1
        else:
            self.counts[f"taken by the {what}"] += 1


def _packed(serial: int) -> bytes:
    return b"\xce" + serial.to_bytes(4, "big")


def run(messages: int, seed: int = 0) -> Counter[str]:
    """Give this many messages; return the counts of their effects."""
    fuzzed, coordinator = Fuzzed(random.Random(seed)), FuzzedCoordinator(random.Random(seed))
    try:
        for place in range(messages):
            (coordinator if place % 4 == 3 else fuzzed).step()
    finally:
        coordinator.close()
    return fuzzed.counts + coordinator.counts
