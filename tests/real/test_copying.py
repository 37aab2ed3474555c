"""Files that go over a connection in pieces, which their receiver asks for."""

from __future__ import annotations

import zlib

import pytest
import torch
from tests.support.blocks_on_the_wire import announced

from outpace.errors import ProtocolError
from outpace.real.background import do_now
from outpace.real.copying import FetchedFiles, Incoming, Offer
from outpace.real.net.block_frames import PIECE_BYTES
from outpace.real.net.checkpoint_messages import FilePiece
from outpace.record.checkpoints import Part

MIB = PIECE_BYTES


def offered(*sizes):
    return Offer(7, [Part(str(place), size, 0) for place, size in enumerate(sizes)])


def incoming(*sizes):
    return Incoming(offered(*sizes), None, None)


def test_as_much_is_asked_for_as_is_written_in_the_order_of_the_files():
    files = incoming(3 * MIB + 5, 2 * MIB)
    first = [FilePiece(7, 0, 0), FilePiece(7, 0, MIB), FilePiece(7, 0, 2 * MIB)]
    assert files.ask() == [*first, FilePiece(7, 0, 3 * MIB)]
    assert files.ask() == []
    for request in first:
        assert files.due(request) == MIB
        files.take()
        files.written(MIB)
    assert files.due(FilePiece(7, 0, 2 * MIB)) is None
    assert files.due(FilePiece(7, 0, 3 * MIB)) == 5
    assert files.ask() == [FilePiece(7, 1, 0), FilePiece(7, 1, MIB)]
    for size in (5, MIB, MIB):
        assert not files.is_done
        files.take()
        files.written(size)
    assert files.is_done


@pytest.mark.parametrize("size", [0, -1])
def test_an_empty_file_is_refused(size):
    with pytest.raises(ProtocolError, match="an empty file"):
        incoming(1, size)


@pytest.mark.parametrize(
    "request_",
    [FilePiece(6, 0, 0), FilePiece(7, 2, 0), FilePiece(7, 0, 2 * MIB), FilePiece(7, 0, 1)],
)
def test_a_piece_that_was_not_offered_is_refused(request_):
    with pytest.raises(ProtocolError, match="was not offered"):
        offered(MIB + 3, 2).piece_bytes(request_)


def fetched(folder, data, crc32):
    """Return what is told when this content of a file with this checksum was fetched."""
    asked, told = [], []
    files = FetchedFiles(lambda _, request: asked.append(request), do_now)
    files.add("server-0", Offer(1, [Part("a", data.numel(), crc32)]), folder, told.append)
    for request in asked:
        piece = data[request.offset : request.offset + MIB]
        answer = FilePiece(1, 0, request.offset, piece)
        assert files.expected("server-0", announced(answer)) == ("uint8", piece.numel())
        files.take("server-0", answer)
    return told


def test_a_file_is_written_as_it_was_or_the_error_is_told(tmp_path):
    data = torch.arange(5 * MIB + 3).to(torch.uint8)
    content = data.numpy().tobytes()
    assert fetched(tmp_path, data, zlib.crc32(content)) == [None]
    assert (tmp_path / "a").read_bytes() == content
    (error,) = fetched(tmp_path, data[:4], 0)
    assert "File exists" in str(error)
    (tmp_path / "a").unlink()
    (error,) = fetched(tmp_path, data, zlib.crc32(content) + 1)
    assert str(error) == "a did not arrive as it was written"


def test_pieces_of_what_was_given_up_are_taken_and_not_written(tmp_path):
    asked = []
    files = FetchedFiles(lambda _, request: asked.append(request), do_now)
    files.add("server-0", offered(2 * MIB), tmp_path, print)
    files.give_up(7)
    data = torch.zeros(MIB, dtype=torch.uint8)
    for request in asked:
        piece = FilePiece(7, request.file, request.offset, data)
        assert files.expected("server-0", announced(piece)) == ("uint8", MIB)
        files.take("server-0", piece)
    with pytest.raises(ProtocolError, match="not asked for"):
        files.take("server-0", FilePiece(8, 0, 0, data))
    assert list(tmp_path.iterdir()) == []
