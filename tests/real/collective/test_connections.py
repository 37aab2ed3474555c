"""Strangers at the socket where a worker listens for the other members of its group."""

from __future__ import annotations

import contextlib
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore

from outpace.real.collective import group as groups
from outpace.real.collective.connections import Door, refuse_new, shut_down_others
from outpace.real.collective.group import Group, GroupSettings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs socket filters")
HOST = "127.0.0.1"


def listen() -> socket.socket:
    return socket.create_server((HOST, 0))


def test_after_a_group_is_formed_new_connections_are_refused_and_those_of_strangers_shut_down():
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(listen())
        address = listener.getsockname()
        ends = []
        for _ in range(3):
            client = opened.enter_context(socket.create_connection(address, 5))
            ends.append((client, opened.enter_context(listener.accept()[0])))
        (member, at_member), *strangers = ends
        refuse_new(address)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, 0.05)
        members = {member.getsockname()}
        everyone = {client.getsockname() for client, _ in ends}
        assert shut_down_others(address, everyone) == 0
        # Addresses that nobody has, as many as there are connections: a network changed them.
        assert shut_down_others(address, {("192.0.2.1", port) for port in range(3)}) == 0
        assert shut_down_others(address, members) == 2
        assert [client.recv(1) for client, _ in strangers] == [b"", b""]
        member.sendall(b"x")
        assert at_member.recv(1) == b"x"


def test_a_group_works_behind_closed_doors(monkeypatch):
    doors: list[Door] = []
    monkeypatch.setattr(groups, "Door", lambda make: doors.append(Door(make)) or doors[-1])
    store = HashStore()

    def add_up(me: int) -> tuple[float, Group]:
        group = Group(GroupSettings(store, HOST, "gloo"), 0, range(3), me)
        values = torch.tensor([1.0])
        for _ in range(3):
            group.all_reduce([values])
        return values.item(), group

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(add_up, range(3)))
    assert [value for value, _ in found] == [27, 27, 27]
    for door in doors:
        assert door.address is not None
        with pytest.raises(TimeoutError):
            socket.create_connection(door.address, 0.05)
