"""Two processes that send each other blocks through shared memory as fast as they can.

Every block has one value only, so a block that was changed while it was read has two.
OUTPACE_MEMORY_ROUNDS sets the number of rounds; `make soak` tries 100,000.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from tests.support.blocks_on_the_wire import any_block

from outpace.blocks.block import Block, parts
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import FIRST, Handlers, Keys, Session, new_keys
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.sync.messages import Push, WireMessage

ROUNDS = int(os.environ.get("OUTPACE_MEMORY_ROUNDS", "300"))
ELEMENTS = 1 << 19  # two pieces
LIMIT_S = 60.0 + ROUNDS / 50


def is_mapped(block: Block) -> bool:
    """True if a block is in shared memory."""
    address = parts(block)[0].data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, _, rest = line.partition("-")
        if int(low, 16) <= address < int(rest.partition(" ")[0], 16):
            return "memfd:outpace" in line
    return False


class End:
    """One process: keeps a few of the received blocks, and checks them again."""

    def __init__(self, name: str, seed: int, keys: Keys) -> None:
        self.clock = RealClock()
        session = Session(5, FIRST, 20.0, keys, shares_memory=True)
        self.transport = ZeroMQTransport(name, session, self.clock, print)
        self.handlers = Handlers(any_block, self.take, lambda _: None)
        self.received = self.in_memory = 0
        self._kept = deque[tuple[int, Block]]()
        self._draw = random.Random(seed)

    def take(self, _: str, message: WireMessage) -> None:
        assert isinstance(message, Push)
        block = message.gradient
        assert block is not None
        self.in_memory += is_mapped(block)
        self._kept.append((message.iteration, block))
        self.received = message.iteration + 1
        while len(self._kept) > self._draw.randrange(4):
            value, old = self._kept.popleft()
            for part in parts(old):
                low, high = part.aminmax()
                assert low == high == value, f"block {value} has {low} to {high}"

    def wait_for(self, count: int) -> None:
        until = self.clock.now + int(LIMIT_S * 1e9)
        while self.received < count:
            assert self.clock.now < until, f"{count} blocks did not come in {LIMIT_S} s"
            self.clock(self.clock.now + 50_000_000)


def message(number: int) -> Push:
    """Return a block of one value."""
    return Push(0, number, 0, torch.full((ELEMENTS,), float(number)))


def work(endpoint: str, key: str, keys: Keys, rounds: int, said: Connection) -> None:
    torch.set_num_threads(1)  # more would spin
    end = End("worker-0", 1, keys)
    caller = end.transport.call("server-0", endpoint, key, end.handlers)
    caller.share_memory(4 * ELEMENTS)
    for number in range(rounds):
        caller.send(message(number))
        end.wait_for(number)  # one block is being sent in each direction
    end.wait_for(rounds)
    said.send((end.received, end.in_memory))
    end.transport.close()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no such memory")
def test_no_block_changes_while_it_is_read():
    own, other = new_keys(), new_keys()
    end = End("server-0", 2, own)
    listener = end.transport.listen(LOOPBACK, {"worker-0": other.public}, end.handlers)
    listener.share_memory(4 * ELEMENTS)
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("forkserver").Process(
        target=work, args=(listener.endpoint, own.public, other, ROUNDS, theirs)
    )
    process.start()
    for number in range(ROUNDS):
        end.wait_for(number + 1)
        listener.send("worker-0", message(number))
    while not mine.poll(0):
        end.clock(end.clock.now + 10_000_000)
        assert process.is_alive() or mine.poll(0)  # it may end after its last message
    received, in_memory = mine.recv()
    assert received == ROUNDS
    assert min(in_memory, end.in_memory) > ROUNDS // 10  # a slot is free now and then
    process.join()
    end.transport.close()
