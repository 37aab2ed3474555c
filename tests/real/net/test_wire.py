"""Frames of any content give a message, or raise WireError without a change."""

from __future__ import annotations

import random
import struct
import tracemalloc
import typing
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch
from tests.fuzz.messages import decoded, random_message
from tests.support.blocks_on_the_wire import apart, due, with_block

from outpace.blocks.block import Block, Phantom
from outpace.blocks.packing import DTYPES, PHANTOM, BlockHead
from outpace.blocks.sums import all_finite
from outpace.real.net import block_frames, wire
from outpace.real.net.block_frames import PIECE_BYTES, head_in
from outpace.real.net.messages import BlockPiece, Ready
from outpace.real.net.wire import (
    ANY_MESSAGE,
    HEADER_BYTES,
    Envelope,
    Incoming,
    Outgoing,
    WireError,
)
from outpace.sync.messages import Push, WireMessage

RUN, GENERATION = 1234567890123, 3
KINDS = [kind for kind in typing.get_args(ANY_MESSAGE) if kind is not BlockPiece]
SMALL_PIECE = 48  # bytes: blocks of many pieces stay small


def block_of(head: BlockHead, first: int = 0) -> Block:
    if head.dtype == PHANTOM:
        return Phantom(head.elements)
    content = torch.arange(first, first + head.nbytes).to(torch.uint8)
    return content.view(DTYPES[head.dtype])


def parts_of(said: Sequence[WireMessage]) -> list[list[bytes]]:
    out = Outgoing(RUN, GENERATION)
    return [[bytes(frame) for frame in part] for m in said for part in out.frames(m)]


def same(ours: WireMessage, theirs: WireMessage | None) -> bool:
    assert theirs is not None
    (message, block), (other, taken) = apart(ours), apart(theirs)
    if type(message) is not type(other) or plain(message) != plain(other):
        return False
    if isinstance(block, torch.Tensor) and isinstance(taken, torch.Tensor):
        content = torch.equal(block.view(torch.uint8), taken.view(torch.uint8))
        return block.dtype == taken.dtype and content
    return block == taken


def plain(message: WireMessage) -> bytes:
    """Return a message with bytes in place of numbers, because NaN is not equal to itself."""
    return msgspec.msgpack.encode(message)


@contextmanager
def small_pieces() -> Iterator[None]:
    with (
        mock.patch.object(block_frames, "PIECE_BYTES", SMALL_PIECE),
        mock.patch.object(wire, "PIECE_BYTES", SMALL_PIECE),
    ):
        yield


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_messages_of_each_kind_come_out_as_they_went_in(kind):
    """Damaged messages are in tests/fuzz."""
    draw, said = random.Random(0), list[WireMessage]()
    while len(said) < 4:
        message = decoded(random_message(draw, [kind]))
        if isinstance(message, kind):
            head = BlockHead("float32", draw.choice([0, 11, 12, 13, 30]))
            has_block = head_in(message) is not None
            said.append(with_block(message, block_of(head)) if has_block else message)
    with small_pieces():
        incoming = Incoming(RUN, GENERATION, due)
        taken = [incoming.take(part) for part in parts_of(said)]
    whole = [message for message in taken if message is not None]
    assert all(same(one, other) for one, other in zip(said, whole, strict=True))


@pytest.mark.parametrize("dtype", [*DTYPES, PHANTOM])
@pytest.mark.parametrize("nbytes", [0, 8, PIECE_BYTES - 8, PIECE_BYTES, PIECE_BYTES + 8, 3 << 20])
def test_blocks_around_the_size_of_a_piece(dtype, nbytes):
    head = BlockHead(dtype, nbytes // (1 if dtype == PHANTOM else DTYPES[dtype].itemsize))
    said = Push(1, 2, 3, block_of(head, 7))
    parts = parts_of([said])
    assert len(parts) == max(1, -(-nbytes // PIECE_BYTES))
    incoming = Incoming(RUN, GENERATION, due)
    *before, last = [incoming.take(part) for part in parts]
    assert before == [None] * (len(parts) - 1)
    assert same(said, last)


def header(message: bytes, run: int = RUN, generation: int = GENERATION, serial: int = 0) -> bytes:
    return msgspec.msgpack.encode(Envelope(run, generation, serial, msgspec.Raw(message)))


def pack(*message: Any) -> bytes:
    return header(msgspec.msgpack.encode(message))


PUSH = b"\x96\xa4push\x00\x00\x00\xc0"  # a push up to its settings
MILLION = struct.pack(">I", 1_000_000)
REFUSED = {
    "nothing": (b"", "truncated"),
    "another run": (header(b"\x91\xa5ready", run=RUN + 1), "another run"),
    "an old generation": (header(b"\x91\xa5ready", generation=2), "generation 2 where 3 is due"),
    "played again": (header(b"\x91\xa5ready", serial=1), "serial number 1 where 0 was due"),
    "a long header": (bytes(HEADER_BYTES + 1), "too long"),
    "an unknown kind": (pack("evil"), "Invalid value 'evil'"),
    "a field too many": (pack("ready", 1), "cannot be decoded"),
    "no worker": (pack("pull", -1, 0, 0.5), "cannot be decoded"),
    "worker 2**31": (pack("pull", 2**31, 0, 0.5), "cannot be decoded"),
    "iteration 2**63": (pack("pull", 0, 2**63, 0.5), "cannot be decoded"),
    "a coin of 1": (pack("pull", 0, 0, 1.0), "cannot be decoded"),
    "a coin of NaN": (pack("pull", 0, 0, float("nan")), "cannot be decoded"),
    "a long text": (pack("notice", "x" * 100_001), "cannot be decoded"),
    "text that is none": (header(b"\x92\xa6notice\xa2\xff\xfe"), "is not UTF-8 text"),
    "bytes behind it": (header(b"\x91\xa5ready") + b"\x00", "trailing"),
    "deep nesting": (header(PUSH + b"\x91\x81\xa1a" + b"\x91" * 10**6 + b"\xc0"), "recursion"),
    "a list of 4 billion": (header(PUSH + b"\xdd\xff\xff\xff\xff"), "truncated"),
    "an unknown dtype": (pack("push", 0, 0, 0, ["float31", 8]), "has none"),
    "a bomb from elsewhere": (
        header(PUSH + b"\x91\x81\xa1a\xdd" + MILLION + b"\x80" * 10**6, run=1),
        "another run",
    ),
}


@pytest.mark.parametrize(("frame", "why"), REFUSED.values(), ids=REFUSED)
def test_a_bad_header_is_refused_at_little_cost(frame, why):
    incoming = Incoming(RUN, GENERATION, due)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=why) as refusal:
            incoming.take([frame])
        assert tracemalloc.get_traced_memory()[1] < 500_000 + len(frame)
    finally:
        tracemalloc.stop()
    assert len(str(refusal.value)) < 500
    assert incoming.take(parts_of([Ready()])[0]) == Ready()


def push(dtype: str, elements: int, *pieces: bytes) -> list[bytes]:
    return [pack("push", 0, 0, 0, [dtype, elements]), *pieces]


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "1 or 2 frames, not 0"),
        ([b"", b"", b""], "1 or 2 frames, not 3"),
        (push("float32", 3), "announces a block and has none"),
        (push("float64", 3, bytes(24)), "3 elements of float64 where 3 of float32 were due"),
        (push("float32", 2, bytes(8)), "2 elements of float32 where 3 of float32"),
        (push("float32", 3, bytes(11)), "first piece has 11 bytes"),
        (push("float32", 3, bytes(13)), "first piece has 13 bytes"),
        ([pack("pull", 0, 0, 0.5), b""], "bytes that it does not announce"),
        ([pack("snapshot", 0, 0, 0, 0, 0, ["float32", 3]), bytes(12)], "must not come"),
        ([pack("more", 0), bytes(12)], "without the block"),
    ],
)
def test_a_block_that_is_not_due_is_refused(frames, why):
    incoming = Incoming(
        RUN, GENERATION, lambda message: ("float32", 3) if isinstance(message, Push) else None
    )
    with (
        mock.patch.object(torch, "empty", side_effect=AssertionError),
        pytest.raises(WireError, match=why),
    ):
        incoming.take(frames)
    taken = incoming.take(push("float32", 3, bytes(12))) or pytest.fail("no message")
    message, block = apart(taken)
    assert message == Push(0, 0, 0, BlockHead("float32", 3))
    assert isinstance(block, torch.Tensor)
    assert block.tolist() == [0, 0, 0]


def test_in_the_middle_of_a_block_only_its_next_piece_is_taken():
    head = BlockHead("float32", 40)
    said = Push(0, 0, 0, block_of(head))
    with small_pieces():
        first, second, *rest = parts_of([said])
        incoming = Incoming(RUN, GENERATION, due)
        assert incoming.take(first) is None
        ready = parts_of([Ready()] * 2)[1]
        far = [
            msgspec.msgpack.encode((RUN, GENERATION, 1, BlockPiece(2 * SMALL_PIECE))),
            second[1],
        ]
        for wrong, why in (
            (first, "serial number 0"),
            (ready, "in the middle of a block"),
            (rest[0], "serial"),
            (far, "does not continue"),
            ([second[0]], "without"),
            ([second[0], b""], "does not"),
        ):
            with pytest.raises(WireError, match=why):
                incoming.take(wrong)
        *_, whole = [incoming.take(part) for part in (second, *rest)]
    assert same(said, whole)


def test_what_comes_again_is_refused_whole_or_in_the_middle_of_a_block():
    head = BlockHead("float32", 40)
    said = [Ready(), Push(0, 0, 0, block_of(head)), Ready()]
    with small_pieces():
        incoming, taken = Incoming(RUN, GENERATION, due), []
        parts = parts_of(said)
        for place, part in enumerate(parts):
            taken.append(incoming.take(part))
            for before in parts[: place + 1]:
                with pytest.raises(WireError, match="it has serial number"):
                    incoming.take(before)
    assert all(map(same, said, [message for message in taken if message is not None]))


def test_what_is_announced_costs_no_memory_before_it_comes():
    incoming = Incoming(RUN, GENERATION, due)
    assert incoming.take([pack("push", 0, 0, 0, ["float32", 2**58]), bytes(PIECE_BYTES)]) is None


def test_a_large_block_knows_whether_it_is_finite():
    for bad in (None, 0, 2):
        with small_pieces():
            block = torch.ones(3 * SMALL_PIECE // 4)
            if bad is not None:
                block[bad * SMALL_PIECE // 4] = float("nan")
            incoming = Incoming(RUN, GENERATION, due, all_finite)
            *_, got = [incoming.take(part) for part in parts_of([Push(0, 0, 0, block)])]
        assert isinstance(got, Push)
        assert got.gradient.finite is (bad is None)
        assert all_finite(got.gradient) is (bad is None)


def test_a_block_is_held_by_its_receiver_alone():
    with small_pieces():
        incoming = Incoming(RUN, GENERATION, due)
        said = [Push(0, 0, 0, torch.ones(SMALL_PIECE))]
        *_, got = [incoming.take(part) for part in parts_of(said)]
        assert isinstance(got, Push)
        held = weakref.ref(got.gradient)
        del got
        assert held() is None


def test_a_message_of_another_run_is_refused_before_it_is_decoded():
    undecodable = header(b"\x91\xa4evil", run=RUN + 1)
    with pytest.raises(WireError, match="another run"):
        Incoming(RUN, GENERATION, due).take([undecodable])


def test_there_are_no_more_kinds_of_messages_than_there_were():
    assert len(typing.get_args(ANY_MESSAGE)) <= 50, "say it with one of those that there are"
