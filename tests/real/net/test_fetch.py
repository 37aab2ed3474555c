"""Files that go over a connection in pieces, which their receiver asks for."""

from __future__ import annotations

import pytest
import torch

from outpace.errors import ProtocolError
from outpace.real.net.block_frames import PIECE_BYTES, head_of
from outpace.real.net.checkpoint_messages import FilePiece, SentFile
from outpace.real.net.fetch import Fetch, Pieces

MIB = PIECE_BYTES


def piece(request, size):
    head = head_of(torch.empty(size, dtype=torch.uint8))
    return FilePiece(request.number, request.file, request.offset, head)


def test_a_small_part_is_asked_for_in_order_four_pieces_at_a_time():
    fetch = Fetch(7, [SentFile("a", 3 * MIB + 5), SentFile("b", 2 * MIB)])
    first = fetch.ask()
    assert first == [FilePiece(7, 0, n * MIB) for n in range(4)]  # the fourth has 5 bytes
    assert fetch.ask() == []
    assert fetch.due(piece(first[1], MIB)) is None  # the one before is due
    assert fetch.due(piece(first[0], MIB)) == MIB
    fetch.take()
    assert fetch.ask() == []  # it is not written yet
    fetch.written(MIB)
    assert fetch.ask() == [FilePiece(7, 1, 0)]  # 3 MiB and 5 bytes are on the way
    assert fetch.ask() == []
    for request, size in zip(first[1:], (MIB, MIB, 5), strict=True):
        assert fetch.due(piece(request, size)) == size
        fetch.take()
        fetch.written(size)
    assert fetch.ask() == [FilePiece(7, 1, MIB)]
    assert not fetch.is_done
    for _ in range(2):
        fetch.take()
        fetch.written(MIB)
    assert fetch.is_done


def test_a_process_that_answers_between_iterations_has_sent_any_part_after_seventeen_answers():
    size = 1000 * MIB + 1
    fetch, answers = Fetch(1, [SentFile("a", size)]), 0
    while not fetch.is_done:
        requests = fetch.ask()
        assert sum(min(MIB, size - each.offset) for each in requests) <= size / 16
        for request in requests:
            fetch.take()
            fetch.written(min(MIB, size - request.offset))
        answers += 1
    assert answers == 17


def test_an_empty_file_is_refused():
    with pytest.raises(ProtocolError, match="an empty file"):
        Fetch(1, [SentFile("a", 1), SentFile("b", 0)])


@pytest.mark.parametrize(
    "request_",
    [FilePiece(2, 0, 0), FilePiece(1, 1, 0), FilePiece(1, 0, MIB), FilePiece(1, 0, 1)],
)
def test_a_request_that_is_not_due_changes_nothing(request_):
    pieces = Pieces(1, [SentFile("a", MIB + 3), SentFile("b", 2)])
    with pytest.raises(ProtocolError, match="not due"):
        pieces.size(request_)
    due = [FilePiece(1, 0, 0), FilePiece(1, 0, MIB), FilePiece(1, 1, 0)]
    assert [pieces.size(each) for each in due] == [MIB, 3, 2]
    with pytest.raises(ProtocolError, match="not due"):  # each is sent once
        pieces.size(due[-1])
