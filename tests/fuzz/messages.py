"""Random messages of every kind, also with damaged bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from outpace.real.net.wire import ANY_MESSAGE
from outpace.sync.messages import Close, Leave, Pause, Pull, Push, Rejoin, WireMessage

KINDS: Final = tuple(WireMessage.__subclasses__())
# messages that change a shard
_OFTEN: Final = (
    Push,
    Push,
    Pull,
    Pull,
    Leave,
    Pause,
    Rejoin,
    Close,
)
_EDGES: Final = (0, 1, 255, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ANY_MESSAGE)


def random_message(draw: random.Random, often: Sequence[type] = _OFTEN) -> bytes:
    """Return the bytes of a message of any kind, most of them legal.

    often: the kinds that most messages have.
    """
    kind = draw.choice(often if draw.random() < 0.6 else KINDS)
    return _ENCODER.encode([_tag(kind), *(_value(t, draw) for t in _fields(kind))])


def decoded(data: bytes) -> WireMessage | None:
    """Return the message; None if the bytes are not a message."""
    try:
        message: WireMessage = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return None
    return message


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return bytes with up to three changes: flipped, cut, repeated, inserted, exchanged."""
    for _ in range(draw.randint(0, 3)):
        at = draw.randrange(len(data) + 1)
        to = min(len(data), at + draw.randint(1, 8))
        match draw.randrange(7):
            case 0 if at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + data[to:]
            case 3:
                data = data[:to] + data[at:]
            case 4:
                data = data[:at] + draw.randbytes(draw.randint(1, 8)) + data[at:]
            case 5:
                other = random_message(draw)
                data = data[:at] + other[draw.randrange(len(other)) :]
            case _:
                data = data[:at] + draw.randbytes(to - at) + data[to:]
    return data if draw.random() > 0.01 else draw.randbytes(draw.randint(0, 64))


@cache
def _tag(kind: type) -> str:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return str(info.tag)


@cache
def _fields(kind: type) -> tuple[inspect.Type, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return tuple(field.type for field in info.fields)


def _value(kind: inspect.Type, draw: random.Random) -> Any:
    match kind:
        case inspect.Metadata(inner):
            return _value(inner, draw)
        case inspect.IntType():
            return draw.randint(-1, 6) if draw.random() < 0.95 else draw.choice(_EDGES)
        case inspect.FloatType():
            return draw.choice((0.0, 0.5, 1.0, -1.0, float("nan"), float("inf"), draw.random()))
        case inspect.BoolType():
            return draw.random() < 0.5
        case inspect.StrType():
            return draw.choice(("", "float32", "phantom", "sgd", "server-0", "x" * 70))
        case inspect.ListType():
            return [_value(kind.item_type, draw) for _ in range(draw.randrange(3))]
        case inspect.TupleType():
            return [_value(each, draw) for each in kind.item_types]
        case inspect.VarTupleType():
            return [_value(kind.item_type, draw) for _ in range(draw.randrange(3))]
        case inspect.DictType():
            keys = [_value(kind.key_type, draw) for _ in range(draw.randrange(3))]
            return {key: _value(kind.value_type, draw) for key in keys}
        case inspect.UnionType():
            return _value(draw.choice(kind.types), draw)
        case inspect.StructType():
            fields = {field.encode_name: _value(field.type, draw) for field in kind.fields}
            return list(fields.values()) if kind.array_like else fields
        case inspect.NoneType():
            return None
        case inspect.BytesType():
            return draw.choice((b"", b"7", draw.randbytes(4)))
        case inspect.LiteralType():
            return draw.choice(kind.values)
        case _:
            return draw.randint(0, 3)
