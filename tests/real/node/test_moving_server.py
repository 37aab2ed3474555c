"""The pieces of parameters that a server takes from others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from tests.support.checkpoints import shard_state

from outpace.blocks.division import Division, Range
from outpace.errors import ProtocolError
from outpace.real.net.messages import BlockHead
from outpace.real.net.moving_messages import Divide, HandOver, WireDivision, wire_division
from outpace.real.node.moving_server import Around, ServerMoves
from outpace.real.node.script_parts import ScriptParts
from outpace.record.checkpoints.shards import ScriptOptimizer, shard_file
from outpace.sync.messages import Divided, Moved

WHOLE = Division(0, {0: (Range(0, 6),)})
AFTER = Division(1, {0: (Range(0, 3),), 1: (Range(3, 6),)})


class Server:
    """Server 1, which joins server 0, and all that it says and gives to its program."""

    def __init__(self) -> None:
        self.put: list[Any] = []
        self.told: list[Any] = []
        self.refused: list[str] = []
        self.admitted: list[str] = []
        listener: Any = SimpleNamespace(
            admit=lambda name, key: self.admitted.append(name),
            replace=lambda name, generation: self.admitted.append(f"{name} {generation}"),
            refuse=lambda name, why: self.refused.append(f"{name}: {why}"),
        )
        inbox: Any = SimpleNamespace(put=self.put.append)
        nothing: Any = None
        around = Around(1, nothing, listener, inbox, self.told.append)
        self.script = ScriptParts([2, 4])
        self.moves = ServerMoves(
            around, Division(0, {}), None, "float32", nothing, [2, 4], self.script
        )

    def announced(self) -> Server:
        order = Divide(wire_division(AFTER), [0, 1], ["there", "here"], [], [2, 0], [(1, 3)])
        assert self.moves.order(order)
        return self


def piece(**changes: Any) -> tuple[HandOver, torch.Tensor]:
    record, tensors = shard_file(shard_state(parameters=torch.arange(3.0), optimizer={}))
    data = tensors["parameters"].view(torch.uint8)
    message = HandOver(
        1,
        [(3, 6)],
        msgspec.msgpack.encode(record),
        [("parameters", [3], "float32")],
        BlockHead("uint8", 12),
    )
    return msgspec.structs.replace(message, **changes), data


def test_a_server_that_joins_hears_of_the_others_and_of_workers_that_have_come_back() -> None:
    server = Server().announced()
    assert server.put == [Divided(AFTER)]
    assert [message.number for message in server.told] == [1]
    assert server.admitted == ["server-0", "server-0 2", "worker-1 3"]


def test_a_piece_goes_to_the_program_as_it_was() -> None:
    server = Server().announced()
    message, data = piece()
    assert server.moves.expected("server-0", message) == ("uint8", 12)
    assert server.moves.expected("worker-0", message) is None
    server.moves.take("server-0", message, data)
    moved = server.put[-1]
    assert isinstance(moved, Moved)
    assert (moved.number, moved.ranges) == (1, (Range(3, 6),))
    assert moved.state.parameters.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"tensors": [("parameters", [3], "load")]},
        {"tensors": [("parameters", [4], "float32")]},
        {"tensors": []},
        {"record": b"nothing"},
    ],
)
def test_a_piece_that_cannot_be_read_is_refused(changes: dict[str, Any]) -> None:
    server = Server().announced()
    message, data = piece(**changes)
    if changes.get("tensors") == []:
        data = data[:0]
    server.moves.take("server-0", message, data)
    assert server.put == [Divided(AFTER)]
    assert server.refused[0].startswith("server-0: its piece of the parameters: ")


def test_a_division_that_is_none_is_refused() -> None:
    with pytest.raises(ProtocolError, match="element 3 is not in exactly one part"):
        WireDivision(1, [0, 1], [[(0, 3)], [(4, 6)]]).division()
    with pytest.raises(ProtocolError, match="division 1"):
        WireDivision(1, [0], [[(0, 3)], [(3, 6)]]).division()


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([[(0, 0, 2)], [(2, 2, 3)]], "it has a tensor that the model does not have"),
        ([[(1, 0, 3)]], "it has another number of parameter groups"),
    ],
)
def test_a_piece_of_a_script_with_another_model_is_refused(groups: Any, why: str) -> None:
    server = Server().announced()
    of_all = ScriptOptimizer("SGD", [{"lr": 0.1}, {"lr": 0.2}], [[(0, 0, 2)], [(1, 2, 6)]])
    for script in (of_all, ScriptOptimizer("SGD", [], groups)):
        state = shard_state(parameters=torch.arange(3.0), optimizer={})
        record = msgspec.msgpack.encode(shard_file(state, script)[0])
        message, data = piece(record=record)
        server.moves.take("server-0", message, data)
    assert server.refused == [f"server-0: its piece of the parameters: {why}"]
    made = server.script.of((Range(1, 2), Range(3, 5)))  # the end of tensor 0, and two of tensor 1
    assert (made.optimizer, made.groups) == ("SGD", [[(0, 0, 1)], [(1, 1, 3)]])
