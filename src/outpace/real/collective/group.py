"""A process group of torch.distributed.

A group lasts until one of its workers is lost; the remaining workers then make a new group with a
higher generation. All operations block, but release the interpreter lock.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from outpace.blocks.sums import TreeSum
from outpace.real.collective.connections import Door
from outpace.real.collective.shared_buffers import SharedBuffers
from outpace.real.collective.sums_in_memory import Fill, add_share, fill_shares_of_others
from outpace.real.collective.swapping import NotShared, meet, swapped

dist: Any = torch.distributed  # parts of it have no type annotations

Backend: TypeAlias = Literal["gloo", "nccl"]

# The coordinator finds lost workers and ends their groups.
_NO_LIMIT: Final = timedelta(days=365)
_AT_ONCE: Final = 4  # pieces of an all-reduce that travel at once


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of the groups in which workers add up values.

    Args:
        store: through which workers find each other. It limits how long a member waits for others
            to join a group, which each does at the end of a step.
        host: address at which other workers reach this one.
        deterministic: add values in the order of the workers, as in virtual time. This is slower,
            because each worker sends its values to all others.
        limit: longest time of an operation. Without one, the coordinator must find lost workers
            and end their groups.
        device: of the values, for nccl. What else workers send each other goes through it, too.
    """

    store: Store
    host: str
    backend: Backend
    deterministic: bool = False
    limit: timedelta | None = None
    device: torch.device | None = None


def gpu_of(device: torch.device | None) -> str:
    """Return a unique name of a GPU; empty for a CPU, or for None (several devices)."""
    if device is None or device.type != "cuda" or not dist.is_nccl_available():
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)[:64]


def backend_for(gpus: Sequence[str]) -> Backend:
    """Return NCCL if each worker has its own GPU, else gloo. gpus: `gpu_of` each worker."""
    return "nccl" if all(gpus) and len(set(gpus)) == len(gpus) else "gloo"


def own_address(endpoint: str) -> str:
    """Return the address from which this machine reaches an endpoint (tcp://...)."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        address: str = probe.getsockname()[0]
        return address
    return host


def gloo_group(store: Any, host: str, rank: int, size: int, timeout: timedelta = _NO_LIMIT) -> Any:
    """Return a ProcessGroupGloo, in which no stranger takes part.

    Args:
        store: of this group alone.
        host: address at which other members reach this one.
        timeout: longest time of an operation.

    Raises:
        RuntimeError: a member cannot be reached.
    """
    options = dist.ProcessGroupGloo._Options()
    door = Door(lambda: dist.ProcessGroupGloo.create_device(hostname=host))
    options._devices = [door.made]
    options._timeout = timeout
    options._threads = _AT_ONCE
    group = dist.ProcessGroupGloo(store, rank, size, options)
    door.close(store, rank, size)
    return group


class Group:
    """A group of workers. `members` and `me`, this worker, are worker numbers.

    All methods raise RuntimeError if a member cannot be reached.

    Args:
        name: unique name of the group in the run, equal in all members.

    Raises:
        RuntimeError: if a member cannot be reached.
    """

    def __init__(
        self, settings: GroupSettings, name: int | str, members: Sequence[int], me: int
    ) -> None:
        self._members = list(members)
        self._rank = rank = self._members.index(me)
        self._deterministic = settings.deterministic
        self._device = settings.device if settings.backend == "nccl" else None
        self._group: Any = None
        # Buffers of all members, by rank, for each of this one; see `shares`.
        self._mapped: dict[SharedBuffers, list[Sequence[torch.Tensor]]] = {}
        self._is_shared = len(members) > 1 and settings.backend == "gloo"
        if len(members) == 1:
            return
        self._store = shared = dist.PrefixStore(f"group {name}", settings.store)
        limit = settings.limit or _NO_LIMIT
        if settings.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            self._group = dist.ProcessGroupNCCL(shared, rank, len(members), options)
            return
        self._group = gloo_group(shared, settings.host, rank, len(members), limit)

    def all_reduce(self, pieces: Iterable[torch.Tensor]) -> None:
        """Replace each piece by its sum over all members.

        Later pieces are computed while earlier ones travel. All members must pass the same number
        of pieces, of the same sizes.
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

    def shares(self, memory: SharedBuffers, note: Callable[[str], object]) -> bool:
        """True if the members have mapped each other's buffers, for `all_reduce_in`.

        All members must ask together. The first time, they map them. If one of them cannot, none
        of them shares any memory in this group.

        Args:
            note: called in one member with why they share none.
        """
        if self._is_shared and memory not in self._mapped:
            size, name = len(self._members), str(len(self._mapped))
            try:
                found = swapped(memory, self._group, self._store, name, self._rank, size)
                self._mapped[memory] = found
            except NotShared as reason:
                self._is_shared = False
                self._mapped.clear()
                if str(reason):
                    note(f"all-reduces go over the network: {reason}")
        return self._is_shared

    def all_reduce_in(self, memory: SharedBuffers, fill: Fill, checked: int | None = None) -> bool:
        """Replace the buffers by their sums over all members, in the order of the workers.

        Args:
            memory: of which `shares` said that it is shared.
            fill: writes this member's values into a part of a buffer.
            checked: as for `add_share`.

        Returns:
            True if the sums are finite: the same answer for all members.
        """
        buffers = self._mapped[memory]
        fill_shares_of_others(memory.tensors, self._rank, len(self._members), fill)
        meet(self._group)  # all have filled what others add up
        is_finite = add_share(self._members, self._rank, buffers, fill, checked)
        return not meet(self._group, not is_finite)  # all shares are in all buffers

    def count(self, said: bool) -> int:
        """Return how many members said yes, in a group that shares memory."""
        return meet(self._group, said)

    def _add_in_order(self, values: torch.Tensor) -> None:
        found = [torch.empty_like(values) for _ in self._members]
        _wait(self._group.allgather([found], [values]), values)
        total = TreeSum(max(self._members) + 1)
        for member, theirs in zip(self._members, found, strict=True):
            total.add(member, theirs)
        values.copy_(total.total())

    def broadcast(self, values: torch.Tensor, source: int) -> None:
        """Replace `values` by those of worker `source`."""
        if self._group is not None:
            options = dist.BroadcastOptions()
            options.rootRank = self._members.index(source)
            _wait(self._group.broadcast([values], options), values)

    def send(self, values: torch.Tensor, to: int, tag: int) -> None:
        """Send values to another worker."""
        there = self._there(values)
        _wait(self._group.send([there], self._members.index(to), tag), there)

    def receive(self, values: torch.Tensor, source: int, tag: int) -> None:
        """Replace `values` by those that another worker sends."""
        there = self._there(values)
        _wait(self._group.recv([there], self._members.index(source), tag), there)
        _take_back(values, there)

    def swap(self, mine: torch.Tensor, theirs: torch.Tensor, other: int, tag: int) -> None:
        """Send `mine` to worker `other`, and receive `theirs`."""
        rank, there = self._members.index(other), self._there(theirs)
        steps = [(self._group.send, self._there(mine)), (self._group.recv, there)]
        if rank < self._group.rank():  # NCCL runs them in order: the lower rank sends first
            steps.reverse()
        begun = [(begin([values], rank, tag), values) for begin, values in steps]
        for work, values in begun:
            _wait(work, values)
        _take_back(theirs, there)

    def _there(self, values: torch.Tensor) -> torch.Tensor:
        """Return values where this group can send them: NCCL sends from GPUs only."""
        return values if self._device is None else values.to(self._device)


def _take_back(values: torch.Tensor, there: torch.Tensor) -> None:
    if there is not values:
        values.copy_(there)


def _wait(work: Any, values: torch.Tensor) -> None:
    work.wait()
    if values.is_cuda:  # the operation is only queued so far
        torch.cuda.current_stream(values.device).synchronize()
