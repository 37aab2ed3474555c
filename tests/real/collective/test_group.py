"""The groups of torch.distributed: their backend, and where they listen."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed import HashStore

from outpace.real.collective.group import Group, GroupSettings, backend_for, own_address
from outpace.real.net.addresses import LOOPBACK


@pytest.mark.parametrize(
    ("gpus", "backend"),
    [
        (["a", "b", "c"], "nccl"),
        (["a", "b", "a"], "gloo"),  # NCCL refuses two on one GPU
        (["a", "", "c"], "gloo"),
        (["", "", ""], "gloo"),
    ],
)
def test_nccl_is_for_workers_with_a_gpu_each(gpus, backend):
    assert backend_for(gpus) == backend


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the system's table")
def test_members_on_one_machine_listen_on_the_loopback_interface_only():
    before, store = _listening(), HashStore()
    settings = GroupSettings(store, own_address(f"tcp://{LOOPBACK}:1"), "gloo")
    with ThreadPoolExecutor(2) as threads:
        groups = list(threads.map(lambda me: Group(settings, 0, range(2), me), range(2)))
    assert len(groups) == len(_listening() - before) == 2
    assert {address for address, _ in _listening() - before} == {LOOPBACK}


def _listening() -> set[tuple[str, int]]:
    """Return the addresses and ports at which this process listens for TCP over IPv4."""
    mine = {os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
            host, port = words[1].split(":")
            found.add((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
    return found
