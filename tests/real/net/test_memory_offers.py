"""Offers of shared memory and their answers, also of a hostile peer."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator

import msgspec
import pytest
import torch
from tests.real.net.memory_ends import ELEMENTS, descriptors

from outpace.errors import ProtocolError
from outpace.real.net.memory.passing import Asking
from outpace.real.net.memory_messages import DropSlot, HasSlot, LacksSlot, OfferSlot
from outpace.support.machine import boot_id

# -- offers and their answers -----------------------------------------------------------------


def test_a_slot_is_not_dropped_before_its_receiver_has_answered(given):
    given.delivers = False
    for pages in (1, 2, 3, 4):
        given.offer(pages * ELEMENTS)
    assert [message.slot for message in given.sent] == [0, 1, 2]
    assert all(isinstance(message, OfferSlot) for message in given.sent)
    given.delivers = True
    for offer in given.sent[:]:
        given.receiver.take(offer)
    given.until(lambda: given.sender.has == {0, 1, 2})
    given.share(4 * ELEMENTS)  # in place of another one
    assert given.sent[3:] == [DropSlot(0), given.sent[-1]]
    assert not given.notes


def test_an_answer_about_a_slot_that_was_dropped_changes_nothing(given):
    number = given.share()
    given.sender.take(LacksSlot(7, "it is gone", is_final=True))
    given.sender.take(HasSlot(7))
    assert not given.notes
    assert given.sender.has == {number}
    assert given.share() == number


def test_a_slot_that_is_dropped_while_it_is_fetched_is_not_kept(given):
    given.offer()
    before = descriptors()
    given.receiver.take(DropSlot(0))
    given.turns()
    assert not given.answers
    assert descriptors() < before
    with pytest.raises(ProtocolError, match="not here"):
        given.receiver.block(0, ELEMENTS, torch.float32, None)


def test_a_token_that_a_lost_peer_has_not_used_gives_nothing(read):
    read.share()
    read.delivers = False
    kept = read.pool.empty(ELEMENTS, torch.float32)
    other = read.pool.empty(ELEMENTS, torch.float32)
    read.send(other)
    offer = read.sent[-1]
    assert isinstance(offer, OfferSlot)
    read.sender.close()
    found: list[int | OSError] = []
    Asking(read.clock, offer.address, offer.token, found.append)
    read.until(lambda: found)
    assert isinstance(found[0], OSError)
    assert kept is not None


def test_an_offer_that_is_read_after_the_connection_has_ended_is_passed_over(read):
    read.share()
    read.delivers = False
    kept = read.pool.empty(ELEMENTS, torch.float32)
    read.send(read.pool.empty(ELEMENTS, torch.float32))
    read.receiver.close(hears=True)
    read.answers.clear()
    read.receiver.take(read.sent[-1])
    read.turns()
    assert not read.other.lanes
    assert not read.answers
    assert kept is not None


# -- a hostile peer ---------------------------------------------------------------------------


def offer(number: int, address: str) -> OfferSlot:
    return OfferSlot(number, 4096, address, f"{number:064x}", boot_id())


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A socket that never answers."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0outpace-{secrets.token_hex(16)}")
    listener.listen(1000)
    yield listener
    listener.close()


def address_of(listener: socket.socket) -> str:
    return str(listener.getsockname()[1:].decode())


def test_offers_that_wait_for_their_slots_are_limited(read, silent):
    before = descriptors()
    for number in range(64):
        read.receiver.take(offer(number, address_of(silent)))
    with pytest.raises(ProtocolError, match="too many"):
        read.receiver.take(offer(64, address_of(silent)))
    assert descriptors() == before + 64
    read.receiver.close()
    assert descriptors() == before


def test_an_offer_whose_slot_does_not_come_is_refused_after_some_seconds(read, silent, monkeypatch):
    now_ns = [0]
    monkeypatch.setattr("outpace.real.net.memory.pool.monotonic_ns", lambda: now_ns[0])
    before = descriptors()
    read.receiver.take(offer(3, address_of(silent)))
    now_ns[0] = 9 * 10**9
    read.turns()
    assert not read.answers
    now_ns[0] = 11 * 10**9
    read.turns()
    assert read.answers == [LacksSlot(3, "Connection timed out")]
    assert descriptors() == before


@pytest.mark.parametrize(
    ("address", "token"),
    [
        ("other", "0" * 64),
        ("outpace-" + "0" * 31, "0" * 64),
        ("outpace-" + "0" * 32 + "\n", "0" * 64),
        ("outpace-" + "G" * 32, "0" * 64),
        ("outpace-" + "0" * 32, "0" * 63),
        ("outpace-" + "0" * 32, "GET / HTTP/1.0\n"),
    ],
)
def test_an_offer_of_anything_else_than_a_slot_is_refused_and_connects_to_nothing(
    read, address, token
):
    before = descriptors()
    with pytest.raises(ProtocolError, match="no process"):
        read.receiver.take(OfferSlot(0, 4096, address, token, boot_id()))
    assert descriptors() == before
    assert not read.other.lanes
    assert not read.answers


def test_a_process_of_another_user_is_not_shown_the_token(read, silent, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    read.receiver.take(offer(0, address_of(silent)))
    assert read.answers == [LacksSlot(0, "the process belongs to another user", is_final=True)]
    peer, _ = silent.accept()
    assert peer.recv(100) == b""
    peer.close()


def test_a_socket_that_cannot_be_read_yet_is_waited_for(given):
    """The clock may mean an earlier socket that had the same number."""
    given.offer()
    (asking,) = given.receiver._asking.values()
    asking._receive()
    assert asking.is_open
    given.turns(1)  # the giver has accepted
    (peer,) = given.pool._giver._waiting.values()
    token = peer.recv(256)
    given.pool._giver._answer(peer)
    assert peer.fileno() >= 0
    asking._socket.send(token)
    given.until(lambda: given.sender.has)


def test_a_system_without_such_memory_shares_none(given, monkeypatch):
    monkeypatch.delattr("os.memfd_create")
    for _ in range(5):
        assert given.send(torch.zeros(ELEMENTS)) is None
    assert not given.notes
    given.receiver.take(offer(0, "outpace-" + "0" * 32))
    assert given.answers == [LacksSlot(0, "", is_final=True)]


def test_a_process_of_another_machine_is_offered_nothing_more_and_that_is_no_news(given):
    given.delivers = False
    given.offer()
    (offered,) = given.sent
    assert offered.boot == boot_id()
    given.receiver.take(msgspec.structs.replace(offered, boot="of another machine"))
    assert given.answers == [LacksSlot(offered.slot, "", is_final=True)]
    for _ in range(3):
        given.send(torch.zeros(ELEMENTS))
    assert given.sent == [offered]
    assert not given.notes


def test_a_container_of_the_same_machine_is_named_once(given):
    given.delivers = False
    given.offer()
    (offered,) = given.sent
    # Where it is read, no socket has its address.
    elsewhere = msgspec.structs.replace(offered, address="outpace-" + "0" * 32)
    given.receiver.take(elsewhere)
    for _ in range(3):
        given.send(torch.zeros(ELEMENTS))
    assert given.sent == [offered]
    assert given.notes == [
        "blocks for processes that cannot get memory of this one go over the network "
        "(another container or network namespace)"
    ]
