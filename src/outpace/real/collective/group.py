"""A process group of torch.distributed.

A group lasts until a worker in it is lost. The workers that remain make the next one, of a higher
generation. Everything here blocks, without holding the interpreter.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import torch

from outpace.blocks.sums import TreeSum
from outpace.errors import ConfigError

dist: Any = torch.distributed  # not all of its parts have types

Backend: TypeAlias = Literal["gloo", "nccl"]

# No limit of their own: the coordinator, which knows the workers, ends operations.
_NO_LIMIT: Final = timedelta(days=365)
_LONGEST_S: Final = 86_400.0
_AT_ONCE: Final = 4  # pieces of an all-reduce that travel at once


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Where workers find each other. host: the address at which this one is reached.

    deterministic: sums are made in the order of the workers, as in virtual time. Then all send all
    what they have, which takes longer.
    """

    store: tuple[str, int]
    host: str
    backend: Backend
    deterministic: bool = False
    timeout_s: float = 1800.0  # for the slowest to come to the end of a step


def host_store(host: str) -> tuple[Any, int]:
    """Return a store through which workers find each other, at this address alone, and its port.

    Raises:
        ConfigError: if nothing can listen at the address.
    """
    try:
        with socket.create_server((host, 0), backlog=1024) as listening:
            port: int = listening.getsockname()[1]
            store = dist.TCPStore(
                host,
                port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=os.dup(listening.fileno()),
            )
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot listen at {host}: {error}") from None
    return store, port


def gpu_of(device: torch.device | None) -> str:
    """Return a name that no other GPU has; empty for a CPU, or None (several devices)."""
    if device is None or device.type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)[:64]


def backend_for(gpus: Sequence[str]) -> Backend:
    """Return NCCL if each worker has a GPU of its own, as NCCL requires (`gpu_of` each)."""
    return "nccl" if all(gpus) and len(set(gpus)) == len(gpus) else "gloo"


def own_address(endpoint: str) -> str:
    """Return this machine's address on its way to an endpoint (tcp://...)."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        address: str = probe.getsockname()[0]
        return address
    return host


class Group:
    """A group of `members` (workers' numbers), of which this process is `me`.

    All methods raise RuntimeError if a member cannot be reached.

    Args:
        name: the same in all members, and in no other group of the run.

    Raises:
        RuntimeError: if a member cannot be reached.
    """

    def __init__(
        self, settings: GroupSettings, name: int | str, members: Sequence[int], me: int
    ) -> None:
        self._members = list(members)
        self._deterministic = settings.deterministic
        self._group: Any = None
        if len(members) == 1:
            return
        host, port = settings.store
        limit = timedelta(seconds=min(settings.timeout_s, _LONGEST_S))
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
        shared = dist.PrefixStore(f"group {name}", store)
        rank = self._members.index(me)
        if settings.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _NO_LIMIT
            self._group = dist.ProcessGroupNCCL(shared, rank, len(members), options)
            return
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=settings.host)]
        options._timeout = _NO_LIMIT
        options._threads = _AT_ONCE
        self._group = dist.ProcessGroupGloo(shared, rank, len(members), options)

    def all_reduce(self, pieces: Iterable[torch.Tensor]) -> None:
        """Replace each piece by its sum over all members.

        Later pieces are made while earlier ones travel. All members must have as many pieces, of
        the same sizes.
        """
        if self._group is None:
            deque(pieces, maxlen=0)
            return
        if self._deterministic:
            for values in pieces:
                self._add_in_order(values)
            return
        under_way = [(self._group.allreduce([values]), values) for values in pieces]
        for work, values in under_way:
            _wait(work, values)

    def _add_in_order(self, values: torch.Tensor) -> None:
        found = [torch.empty_like(values) for _ in self._members]
        _wait(self._group.allgather([found], [values]), values)
        total = TreeSum(max(self._members) + 1)
        for member, theirs in zip(self._members, found, strict=True):
            total.add(member, theirs)
        values.copy_(total.total())

    def broadcast(self, values: torch.Tensor, source: int) -> None:
        """Replace these values by those of worker `source`."""
        if self._group is not None:
            options = dist.BroadcastOptions()
            options.rootRank = self._members.index(source)
            _wait(self._group.broadcast([values], options), values)

    def swap(self, mine: torch.Tensor, theirs: torch.Tensor, other: int, tag: int) -> None:
        """Send `mine` to worker `other`, and receive `theirs`."""
        rank = self._members.index(other)
        steps = [(self._group.send, mine), (self._group.recv, theirs)]
        if rank < self._group.rank():  # NCCL does one after the other: the lower gives first
            steps.reverse()
        begun = [(begin([values], rank, tag), values) for begin, values in steps]
        for work, values in begun:
            _wait(work, values)


def _wait(work: Any, values: torch.Tensor) -> None:
    work.wait()
    if values.is_cuda:  # so far it was only queued
        torch.cuda.current_stream(values.device).synchronize()
