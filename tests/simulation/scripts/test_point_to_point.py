"""Messages between two workers of a script in virtual time."""

from __future__ import annotations

import pytest
import torch

from outpace.errors import RunError
from outpace.kernel import Future, Kernel
from outpace.simulation.scripts.collectives.matching import Matching, Part
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.messages import Joined
from outpace.simulation.scripts.shared_memory import CallMemory

FLOAT = torch.float32


def call(kind: str, other: int, elements: int = 4, tag: int = 0, number: int = 0) -> Joined:
    parts, taken = ((elements,), 0) if kind == "send" else ((), elements)
    line = f"a.py:{number}"
    return Joined(
        number=number,
        kind=kind,
        where=line,
        root=other,
        tag=tag,
        dtype=FLOAT,
        parts=parts,
        elements=taken,
        place=0,
    )


def part(worker: int, what: Joined, values: float = 0.0) -> Part:
    memory = CallMemory()
    memory.require(64)
    memory.view(0, 4, FLOAT).fill_(values)
    return Part(worker, what, memory, Future(Kernel(), str(what)))


def test_messages_are_matched_by_ranks_and_tag_and_keep_their_order():
    found = Matching(2)
    first, second = (part(0, call("send", 1, number=n), values=n + 1) for n in range(2))
    tagged = part(0, call("send", 1, tag=5, number=2), values=9)
    for sent in (first, second, tagged):
        assert found.join(sent) is None
    by_tag, by_rank, by_any = (part(1, call("recv", *more), 0) for more in ((0, 4, 5), (0,), (-1,)))
    for sent, received in ((tagged, by_tag), (first, by_rank), (second, by_any)):
        message = found.join(received)
        assert message.parts == {0: sent, 1: received}
    message.carry_out()
    assert by_any.memory.view(0, 4, FLOAT).tolist() == [2.0] * 4
    assert by_any.sender == 0
    assert found.waiting() == []


def test_messages_that_cannot_arrive_are_told_with_their_lines():
    found = Matching(2)
    found.join(part(0, call("send", 1, number=3)))
    words = (
        "worker-0 sends 4 elements float32 at a.py:3, but worker-1 receives 3 elements float32 at"
    )
    with pytest.raises(RunError, match=words):
        found.join(part(1, call("recv", 0, 3, number=4)))
    found.join(part(1, call("recv", 0, number=5)))
    assert found.waiting() == [
        "worker-1 called recv from worker-0 at a.py:5 and waits for the other side"
    ]
    with pytest.raises(RunError, match=r"from worker-0 at a.py:5, but worker-0 has left the run"):
        found.leave(0)


def test_a_message_begins_when_both_have_called_and_takes_its_time():
    kernel, ended = Kernel(), []

    class Route:
        def begin(self, pattern, members, size, finished):
            assert (pattern, list(members), size) == ("message", [0, 1], 16)
            kernel.call_at(kernel.now + 7, lambda _: [finished(each) for each in members])

    collectives = SimulatedCollectives(kernel, Route(), 2, ended.append)
    sent, received = part(0, call("send", 1), 3.0), part(1, call("recv", 0))

    async def exchange() -> None:
        collectives.join(0, sent.call, sent.memory)
        await kernel.sleep(5e-9)
        collectives.join(1, received.call, received.memory)
        for worker in range(2):
            await collectives.result(worker, 0)

    kernel.spawn(exchange(), "both workers")
    kernel.run()
    assert [(p.worker, p.joined, p.all_joined, p.ended) for p in ended] == [
        (0, 0, 5, 12),
        (1, 5, 5, 12),
    ]
    assert received.memory.view(0, 4, FLOAT).tolist() == [3.0] * 4


def test_memory_of_a_collective_that_has_ended_is_used_again_while_another_is_under_way():
    memory = CallMemory()
    under_way = memory.take(100)
    places = set()
    for _ in range(50):
        place = memory.take(64)
        places.add(place)
        memory.give_back(place)
    assert places == {128}
    memory.take(64)
    memory.give_back(under_way)
    assert memory.take(128) == under_way
