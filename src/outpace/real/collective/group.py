"""A process group of torch.distributed.

A group lasts until one of its workers is lost; the remaining workers then make a new group with a
higher generation. All operations block, but release the interpreter lock.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from outpace.blocks.sums import TreeSum
from outpace.real.net.probes import ProbeTurn
from outpace.support.units import Time

dist: Any = torch.distributed  # parts of torch.distributed have no type annotations

Backend: TypeAlias = Literal["gloo", "nccl"]

# The coordinator finds lost workers and ends their groups.
_NO_LIMIT: Final = timedelta(days=365)
_TAG: Final = 0  # tag of the values that two workers swap
_AT_ONCE: Final = 4  # number of pieces of an all-reduce that are sent at once


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of the groups in which workers add up values.

    Args:
        store: store through which workers find each other. It limits how long a member waits for
            others to join a group, which each of them does at the end of a step.
        host: address under which other workers reach this one.
        deterministic: add values in the order of the workers, as in virtual time. This is slower,
            because each worker sends its values to all others.
        limit: longest time of an operation. Without a limit, the coordinator must find lost workers
            and end their groups.
        device: device of the values, for nccl. Other data of the workers are also sent from this
            device.
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
    """Return NCCL if each worker has a separate GPU, else gloo. gpus: `gpu_of` each worker."""
    return "nccl" if all(gpus) and len(set(gpus)) == len(gpus) else "gloo"


def own_address(endpoint: str) -> str:
    """Return the address from which this machine reaches an endpoint (tcp://...)."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # a worker that sends nothing
        address: str = probe.getsockname()[0]
        return address
    return host


def gloo_group(store: Any, host: str, rank: int, size: int, timeout: timedelta = _NO_LIMIT) -> Any:
    """Return a ProcessGroupGloo.

    Gloo listens only at `host`, as long as the group exists, and accepts every connection.

    Args:
        store: a store that only this group uses.
        host: address under which other members reach this one.
        timeout: longest time of an operation.

    Raises:
        RuntimeError: if a member cannot be reached.
    """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = timeout
    options._threads = _AT_ONCE
    return dist.ProcessGroupGloo(store, rank, size, options)


def nccl_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a ProcessGroupNCCL; for the arguments see `gloo_group`."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


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
        rank = self._members.index(me)
        self._deterministic = settings.deterministic
        self._device = settings.device if settings.backend == "nccl" else None
        self._group: Any = None
        if len(members) == 1:
            return
        shared = dist.PrefixStore(f"group {name}", settings.store)
        limit = settings.limit or _NO_LIMIT
        if settings.backend == "nccl":
            self._group = nccl_group(shared, rank, len(members), limit)
        else:
            self._group = gloo_group(shared, settings.host, rank, len(members), limit)

    def all_reduce(self, pieces: Iterable[torch.Tensor]) -> None:
        """Replace each piece by its sum over all members.

        Later pieces are computed while earlier ones are sent. All members must pass the same number
        of pieces, with equal sizes.
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
        """Replace `values` by the values of worker `source`."""
        if self._group is not None:
            options = dist.BroadcastOptions()
            options.rootRank = self._members.index(source)
            _wait(self._group.broadcast([values], options), values)

    def swap(self, mine: torch.Tensor, theirs: torch.Tensor, other: int) -> None:
        """Send `mine` to worker `other`, and receive `theirs`."""
        rank, there = self._members.index(other), self._there(theirs)
        steps = [(self._group.send, self._there(mine)), (self._group.recv, there)]
        # NCCL runs operations in order, so the lower rank sends first
        if rank < self._group.rank():
            steps.reverse()
        begun = [(begin([values], rank, _TAG), values) for begin, values in steps]
        for work, values in begun:
            _wait(work, values)
        if there is not theirs:
            theirs.copy_(there)

    def _there(self, values: torch.Tensor) -> torch.Tensor:
        """Return values on a device from which this group can send: NCCL sends only from GPUs."""
        return values if self._device is None else values.to(self._device)


def timed_all_reduces(
    group: Group, budget: Time, device: torch.device | None, now: Callable[[], Time]
) -> Iterator[tuple[int, Time, Time]]:
    """All-reduce zeros of several sizes, all workers of `group` together (`real.net.probes`).

    Args:
        budget: ns. The first two are made even if they take longer.
        device: device of the values; None: the CPU.
        now: returns the time, in ns.

    Yields:
        The size in bytes, and when this worker joined and had the sum, for each all-reduce.

    Raises:
        RuntimeError: if a worker cannot be reached.
    """
    turn = ProbeTurn(0, 1, budget)
    workers = torch.ones(1, dtype=torch.float64, device=device)
    group.all_reduce([workers])
    for _, size in turn.exchanges():
        zeros = torch.zeros(size // torch.float32.itemsize, device=device)
        joined = now()
        group.all_reduce([zeros])
        arrived = now()
        yield size, joined, arrived
        # All workers must do the same, so they use the same time: the mean.
        total = torch.tensor([arrived - joined], dtype=torch.float64, device=device)
        group.all_reduce([total])
        turn.took(int(total / workers))


def _wait(work: Any, values: torch.Tensor) -> None:
    work.wait()
    if values.is_cuda:  # the operation is only queued so far
        torch.cuda.current_stream(values.device).synchronize()
